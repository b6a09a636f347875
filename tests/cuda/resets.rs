//! A host program that resets its device (`cudaDeviceReset`): lost memory is reported as an error,
//! and later work succeeds. The fake driver ends a process that uses a lost handle.

use std::sync::Arc;
use std::time::Duration;

use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::cuda::{Device, DeviceMemory, Event, PinnedMemory, Purpose, Stream, later};
use dipc::device::{DeviceKind, Target};
use dipc::error::{Result, Status};
use dipc::server::{ServerHandle, ServerOptions};

use crate::lent_reader::client as other_client;
use crate::producer::{Lies, Producer, batches};
use crate::serving::{address, eventually, serve};
use crate::{Case, end_on_panic, fake, run};

pub const CASES: &[Case] = &[
    ("reset", devices_are_reset),
    ("reset-streams", streams_are_told),
    ("reset-lent", lenders_begin_anew),
];

/// Does the same as `cudaDeviceReset` and the next use of the device.
pub fn reset() {
    assert_eq!(fake::primary_reset(0), 0);
    let mut context = std::ptr::null_mut();
    assert_eq!(fake::primary_retain(&raw mut context, 0), 0);
}

fn assert_gone<T>(outcome: Result<T>) {
    let error = outcome.err().expect("what is gone is used");
    assert_eq!(error.status(), Status::InvalidData, "{error}");
    for part in ["GPU 0 was reset", "CUDA_ERROR_CONTEXT_IS_DESTROYED"] {
        assert!(error.text().contains(part), "{error}");
    }
}

#[test]
fn a_device_that_the_host_reset_is_new() {
    run("reset", &[]);
}

fn devices_are_reset() {
    for used_since in [true, false] {
        let device = Device::get(0).unwrap();
        let stream = Arc::new(Stream::new(&device).unwrap());
        let event = Event::for_processes(&device).unwrap();
        event.record(&stream).unwrap();
        let kept = [Purpose::Own, Purpose::Lend].map(|purpose| {
            // Cached memory is reused, if it still exists.
            drop(PinnedMemory::new(&device, 100_000).unwrap());
            drop(DeviceMemory::new(&device, 100_000, Purpose::Own).unwrap());
            DeviceMemory::new(&device, 1000, purpose).unwrap()
        });
        let arena = Arena::on(DeviceKind::CUDA, 0, ArenaOptions::default()).unwrap();
        let block = arena.alloc(1000).unwrap();
        assert!(dipc::arena::find_on_gpu(block.as_ptr() as u64, 1000).is_some());
        if used_since {
            reset();
        } else {
            assert_eq!(fake::primary_reset(0), 0);
        }
        assert_gone(stream.synchronize());
        assert_gone(event.is_ready());
        assert_gone(DeviceMemory::new(&device, 100_000, Purpose::Own));
        assert_gone(PinnedMemory::new(&device, 100_000));
        assert_gone(arena.alloc(10));
        assert!(dipc::arena::find_on_gpu(block.as_ptr() as u64, 1000).is_none());
        let again = Device::get(0).unwrap();
        assert!(!Arc::ptr_eq(&device, &again));
        let mut pinned = PinnedMemory::new(&again, 100_000).unwrap();
        // SAFETY: no work uses it.
        unsafe { pinned.as_mut_slice() }.fill(1);
        let memory = DeviceMemory::new(&again, 100_000, Purpose::Own).unwrap();
        Stream::new(&again).unwrap().synchronize().unwrap();
        let allocated = fake::count("cuMemFree_v2") + fake::count("cuMemUnmap");
        // SAFETY: nobody uses it.
        unsafe { arena.dealloc(block) }.unwrap();
        drop((stream, event, kept, arena, device));
        assert!(later::wait(Duration::from_secs(10)));
        let after = fake::count("cuMemFree_v2") + fake::count("cuMemUnmap");
        assert_eq!(
            allocated, after,
            "the driver was asked to free what is gone"
        );
        drop((memory, pinned));
        again.trim().unwrap();
        let live = fake::Live::now();
        assert_eq!(
            (live.streams, live.events, live.pinned),
            (0, 0, 0),
            "{live:?}"
        );
    }
}

/// A running stream ends with a status and a text, at the server and at its client in the same
/// process; their next stream brings its arrays.
#[test]
fn streams_under_way_are_told_of_a_reset() {
    run("reset-streams", &[]);
}

fn streams_are_told() {
    end_on_panic();
    for (lies, scheme, device) in [
        (Lies::Legacy, "shm", Target::Cuda(0)),
        (Lies::Arena, "shm", Target::Cuda(0)),
        (Lies::Legacy, "shm", Target::Host),
        (Lies::Legacy, "tcp", Target::Cuda(0)),
    ] {
        let what = format!("{lies:?} over {scheme} to {device}");
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address(scheme)).unwrap();
        serve(&server, &Producer::new(lies), &batches(4, 3000));
        let client = Client::new(ClientOptions::default()).unwrap();
        let mut options = GetOptions {
            device,
            ..GetOptions::default()
        };
        options.window.batches = 1;
        let read = |resets: bool| -> Result<usize> {
            let before = server.stats().batches;
            let mut stream = client.get(&[&uri], b"t", &options, None)?;
            let mut arrays = Vec::new();
            while let Some(array) = stream.next()? {
                arrays.push(array);
                if resets && arrays.len() == 1 {
                    // The reset happens while nothing on the device is in use, as the driver
                    // requires.
                    eventually(&what, || server.stats().batches == before + 2);
                    std::thread::sleep(Duration::from_millis(10));
                    reset();
                }
            }
            Ok(arrays.len())
        };
        assert_eq!(read(false).unwrap(), 4, "{what}");
        for _ in 0..2 {
            let error = read(true).unwrap_err();
            let told = error.text().contains("CUDA_ERROR_CONTEXT_IS_DESTROYED");
            assert!(told, "{what}: {error}");
            assert_eq!(read(false).unwrap(), 4, "{what}");
        }
        drop((client, server));
        Device::get(0).unwrap().trim().unwrap();
        let live = fake::Live::now();
        assert_eq!((live.streams, live.pinned), (0, 0), "{what}: {live:?}");
    }
}

/// A server that lends GPU memory to another process goes on after a reset, over the same
/// connection: new memory at the same addresses counts as different.
#[test]
fn a_lender_begins_anew_after_a_reset() {
    run("reset-lent", &[]);
}

fn lenders_begin_anew() {
    end_on_panic();
    for lies in [Lies::Legacy, Lies::Fd, Lies::Managed, Lies::Arena] {
        let what = format!("{lies:?}");
        let producer = Producer::new(lies);
        let server = ServerHandle::new(ServerOptions::default()).unwrap();
        let uri = server.listen(&address("shm")).unwrap();
        serve(&server, &producer, &crate::lent_reader::table("t"));
        let mut other = other_client(&uri, "again");
        other.says("ready");
        for round in 1..4 {
            other.tell("t");
            other.says("read");
            eventually(&what, || server.stats().lent_outstanding == 0);
            eventually(&what, || producer.released() == round * 5);
            reset();
        }
        assert_eq!(server.stats().bytes_staged, 0, "{what}");
        drop(other.0.stdin.take());
        other.succeeds();
        drop(server);
    }
}
