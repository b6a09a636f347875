//! Reads from device memory: small values together, bits, and the kind of a pointer.

use std::sync::Arc;

use dipc::device::DeviceKind;
use dipc::device::cuda::gather::{Fetched, Reads};
use dipc::device::cuda::pointer::Pointer;
use dipc::device::cuda::shift::Shifts;
use dipc::device::cuda::{Device, DeviceMemory, PinnedMemory, Purpose, Stream};
use dipc::error::Status;

use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("gather", values_are_read_together),
    ("fault", address_is_not_readable),
    ("shift", bitmaps_are_moved),
    ("pointers", pointers_are_known),
];

fn device_and_stream() -> (Arc<Device>, Arc<Stream>) {
    let device = Device::get(0).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    (device, stream)
}

/// Random bytes, on the host and on the device.
fn random(device: &Arc<Device>, len: usize) -> (Vec<u8>, DeviceMemory) {
    let mut random = fastrand::Rng::with_seed(7);
    let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
    let memory = DeviceMemory::new(device, len, Purpose::Own).unwrap();
    fake::write(memory.address(), &bytes);
    (bytes, memory)
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

#[test]
fn many_small_values_are_one_kernel_and_one_event() {
    run("gather", &[]);
}

fn values_are_read_together() {
    let (device, stream) = device_and_stream();
    let before = {
        // Only the kernels stay.
        let mut first = Reads::default();
        let (_, memory) = random(&device, 64);
        first.bytes(memory.address(), 8);
        // SAFETY: the memory lives until the result is there.
        unsafe { first.fetch(&stream) }.unwrap().wait().unwrap();
        drop(memory);
        device.trim().unwrap();
        fake::Live::now()
    };
    let (bytes, memory) = random(&device, 100_000);
    let mut reads = Reads::default();
    assert!(reads.is_empty());
    let wanted: Vec<(usize, usize)> = (0..1000)
        .map(|index| (index * 97, [1, 2, 4, 8, 16, 0, 63, 64][index % 8]))
        .collect();
    let slots: Vec<_> = wanted
        .iter()
        .map(|(at, len)| reads.bytes(memory.address() + *at as u64, *len))
        .collect();
    let calls = [
        "cuLaunchKernel",
        "cuMemcpyAsync",
        "cuEventRecord",
        "cuStreamSynchronize",
    ];
    let counts = calls.map(fake::count);
    // SAFETY: the memory lives until the results are there, and nobody writes to it.
    let results = unsafe { reads.fetch(&stream) }.unwrap().wait().unwrap();
    let counted: Vec<i64> = calls
        .iter()
        .zip(counts)
        .map(|(call, was)| fake::count(call) - was)
        .collect();
    assert_eq!(counted, [1, 0, 1, 0], "{calls:?}");
    for ((at, len), slot) in wanted.iter().zip(slots) {
        assert_eq!(results.bytes(slot), &bytes[*at..at + len]);
    }
    // Long values, and counted bits.
    let mut reads = Reads::default();
    let long = reads.bytes(memory.address() + 5, 70_000);
    let ranges: Vec<(usize, usize)> = (0..300)
        .map(|index| {
            (
                index * 13,
                [0, 1, 5, 7, 8, 9, 63, 64, 65, 4000, 500_000][index % 11],
            )
        })
        .collect();
    let slots: Vec<_> = ranges
        .iter()
        .map(|(at, len)| reads.ones(memory.address() + *at as u64 / 8, at % 8, *len))
        .collect();
    let short = reads.bytes(memory.address(), 3);
    // SAFETY: as above.
    let results = unsafe { reads.fetch(&stream) }.unwrap().wait().unwrap();
    assert_eq!(results.bytes(long), &bytes[5..70_005]);
    assert_eq!(results.bytes(short), &bytes[..3]);
    for ((at, len), slot) in ranges.iter().zip(slots) {
        let ones = (*at..at + len).filter(|at| bit(&bytes, *at)).count();
        assert_eq!(results.number(slot), ones as u64, "{len} bits from {at} on");
    }
    // A read without a wait frees its memory too.
    // SAFETY: as above; dropping it waits.
    drop(unsafe { reads.fetch(&stream) }.unwrap());
    drop(memory);
    device.trim().unwrap();
    assert_eq!(fake::Live::now(), before);
}

#[test]
fn a_read_that_faults_is_an_error_of_the_device() {
    run("fault", &[]);
}

fn address_is_not_readable() {
    let (_, stream) = device_and_stream();
    let mut reads = Reads::default();
    reads.bytes(0x1000, 8);
    // SAFETY: none: the driver must notice that the address is invalid.
    let fetched = unsafe { reads.fetch(&stream) };
    // The device may be faster than the call.
    let error = fetched.and_then(Fetched::wait).unwrap_err();
    assert_eq!(error.status(), Status::Io);
    let text = error.text();
    assert!(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{text}");
    assert!(text.contains("restart it"), "{text}");
    // The context is lost: every call reports it, and none hangs.
    assert_eq!(stream.synchronize().unwrap_err().status(), Status::Io);
}

#[test]
fn bitmaps_are_moved_to_bit_0() {
    run("shift", &[]);
}

fn bitmaps_are_moved() {
    let (device, stream) = device_and_stream();
    let (bytes, memory) = random(&device, 10_000);
    let mut shifts = Shifts::default();
    let mut wanted = Vec::new();
    for first in 0..8 {
        for len in [0, 1, 2, 7, 8, 9, 15, 16, 17, 64, 1000, 70_001] {
            let at = 3 + first * 11;
            let start = shifts.add(memory.address() + at as u64, first, len);
            assert_eq!(start % 64, 0);
            wanted.push((at, first, len, start));
        }
    }
    // SAFETY: the memory lives until the stream is done.
    let shifted = unsafe { shifts.run(&stream) }.unwrap();
    stream.synchronize().unwrap();
    let results = fake::read(shifted.address(), shifted.len());
    for (at, first, len, start) in wanted {
        let got = &results[start..start + len.div_ceil(8)];
        for index in 0..got.len() * 8 {
            let expected = index < len && bit(&bytes[at..], first + index);
            assert_eq!(
                bit(got, index),
                expected,
                "bit {index} of {len} from {first}"
            );
        }
    }
}

#[test]
fn pointers_are_what_the_driver_says() {
    run("pointers", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn pointers_are_known() {
    let (device, _) = device_and_stream();
    let plain = DeviceMemory::new(&device, 1000, Purpose::Own).unwrap();
    let lent = DeviceMemory::new(&device, 1000, Purpose::Lend).unwrap();
    let pinned = PinnedMemory::new(&device, 1000).unwrap();
    let other = Device::get(1).unwrap();
    let foreign = DeviceMemory::new(&other, 1000, Purpose::Own).unwrap();
    let mut managed = 0;
    {
        let _current = device.enter().unwrap();
        assert_eq!(fake::memory_managed(&raw mut managed, 1000, 1), 0);
    }
    let heap = vec![0_u8; 1000];

    let at = |address| Pointer::at(&device, address).unwrap();
    let known = at(plain.address() + 999).unwrap();
    assert_eq!(
        (
            known.kind,
            known.ordinal,
            known.base,
            known.size,
            known.legacy_ipc,
            known.posix_fd
        ),
        (DeviceKind::CUDA, 0, plain.address(), 1000, true, false)
    );
    let known = at(lent.address() + 5).unwrap();
    assert_eq!(
        (
            known.kind,
            known.base,
            known.size,
            known.legacy_ipc,
            known.posix_fd
        ),
        (DeviceKind::CUDA, lent.address(), lent.len(), false, true)
    );
    assert_eq!(at(pinned.address()).unwrap().kind, DeviceKind::CUDA_HOST);
    assert_eq!(at(managed).unwrap().kind, DeviceKind::CUDA_MANAGED);
    assert_eq!(at(foreign.address()).unwrap().ordinal, 1);
    assert_eq!(at(heap.as_ptr() as u64), None);
    assert_eq!(at(0), None);

    let refused = |address, len, text: &str| {
        let error = Pointer::on_device(&device, address, len).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert!(error.text().contains(text), "{error}");
    };
    refused(heap.as_ptr() as u64, 1, "does not know");
    refused(pinned.address(), 1, "pinned memory of the host");
    refused(foreign.address(), 1, "is GPU 1's");
    refused(plain.address() + 1, 1000, "its allocation has 1000 bytes");
    refused(plain.address(), usize::MAX, "its allocation has 1000 bytes");
    // Memory of another context, which the library's kernels cannot reach.
    let (mut context, mut elsewhere) = (std::ptr::null_mut(), 0);
    assert_eq!(fake::context_create(&raw mut context, 0, 0), 0);
    assert_eq!(fake::memory_alloc(&raw mut elsewhere, 1000), 0);
    assert_eq!(fake::context_pop(&raw mut context), 0);
    assert!(at(elsewhere).unwrap().foreign_context);
    Pointer::on_device(&device, elsewhere, 1000).unwrap();
    let error = Pointer::for_kernels(&device, elsewhere, 1000).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData, "{error}");
    assert!(error.text().contains("another context"), "{error}");
    assert_eq!(fake::context_destroy(context), 0);
    for (address, len) in [
        (plain.address(), 1000),
        (plain.address() + 999, 1),
        (managed, 1000),
    ] {
        Pointer::on_device(&device, address, len).unwrap();
        Pointer::for_kernels(&device, address, len).unwrap();
    }
}
