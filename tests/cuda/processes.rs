//! Memory and events shared with another process, and their fate after the death of either process.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dipc::device::cuda::export::{Allocation, ExportHandle};
use dipc::device::cuda::import::ImportedMemory;
use dipc::device::cuda::{Device, DeviceMemory, Event, Purpose, Stream, later};
use dipc::error::Status;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::{Case, NEEDS_THE_FAKE, child_of, fake, run};

pub const CASES: &[Case] = &[
    ("export", exports_reach_another_process),
    ("importer", importer),
    ("hostile", handles_are_checked),
    ("orphan", exporter_dies),
    ("exporter", exporter),
    ("events", events_order_processes),
    ("recorder", recorder),
];

/// Names of the messages between the two processes.
const HANDLE: &str = "DIPC_TEST_CUDA_HANDLE";
const LENGTH: &str = "DIPC_TEST_CUDA_LENGTH";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> [u8; 64] {
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

/// The other process. The drop kills it.
pub struct Other(pub Child);

impl Other {
    pub fn new(case: &str, stdin: Stdio, variables: &[(&str, String)]) -> Self {
        let folder = std::env::var("LD_LIBRARY_PATH").unwrap();
        let child = child_of(case, folder.as_ref())
            .envs(
                variables
                    .iter()
                    .map(|(name, value)| (*name, value.as_str())),
            )
            .stdin(stdin)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The rest of the next line that begins with `start`.
    pub fn says(&mut self, start: &str) -> String {
        let mut reader = BufReader::new(self.0.stdout.as_mut().unwrap());
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap() == 0 {
                pass_on(self.0.wait().unwrap());
                panic!("it said nothing of {start}");
            }
            // The test harness may have begun the line.
            if let Some((_, rest)) = line.split_once(start) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn succeeds(&mut self) {
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let status = self.0.wait().unwrap();
        pass_on(status);
        assert!(status.success(), "{status}: {text}");
    }
}

/// If the other process needs the fake driver, this process ends with the same status.
fn pass_on(status: ExitStatus) {
    if status.code() == Some(NEEDS_THE_FAKE) {
        std::process::exit(NEEDS_THE_FAKE);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The size of an allocation, and its handle.
type Exported = (usize, ExportHandle);

const TEXT: &[u8] = b"lent between processes, without a copy";

/// Memory for the other process, with the size of its allocation and the handle of that.
fn lend(purpose: Purpose) -> (Arc<Device>, DeviceMemory, Exported) {
    let device = Device::get(0).unwrap();
    let memory = DeviceMemory::new(&device, 10_000, purpose).unwrap();
    fake::write(memory.address() + 100, TEXT);
    // The address lies inside an allocation; the export covers the whole allocation.
    let allocation = Allocation::of(&device, memory.address() + 100, TEXT.len()).unwrap();
    let allocation = allocation.unwrap();
    assert_eq!(allocation.base, memory.address());
    assert!(allocation.size >= 10_000);
    let exported = (allocation.size, allocation.export().unwrap().unwrap());
    (device, memory, exported)
}

fn import((size, handle): Exported, killed: bool) -> Other {
    let mut variables = vec![(LENGTH, size.to_string())];
    if killed {
        variables.push(("DIPC_TEST_CUDA_KILLED", "1".to_owned()));
    }
    match handle {
        ExportHandle::Fd(fd) => Other::new("importer", Stdio::from(fd), &variables),
        ExportHandle::Legacy(handle) => {
            variables.push((HANDLE, hex(&handle)));
            Other::new("importer", Stdio::null(), &variables)
        }
    }
}

#[test]
fn exported_memory_is_read_by_another_process() {
    run("export", &[]);
}

fn exports_reach_another_process() {
    for (purpose, legacy) in [(Purpose::Lend, false), (Purpose::Own, true)] {
        let (device, memory, exported) = lend(purpose);
        assert_eq!(matches!(exported.1, ExportHandle::Legacy(_)), legacy);
        import(exported, false).succeeds();
        // The other wrote there: it is the same memory.
        assert_eq!(fake::read(memory.address(), 5), b"taken");

        // A process that is killed while it has the memory leaves nothing here.
        let (_, again, exported) = lend(purpose);
        let mut other = import(exported, true);
        other.says("mapped");
        if legacy {
            // Memory of a legacy handle must not be freed while it is open.
            other.kill();
            drop(again);
        } else {
            drop(again);
            other.kill();
        }
        drop(memory);
        device.trim().unwrap();
        let live = fake::Live::now();
        assert_eq!(
            (live.allocations, live.mappings, live.opened, live.used),
            (0, 0, 0, [0, 0])
        );
    }
    // Memory that is neither exportable nor legacy must be copied.
    let device = Device::get(0).unwrap();
    let mut managed = 0;
    {
        let _current = device.enter().unwrap();
        assert_eq!(fake::memory_managed(&raw mut managed, 1000, 1), 0);
    }
    let managed = Allocation::of(&device, managed, 1000).unwrap();
    assert!(managed.is_none_or(|allocation| allocation.export().unwrap().is_none()));
    let heap = [0_u8; 16];
    let error = Allocation::of(&device, heap.as_ptr() as u64, 16).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
}

fn importer() {
    let device = Device::get(0).unwrap();
    let before = fake::Live::now();
    let len: usize = std::env::var(LENGTH).unwrap().parse().unwrap();
    let mapping = match std::env::var(HANDLE) {
        Ok(handle) => {
            let handle = unhex(&handle);
            let mapping = ImportedMemory::open(&device, &handle, len).unwrap();
            // The driver opens a handle once for each process: both users share the mapping.
            let same = ImportedMemory::open(&device, &handle, len).unwrap();
            assert!(Arc::ptr_eq(&mapping, &same));
            let error = ImportedMemory::open(&device, &handle, len + 1).unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            drop(mapping);
            assert_eq!(fake::Live::now().opened, 1);
            // Many threads at once: opened once, closed with the last.
            drop(same);
            assert_eq!(fake::Live::now().opened, 0);
            let opened: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| ImportedMemory::open(&device, &handle, len).unwrap()))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(fake::Live::now().opened, 1);
            std::thread::scope(|scope| {
                for mapping in opened {
                    scope.spawn(|| drop(mapping));
                    scope.spawn(|| drop(ImportedMemory::open(&device, &handle, len).unwrap()));
                }
            });
            ImportedMemory::open(&device, &handle, len).unwrap()
        }
        Err(_) => {
            let fd = OwnedFd::from(std::fs::File::open("/proc/self/fd/0").unwrap());
            drop(fd);
            let fd = rustix::io::dup(std::io::stdin()).unwrap();
            let error = ImportedMemory::map(&device, &fd, len + (2 << 20)).unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            ImportedMemory::map(&device, &fd, len).unwrap()
        }
    };
    println!("mapped");
    std::io::stdout().flush().unwrap();
    if std::env::var_os("DIPC_TEST_CUDA_KILLED").is_some() {
        loop {
            std::thread::park();
        }
    }
    let place = mapping.slice(100, TEXT.len()).unwrap();
    assert_eq!(fake::read(place, TEXT.len()), TEXT);
    assert_eq!(mapping.slice(0, mapping.len()), Some(mapping.address()));
    assert_eq!(mapping.slice(1, mapping.len()), None);
    assert_eq!(mapping.slice(u64::MAX, 1), None);
    fake::write(mapping.address(), b"taken");
    drop(mapping);
    assert_eq!(fake::Live::now(), before);
}

#[test]
fn handles_of_a_hostile_peer_are_refused() {
    run("hostile", &[]);
}

fn handles_are_checked() {
    let device = Device::get(0).unwrap();
    let before = fake::Live::now();
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    let (pipe, _write) = std::io::pipe().unwrap();
    for fd in [file, pipe.into()] {
        let error = ImportedMemory::map(&device, &fd, 2 << 20).unwrap_err();
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("no memory of GPU 0"), "{error}");
    }
    for handle in [[0; 64], [0xFF; 64]] {
        let error = ImportedMemory::open(&device, &handle, 1).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert_eq!(
            Event::open(&device, &handle).unwrap_err().status(),
            Status::InvalidData
        );
        // It does not count as open afterwards.
        ImportedMemory::open(&device, &handle, 1).unwrap_err();
    }
    // A length that is not the allocation's.
    let memory = DeviceMemory::new(&device, 1, Purpose::Lend).unwrap();
    let fd = memory.export().unwrap();
    for len in [0, 1, 1 << 30, usize::MAX] {
        let error = ImportedMemory::map(&device, &fd, len).unwrap_err();
        let status = error.status();
        assert!(
            matches!(status, Status::Protocol | Status::OutOfMemory),
            "{error}"
        );
    }
    drop(memory);
    assert_eq!(fake::Live::now(), before);
}

#[test]
fn memory_outlives_its_exporter_where_it_can() {
    run("orphan", &[]);
}

fn exporter_dies() {
    let device = Device::get(0).unwrap();
    let before = fake::Live::now();
    for purpose in ["lend", "own"] {
        let mut other = Other::new("exporter", Stdio::piped(), &[(HANDLE, purpose.to_owned())]);
        let said = other.says("exported ");
        let (len, handle) = said.split_once(' ').unwrap();
        let len: usize = len.parse().unwrap();
        if purpose == "lend" {
            // The same open file, as through SCM_RIGHTS: a driver's descriptor cannot be reopened.
            let pid = Pid::from_child(&other.0);
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            let number = handle.parse().unwrap();
            let fd = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).unwrap();
            let mapping = ImportedMemory::map(&device, &fd, len).unwrap();
            other.kill();
            let place = mapping.slice(100, TEXT.len()).unwrap();
            assert_eq!(fake::read(place, TEXT.len()), TEXT);
        } else {
            let handle = unhex(handle);
            let mapping = ImportedMemory::open(&device, &handle, len).unwrap();
            other.kill();
            drop(mapping);
            // Until it is closed it would be shared by this process.
            assert!(later::wait(Duration::from_secs(10)));
            let error = ImportedMemory::open(&device, &handle, len).unwrap_err();
            assert_eq!(error.status(), Status::InvalidData, "{error}");
        }
        assert_eq!(fake::Live::now(), before);
    }
}

fn exporter() {
    let purpose = match std::env::var(HANDLE).unwrap().as_str() {
        "lend" => Purpose::Lend,
        _ => Purpose::Own,
    };
    let (_device, _memory, (size, handle)) = lend(purpose);
    let (handle, _fd) = match handle {
        ExportHandle::Legacy(handle) => (hex(&handle), None),
        ExportHandle::Fd(fd) => (fd.as_raw_fd().to_string(), Some(fd)),
    };
    println!("exported {size} {handle}");
    std::io::stdout().flush().unwrap();
    // Until it is killed.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn events_order_work_across_processes() {
    run("events", &[]);
}

fn events_order_processes() {
    let device = Device::get(0).unwrap();
    let before = fake::Live::now();
    for killed in [false, true] {
        let mut other = Other::new("recorder", Stdio::piped(), &[]);
        let handle = unhex(&other.says("event "));
        let event = Event::open(&device, &handle).unwrap();
        let stream = Stream::new(&device).unwrap();
        stream.wait(&event).unwrap();
        assert!(!event.is_ready().unwrap());
        assert!(!stream.is_idle().unwrap());
        if killed {
            // Its recorded events count as complete: nobody waits for ever.
            other.kill();
        } else {
            other.0.stdin.take().unwrap().write_all(b"go").unwrap();
            other.succeeds();
        }
        stream.synchronize().unwrap();
        assert!(event.is_ready().unwrap());
    }
    assert_eq!(fake::Live::now(), before);
}

fn recorder() {
    let device = Device::get(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    fake::hold(stream.raw().cast(), 1);
    let event = Event::for_processes(&device).unwrap();
    event.record(&stream).unwrap();
    // An event for this process only has no handle.
    assert!(Event::new(&device).unwrap().handle().is_err());
    println!("event {}", hex(&event.handle().unwrap()));
    std::io::stdout().flush().unwrap();
    assert_eq!(std::io::stdin().read(&mut [0; 2]).unwrap(), 2);
    fake::hold(stream.raw().cast(), 0);
    event.synchronize().unwrap();
}
