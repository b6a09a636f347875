//! Bodies gathered in GPU memory.

use std::sync::Arc;
use std::thread;

use dipc::device::BufferRef;
use dipc::device::cuda::{Device, GpuBody, Stream};
use dipc::error::Status;

use crate::asleep::{this_thread, until_asleep};
use crate::ucx::{bytes, on_gpu};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("gathered", bodies_are_gathered),
    ("gathered-faults", gathering_fails),
];

#[test]
fn bodies_are_gathered_on_the_device() {
    run("gathered", &[]);
}

/// A gathered body has its header's layout, with zeros as padding (rule D3), after earlier work on
/// the stream.
fn bodies_are_gathered() {
    let device = Device::get(0).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let (one, two) = (bytes(100, 1), bytes(1000, 2));
    let parts = [on_gpu(&device, &one), on_gpu(&device, &[0; 1000])];
    let run = |at: usize| parts[at].slice(0, parts[at].len() as u64).unwrap();
    // Earlier, slow work writes the second part.
    let late = on_gpu(&device, &two);
    fake::hold(stream.raw().cast(), 1);
    // SAFETY: both live to the end of this function.
    unsafe { stream.copy(parts[1].address(), late.address(), 1000) }.unwrap();
    let held = stream.raw() as usize;
    let gathering = this_thread();
    let release = thread::spawn(move || {
        until_asleep(gathering);
        fake::hold(held as *mut _, 0);
    });
    let layout = [(0, run(0)), (100, BufferRef::EMPTY), (128, run(1))];
    // SAFETY: the parts live to the end of this function, and nobody else writes to them.
    let body = unsafe { GpuBody::gather(&stream, 1152, layout) }.unwrap();
    release.join().unwrap();
    let mut expected = one;
    expected.resize(128, 0);
    expected.extend(two);
    expected.resize(1152, 0);
    assert_eq!(fake::read(body.address(), body.len()), expected);
    // Parts are found by their address; other addresses are not.
    assert_eq!(
        body.slice(128, 1000).unwrap().data.addr() as u64,
        body.address() + 128
    );
    assert!(body.slice(1152, 0).is_some());
    assert!(body.slice(1152, 1).is_none() && body.slice(u64::MAX, 2).is_none());
    // SAFETY: as above.
    let empty = unsafe { GpuBody::gather(&stream, 0, []) }.unwrap();
    assert!(empty.is_empty());
}

#[test]
fn a_failed_gather_leaves_nothing() {
    run("gathered-faults", &[]);
}

/// An impossible layout is refused; each failing driver call is reported, and started work never
/// writes to freed memory.
fn gathering_fails() {
    let device = Device::get(0).unwrap();
    let stream = Arc::new(Stream::new(&device).unwrap());
    let part = on_gpu(&device, &bytes(1000, 1));
    let run = part.slice(0, 1000).unwrap();
    let gather = |len: usize, parts: &[(usize, BufferRef)]| {
        // SAFETY: `part` lives to the end of this function, and nobody writes to it.
        unsafe { GpuBody::gather(&stream, len, parts.iter().copied()) }
    };
    // The stream's own resources exist from now on.
    drop(gather(1000, &[(0, run)]).unwrap());
    device.trim().unwrap();
    let before = fake::Live::now();
    let wrong: [(usize, &[_]); 3] = [
        (999, &[(0, run)]),
        (4000, &[(0, run), (999, run)]),
        (4000, &[(usize::MAX, run)]),
    ];
    for (len, parts) in wrong {
        let error = gather(len, parts).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    }
    // The stream is slow, so that started work still runs at the failure.
    for function in [
        "cuMemcpyAsync",
        "cuMemsetD8Async",
        "cuEventRecord",
        "cuEventCreate",
        "cuEventSynchronize",
    ] {
        let nth = if function == "cuMemcpyAsync" { 2 } else { 1 };
        fake::fail_call(function, nth, 999);
        fake::hold(stream.raw().cast(), 1);
        let held = stream.raw() as usize;
        let gathering = this_thread();
        let release = thread::spawn(move || {
            until_asleep(gathering);
            fake::hold(held as *mut _, 0);
        });
        match gather(4096, &[(0, run), (2048, run)]) {
            Err(error) => assert!(error.text().contains("CUDA_ERROR_UNKNOWN"), "{error}"),
            // The end of the work can be observed in another way.
            Ok(body) => {
                assert!(function.starts_with("cuEvent"), "{function}");
                assert_eq!(fake::read(body.address(), 1000), bytes(1000, 1));
            }
        }
        // No work runs any more, so the memory may be reused.
        assert!(stream.is_idle().unwrap(), "{function}");
        release.join().unwrap();
        fake::fail_call(function, 0, 0);
    }
    device.trim().unwrap();
    assert_eq!(fake::Live::now(), before);
}
