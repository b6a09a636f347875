//! Loading the driver, the GPUs, and contexts.

use dipc::device::cuda::{Device, Driver, describe_all};
use dipc::error::Status;

use crate::{Case, fake, is_left_out, outcome, run, run_in};

pub const CASES: &[Case] = &[
    ("load", driver_is_loaded),
    ("none", there_is_no_driver),
    ("refused", driver_is_refused),
    ("range", device_is_out_of_range),
    ("contexts", contexts_belong_to_threads),
    ("fork", child_is_refused),
    ("touch", processor_touches_device_memory),
];

#[test]
fn a_driver_is_loaded_and_its_gpus_are_listed() {
    run("load", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn driver_is_loaded() {
    let driver = Driver::get().unwrap();
    assert_eq!(driver.version(), "12.2");
    assert_eq!(driver.device_count().unwrap(), 2);
    let all = describe_all().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].name, "Fake GPU 1");
    assert_eq!(all[1].peers, [0]);
    assert_eq!((all[0].ordinal, all[0].capability), (0, (9, 0)));
    assert_eq!(all[0].total_bytes, 1 << 30);
    assert!(all[0].exports_fds);
    // Listing the GPUs makes no context and keeps nothing.
    assert_eq!(fake::Live::now().contexts, 0);
    assert_eq!(fake::count("cuInit"), 1);
}

#[test]
fn without_a_driver_the_text_says_what_to_install() {
    let empty = crate::places::scratch("no_cuda");
    run_in("none", &empty, &[]);
}

fn there_is_no_driver() {
    let error = match Driver::get() {
        Ok(_) => {
            println!("skipped: this machine has a CUDA driver");
            return;
        }
        Err(error) => error,
    };
    assert_eq!(error.status(), Status::Unsupported);
    let text = error.text();
    assert!(text.contains("there is no CUDA driver"), "{text}");
    assert!(text.contains("libcuda.so.1"), "{text}");
    assert!(text.contains("install"), "{text}");
    // A failure is not cached.
    assert_eq!(Device::get(0).unwrap_err(), error);
}

/// Asserts text and status for an unusable driver.
fn refused(folder: &std::path::Path, variables: &[(&str, &str)], texts: &[&str]) {
    if is_left_out("this machine has a driver that works") {
        return;
    }
    let (status, text) = outcome("refused", folder, variables);
    assert!(status.success(), "{text}");
    for wanted in texts {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

fn driver_is_refused() {
    let error = Driver::get().unwrap_err();
    println!("{:?}: {error}", error.status());
    assert_eq!(Driver::get().unwrap_err(), error);
    assert_eq!(Device::get(0).unwrap_err(), error);
}

#[test]
fn a_driver_that_is_too_old_is_refused() {
    let texts = ["Unsupported", "is for CUDA 11.8, which is too old", "12.0"];
    refused(fake::folder(), &[("FAKE_CUDA_VERSION", "11080")], &texts);
}

#[test]
fn a_driver_without_a_function_is_refused_by_its_name() {
    let folder = fake::build("fake_cuda_lacking", &["-DcuMemMap=hidden"]);
    refused(&folder, &[], &["Unsupported", "has no function cuMemMap"]);
}

#[test]
fn a_machine_without_a_gpu_is_told_so() {
    let texts = [
        "Unsupported",
        "CUDA_ERROR_NO_DEVICE",
        "sees no GPU",
        "nvidia-smi",
    ];
    refused(fake::folder(), &[("FAKE_CUDA_DEVICES", "0")], &texts);
}

#[test]
fn a_device_id_out_of_range_is_refused() {
    run("range", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn device_is_out_of_range() {
    for id in [2, -1, i64::MAX, i64::MIN, 1 << 32] {
        let error = Device::get(id).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        let text = error.text();
        assert!(
            text.contains(&format!("no GPU {id}: the driver sees 2")),
            "{text}"
        );
    }
    // A device is retained once, for any number of requests.
    let first = Device::get(1).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &Device::get(1).unwrap()));
    assert_eq!(fake::count("cuDevicePrimaryCtxRetain"), 1);
}

#[test]
fn contexts_are_current_on_one_thread_and_put_back() {
    run("contexts", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn contexts_belong_to_threads() {
    let (zero, one) = (Device::get(0).unwrap(), Device::get(1).unwrap());
    let mut host = std::ptr::null_mut();
    assert_eq!(fake::context_create(&raw mut host, 0, 0), 0);
    assert_eq!(fake::current(), host);
    {
        let _zero = zero.enter().unwrap();
        let outer = fake::current();
        assert_ne!(outer, host);
        {
            let _one = one.enter().unwrap();
            assert_ne!(fake::current(), outer);
            std::thread::scope(|scope| {
                scope.spawn(|| assert!(fake::current().is_null()));
            });
        }
        assert_eq!(fake::current(), outer);
    }
    assert_eq!(fake::current(), host);
    // Calls without a context get one, on any thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            dipc::device::cuda::Stream::new(&one).unwrap();
            assert!(fake::current().is_null());
        });
    });
    // An error on the way leaves nothing behind.
    fake::fail_call("cuStreamCreate", 1, 2);
    dipc::device::cuda::Stream::new(&zero).unwrap_err();
    assert_eq!(fake::current(), host);
}

#[test]
fn a_forked_child_is_refused() {
    run("fork", &[]);
}

fn child_is_refused() {
    let device = Device::get(0).unwrap();
    let calls = fake::count("cuCtxPushCurrent_v2");
    // SAFETY: the child only reads atomics, and exits without unwinding or handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = |outcome: Option<dipc::error::Error>| {
            outcome.is_some_and(|error| error.status() == Status::Forked)
        };
        let good = refused(Driver::get().err())
            && refused(Device::get(0).err())
            && refused(device.enter().err())
            && fake::count("cuCtxPushCurrent_v2") == calls;
        // SAFETY: ends this process, whose threads are gone.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child used the driver");
    device.enter().unwrap();
}

/// The fake driver: the processor cannot read device memory, so the other tests would notice such a
/// read.
#[test]
fn the_processor_cannot_touch_device_memory() {
    use std::os::unix::process::ExitStatusExt;
    let (status, text) = outcome("touch", fake::folder(), &[]);
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}: {text}");
}

fn processor_touches_device_memory() {
    use dipc::device::cuda::{DeviceMemory, Purpose};
    let device = Device::get(0).unwrap();
    let memory = DeviceMemory::new(&device, 4096, Purpose::Own).unwrap();
    let place = std::ptr::with_exposed_provenance::<u8>(usize::try_from(memory.address()).unwrap());
    // SAFETY: none: this must fault.
    println!("{}", unsafe { place.read_volatile() });
}
