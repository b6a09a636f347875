//! The order of work, and events between the streams of producer and library. A held stream does
//! nothing until its release, so that no test depends on time.

use std::sync::Arc;

use dipc::device::cuda::export::Allocation;
use dipc::device::cuda::{Device, DeviceMemory, Event, PinnedMemory, Purpose, Stream, SyncEvent};
use dipc::error::Status;

use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("order", copies_keep_their_order),
    ("peers", copies_between_devices),
    ("unwaited", without_the_event_the_data_is_wrong),
    ("waited", the_event_is_waited_for),
    ("destroyed", producer_destroyed_its_context),
    ("handed", event_is_handed_over),
    ("recycled", memory_is_used_again),
    ("exhausted", memory_runs_out),
];

/// Holds a stream until the drop.
struct Held<'a>(&'a Stream);

impl<'a> Held<'a> {
    fn new(stream: &'a Stream) -> Self {
        fake::hold(stream.raw().cast(), 1);
        Self(stream)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        fake::hold(self.0.raw().cast(), 0);
    }
}

fn device() -> Arc<Device> {
    Device::get(0).unwrap()
}

fn memory(len: usize) -> DeviceMemory {
    DeviceMemory::new(&device(), len, Purpose::Own).unwrap()
}

fn pinned(bytes: &[u8]) -> PinnedMemory {
    let mut pinned = PinnedMemory::new(&device(), bytes.len()).unwrap();
    // SAFETY: no work was given to the device yet.
    let target = unsafe { pinned.as_mut_slice() };
    target[..bytes.len()].copy_from_slice(bytes);
    pinned
}

#[test]
fn work_on_a_stream_is_asynchronous_and_in_order() {
    run("order", &[]);
}

fn copies_keep_their_order() {
    let stream = Stream::new(&device()).unwrap();
    let event = Event::new(&device()).unwrap();
    assert!(
        event.is_ready().unwrap(),
        "what was never recorded has happened"
    );
    let source = pinned(b"0123456789abcdef");
    let (first, second) = (memory(16), memory(16));
    let target = pinned(&[0; 16]);
    {
        let _held = Held::new(&stream);
        // SAFETY: everything lives until the stream is synchronised, and is this test's alone.
        unsafe {
            stream.copy(first.address(), source.address(), 16).unwrap();
            stream.copy(second.address(), first.address(), 16).unwrap();
            stream.fill(second.address() + 4, b'-', 3).unwrap();
            stream.copy(target.address(), second.address(), 16).unwrap();
            // A copy of 0 bytes works at any address.
            stream.copy(0, 0, 0).unwrap();
            stream.fill(0, 1, 0).unwrap();
        }
        event.record(&stream).unwrap();
        assert!(!event.is_ready().unwrap());
        assert!(!stream.is_idle().unwrap());
        // SAFETY: the stream does nothing now.
        assert_eq!(unsafe { &target.as_slice()[..16] }, [0; 16]);
    }
    event.synchronize().unwrap();
    assert!(event.is_ready().unwrap());
    // SAFETY: the work is done.
    assert_eq!(unsafe { &target.as_slice()[..16] }, b"0123---789abcdef");
    stream.synchronize().unwrap();
    assert!(stream.is_idle().unwrap());
}

#[test]
fn copies_cross_devices() {
    run("peers", &[("FAKE_CUDA_DEVICES", "2")]);
    run(
        "peers",
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_NO_PEER", "1")],
    );
}

fn copies_between_devices() {
    let (zero, one) = (device(), Device::get(1).unwrap());
    let stream = Stream::new(&zero).unwrap();
    let here = memory(8);
    let there = DeviceMemory::new(&one, 8, Purpose::Own).unwrap();
    fake::write(here.address(), b"peer2you");
    // SAFETY: both live until the stream is synchronised.
    unsafe { stream.copy_between((&one, there.address()), (&zero, here.address()), 8) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(fake::read(there.address(), 8), b"peer2you");
    // A stream of one device waits for an event of the other.
    let event = Event::new(&zero).unwrap();
    event.record(&stream).unwrap();
    let other = Stream::new(&one).unwrap();
    other.wait(&event).unwrap();
    other.synchronize().unwrap();
    // An event of another device cannot be recorded.
    assert_eq!(
        event.record(&other).unwrap_err().status(),
        Status::InvalidData
    );
}

/// A producer with a held stream, and its memory.
struct Producer {
    stream: Stream,
    memory: DeviceMemory,
    data: PinnedMemory,
}

impl Producer {
    fn new() -> Self {
        let memory = memory(64);
        fake::write(memory.address(), &[b'?'; 64]);
        Self {
            stream: Stream::new(&device()).unwrap(),
            memory,
            data: pinned(&[b'!'; 64]),
        }
    }

    /// Enqueues the work, and the event after it.
    fn produce(&self) -> SyncEvent {
        let (target, source) = (self.memory.address(), self.data.address());
        // SAFETY: both live as long as the producer.
        unsafe { self.stream.copy(target, source, 64) }.unwrap();
        SyncEvent::record(&self.stream).unwrap()
    }
}

#[test]
fn without_waiting_for_the_event_the_data_is_not_there() {
    run("unwaited", &[]);
}

fn without_the_event_the_data_is_wrong() {
    let producer = Producer::new();
    let ours = Stream::new(&device()).unwrap();
    let target = pinned(&[0; 64]);
    let held = Held::new(&producer.stream);
    let _event = producer.produce();
    // SAFETY: everything lives until the end.
    unsafe { ours.copy(target.address(), producer.memory.address(), 64) }.unwrap();
    ours.synchronize().unwrap();
    // SAFETY: the work is done.
    assert_eq!(unsafe { &target.as_slice()[..64] }, [b'?'; 64]);
    drop(held);
    producer.stream.synchronize().unwrap();
}

#[test]
fn the_producers_event_is_waited_for_without_blocking() {
    run("waited", &[]);
}

fn the_event_is_waited_for() {
    let producer = Producer::new();
    let ours = Stream::new(&device()).unwrap();
    let target = pinned(&[0; 64]);
    let held = Held::new(&producer.stream);
    let event = producer.produce();
    // SAFETY: the event lives; NULL, and a pointer to NULL, mean no event.
    unsafe {
        ours.wait_for_producer(std::ptr::null()).unwrap();
        let none: *const () = std::ptr::null();
        ours.wait_for_producer((&raw const none).cast()).unwrap();
        ours.synchronize().unwrap();
        ours.wait_for_producer(event.pointer()).unwrap();
        ours.copy(target.address(), producer.memory.address(), 64)
            .unwrap();
    }
    assert!(!ours.is_idle().unwrap());
    // SAFETY: the stream waits for one that is held.
    assert_eq!(unsafe { &target.as_slice()[..64] }, [0; 64]);
    assert_eq!(fake::count("cuEventSynchronize"), 0);
    // The event may be destroyed during the wait.
    drop(event);
    drop(held);
    ours.synchronize().unwrap();
    // SAFETY: the work is done.
    assert_eq!(unsafe { &target.as_slice()[..64] }, [b'!'; 64]);
}

#[test]
fn an_event_of_a_destroyed_context_is_an_error() {
    run("destroyed", &[]);
}

fn producer_destroyed_its_context() {
    let ours = Stream::new(&device()).unwrap();
    let (mut context, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(fake::context_create(&raw mut context, 0, 0), 0);
    assert_eq!(fake::event_create(&raw mut event, 2), 0);
    assert_eq!(fake::context_destroy(context), 0);
    // SAFETY: the pointer leads to a handle; the driver notices that its event is destroyed.
    let error = unsafe { ours.wait_for_producer((&raw const event).cast()) }.unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
    let text = error.text();
    assert!(text.contains("sync_event"), "{text}");
    assert!(text.contains("cuStreamWaitEvent"), "{text}");
    assert!(
        text.contains("until every array made in it is released"),
        "{text}"
    );
    // The library's stream goes on.
    ours.synchronize().unwrap();
}

#[test]
fn an_event_is_handed_over_by_a_pointer_that_stays() {
    run("handed", &[]);
}

fn event_is_handed_over() {
    let stream = Stream::new(&device()).unwrap();
    let before = fake::Live::now();
    let held = Held::new(&stream);
    let event = SyncEvent::record(&stream).unwrap();
    let pointer = event.pointer();
    let moved = Box::new(event);
    assert_eq!(moved.pointer(), pointer);
    // SAFETY: `moved` lives; a consumer reads the handle so.
    let raw = unsafe { pointer.cast::<*mut std::ffi::c_void>().read() };
    assert_eq!(raw, moved.event().raw().cast());
    assert!(!moved.event().is_ready().unwrap());
    drop(held);
    moved.event().synchronize().unwrap();
    drop(moved);
    assert_eq!(fake::Live::now(), before);
}

#[test]
fn memory_comes_back_and_is_given_up() {
    run("recycled", &[]);
}

fn memory_is_used_again() {
    let device = device();
    let before = fake::Live::now();
    let first = DeviceMemory::new(&device, 3 << 20, Purpose::Own).unwrap();
    let address = first.address();
    assert!(first.len() >= 3 << 20);
    drop(first);
    let calls = fake::count("cuMemAlloc_v2");
    let again = DeviceMemory::new(&device, 3 << 20, Purpose::Own).unwrap();
    assert_eq!(
        (again.address(), fake::count("cuMemAlloc_v2")),
        (address, calls)
    );
    drop(again);
    let address = PinnedMemory::new(&device, 5000).unwrap().address();
    assert_eq!(PinnedMemory::new(&device, 5000).unwrap().address(), address);
    let (available, total) = device.memory().unwrap();
    assert!(available < total);
    device.trim().unwrap();
    assert_eq!(fake::Live::now(), before);
    assert_eq!(device.memory().unwrap(), (total, total));
    // Memory that a peer may have mapped is not reused, nor is lendable memory with old content.
    let lent = DeviceMemory::new(&device, 100, Purpose::Lend).unwrap();
    drop(lent);
    assert_eq!(fake::Live::now(), before);
    let plain = DeviceMemory::new(&device, 100, Purpose::Own).unwrap();
    let allocation = Allocation::of(&device, plain.address(), 100).unwrap();
    drop(allocation.unwrap().export().unwrap().unwrap());
    drop(plain);
    assert_eq!(fake::Live::now(), before);
    let lent = DeviceMemory::new(&device, 100, Purpose::Lend).unwrap();
    drop(lent.export().unwrap());
    drop(lent);
    assert_eq!(fake::Live::now(), before);
    let own = memory(100);
    assert_eq!(own.export().unwrap_err().status(), Status::Unsupported);
}

#[test]
fn running_out_of_device_memory_is_an_error_after_what_was_kept_is_given_up() {
    run("exhausted", &[("FAKE_CUDA_MEMORY", "67108864")]);
    run(
        "exhausted",
        &[("FAKE_CUDA_MEMORY", "67108864"), ("FAKE_CUDA_NO_VMM", "1")],
    );
}

fn memory_runs_out() {
    let device = device();
    let before = fake::Live::now();
    let purposes = if device.exports_fds() {
        [Purpose::Own, Purpose::Lend]
    } else {
        let error = DeviceMemory::new(&device, 1, Purpose::Lend).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        [Purpose::Own, Purpose::Own]
    };
    for purpose in purposes {
        // Cached memory that blocks a larger allocation.
        for _ in 0..3 {
            drop(DeviceMemory::new(&device, 20 << 20, purpose).unwrap());
        }
        let held = DeviceMemory::new(&device, 40 << 20, purpose).unwrap();
        let error = DeviceMemory::new(&device, 40 << 20, purpose).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        let text = error.text();
        assert!(text.contains("41943040 bytes on GPU 0"), "{text}");
        assert!(
            text.contains("out of memory (CUDA_ERROR_OUT_OF_MEMORY)"),
            "{text}"
        );
        drop(held);
        let impossible = DeviceMemory::new(&device, usize::MAX, purpose).unwrap_err();
        assert_eq!(impossible.status(), Status::OutOfMemory, "{impossible}");
    }
    device.trim().unwrap();
    assert_eq!(fake::Live::now(), before);
}
