//! Every driver call fails once, with each code: the error names the call, nothing is left behind,
//! and the process goes on.

use std::sync::Arc;

use dipc::device::cuda::export::Allocation;
use dipc::device::cuda::gather::Reads;
use dipc::device::cuda::import::ImportedMemory;
use dipc::device::cuda::shift::Shifts;
use dipc::device::cuda::{
    Access, Device, DeviceMemory, Event, PinnedMemory, Purpose, Registered, Stream, SyncEvent,
};
use dipc::device::region::Region;
use dipc::error::{Result, Status};

use crate::{Case, fake, run};

pub const CASES: &[Case] = &[("injected", every_call_fails), ("first", first_calls_fail)];

/// All uses of a device by the library.
fn scenario() -> Result<()> {
    let device = Device::get(0)?;
    device.memory()?;
    let stream = Arc::new(Stream::new(&device)?);
    let other = Stream::new(&device)?;
    let own = DeviceMemory::new(&device, 1000, Purpose::Own)?;
    let lent = DeviceMemory::new(&device, 1000, Purpose::Lend)?;
    let pinned = PinnedMemory::new(&device, 1000)?;
    let pages = Arc::new(Region::create(8192, "dipc-test")?);
    let work = || -> Result<()> {
        let (base, len) = (pages.base(), pages.len());
        let memory = Arc::clone(&pages) as _;
        // SAFETY: the memory belongs to this scenario, and its stream is held.
        let registered = unsafe { Registered::new(&device, base, len, Access::ReadWrite, memory) }?;
        drop(registered);
        // SAFETY: everything lives until the streams are synchronised, below, whatever fails.
        unsafe {
            stream.fill(own.address(), 3, 1000)?;
            stream.copy(lent.address(), own.address(), 1000)?;
            stream.copy_between((&device, own.address()), (&device, lent.address()), 1000)?;
            stream.copy(pinned.address(), own.address(), 1000)?;
        }
        let event = SyncEvent::record(&stream)?;
        // SAFETY: the event lives.
        unsafe { other.wait_for_producer(event.pointer()) }?;
        other.is_idle()?;
        event.event().is_ready()?;
        event.event().synchronize()?;
        let mut reads = Reads::default();
        let slot = reads.bytes(own.address() + 7, 8);
        let ones = reads.ones(own.address(), 3, 77);
        reads.bytes(own.address(), 500);
        // SAFETY: the memory lives until the result is there.
        let results = unsafe { reads.fetch(&stream) }?.wait()?;
        assert_eq!(results.bytes(slot), [3; 8]);
        assert!(results.number(ones) > 0);
        let mut shifts = Shifts::default();
        shifts.add(own.address(), 3, 77);
        // SAFETY: the memory lives until the stream is done.
        drop(unsafe { shifts.run(&stream) }?);
        Ok(())
    };
    let worked = work();
    // An error of one call does not end the work, so the end is awaited.
    while stream.synchronize().is_err() || other.synchronize().is_err() {}
    worked?;
    let shared = Event::for_processes(&device)?;
    shared.handle()?;
    let exported = Allocation::of(&device, lent.address() + 5, 10)?;
    let exported = exported.unwrap().export()?;
    let legacy = Allocation::of(&device, own.address() + 5, 10)?;
    let legacy = legacy.unwrap().export()?;
    assert!(exported.is_some() && legacy.is_some());
    // A mapping of this process's export stands for a peer's.
    let fd = lent.export()?;
    let mapping = ImportedMemory::map(&device, &fd, lent.len())?;
    assert_ne!(mapping.address(), lent.address());
    drop(mapping);
    drop((own, lent, pinned, pages));
    device.trim()
}

/// Functions that free something. Drops call them, and cannot report an error.
const GIVING_BACK: &[&str] = &[
    "cuCtxPopCurrent_v2",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuMemRelease",
    "cuMemUnmap",
    "cuMemAddressFree",
];

#[test]
fn every_call_may_fail_once() {
    run("injected", &[]);
}

fn every_call_fails() {
    scenario().unwrap();
    let before = fake::Live::now();
    let was = fake::counts();
    scenario().unwrap();
    assert_eq!(
        fake::Live::now(),
        before,
        "the scenario leaves something behind by itself"
    );
    let calls: Vec<(String, i64)> = fake::counts()
        .into_iter()
        .map(|(name, count)| {
            let earlier = was.iter().find(|(known, _)| *known == name);
            let earlier = earlier.map_or(0, |(_, count)| *count);
            (name, count - earlier)
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let total: i64 = calls.iter().map(|(_, count)| count).sum();
    assert!(calls.len() > 25 && total > 100, "{calls:?}");
    let mut failed = 0;
    for (function, count) in &calls {
        for nth in 1..=*count {
            for (code, status) in [
                (999, Status::Io),
                (2, Status::OutOfMemory),
                (700, Status::Io),
            ] {
                fake::fail_call(function, nth, code);
                let outcome = scenario();
                fake::fail_call(function, 0, 0);
                let what = format!("call {nth} of {function} with {code}");
                assert!(fake::current().is_null(), "{what} left a context");
                match outcome {
                    Err(error) => {
                        failed += 1;
                        // A driver error for a descriptor or a handle is mostly the peer's fault.
                        let of_peer = match function.as_str() {
                            "cuMemImportFromShareableHandle" | "cuMemMap" => Status::Protocol,
                            "cuIpcOpenMemHandle" | "cuIpcOpenEventHandle" => Status::InvalidData,
                            _ => status,
                        };
                        let good =
                            error.status() == status || (code == 999 && error.status() == of_peer);
                        assert!(good, "{what}: {:?}: {error}", error.status());
                        assert!(error.text().contains(function.as_str()), "{what}: {error}");
                    }
                    // Failures without an error: the call is repeated after cached memory was
                    // freed, or the failure hits only the wait for the end.
                    Ok(()) => {
                        let again = code == 2
                            && matches!(
                                function.as_str(),
                                "cuMemAlloc_v2"
                                    | "cuMemHostAlloc"
                                    | "cuMemCreate"
                                    | "cuMemAddressReserve"
                                    | "cuMemMap"
                                    | "cuMemSetAccess"
                                    | "cuMemGetAllocationGranularity"
                            );
                        let drops = GIVING_BACK.contains(&function.as_str())
                            || matches!(
                                function.as_str(),
                                "cuCtxPushCurrent_v2"
                                    | "cuCtxGetId"
                                    | "cuStreamSynchronize"
                                    | "cuEventSynchronize"
                            );
                        assert!(again || drops, "{what} was not noticed");
                    }
                }
                let device = Device::get(0).unwrap();
                device.trim().unwrap();
                let live = fake::Live::now();
                assert_eq!(live, before, "{what}: something is left");
            }
        }
    }
    assert!(
        i64::from(failed) > total,
        "{failed} of {total} calls three times"
    );
    scenario().unwrap();
}

#[test]
fn the_first_calls_may_fail_and_are_tried_again() {
    for (function, code, status) in [
        ("cuDriverGetVersion", 999, "Io"),
        ("cuInit", 999, "Io"),
        // Unknown error numbers.
        ("cuInit", 12_345, "Io"),
        ("cuStreamCreate", -7, "Io"),
        ("cuInit", 803, "Unsupported"),
        ("cuDeviceGetCount", 2, "OutOfMemory"),
        ("cuDeviceGet", 999, "Io"),
        ("cuDeviceGetAttribute", 999, "Io"),
        ("cuDevicePrimaryCtxRetain", 2, "OutOfMemory"),
        ("cuDevicePrimaryCtxRetain", 46, "Busy"),
        ("cuModuleLoadData", 222, "Unsupported"),
        ("cuModuleGetFunction", 999, "Io"),
    ] {
        let fail = format!("{function}:1:{code}");
        let told = format!("{status} {function}");
        run(
            "first",
            &[("FAKE_CUDA_FAIL", &fail), ("DIPC_TEST_CUDA_TOLD", &told)],
        );
    }
}

fn first_calls_fail() {
    let told = std::env::var("DIPC_TEST_CUDA_TOLD").unwrap();
    let (status, function) = told.split_once(' ').unwrap();
    let error = scenario().unwrap_err();
    assert_eq!(format!("{:?}", error.status()), status, "{error}");
    assert!(error.text().contains(function), "{error}");
    // The failure leaves no trace.
    scenario().unwrap();
    assert_eq!(fake::Live::now().modules, 1);
}
