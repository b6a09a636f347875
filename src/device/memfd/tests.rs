use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;

const LEN: u64 = 1 << 16;

struct DropCounter(Arc<AtomicU32>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn charged() -> (Memfd, Arc<AtomicU32>) {
    let file = Memfd::create("dipc-test", LEN).unwrap();
    let drops = Arc::default();
    file.charge(Box::new(DropCounter(Arc::clone(&drops))));
    (file, drops)
}

fn is_back(drops: &AtomicU32) -> bool {
    collect();
    drops.load(Ordering::SeqCst) == 1
}

/// A descriptor, an `O_PATH` descriptor and a mapping each keep the file and its charge.
#[test]
fn a_charge_is_back_when_nobody_has_the_file() {
    let (file, drops) = charged();
    drop(file);
    assert!(is_back(&drops), "it was given to nobody");

    let (file, drops) = charged();
    let peers = file.give(None).try_clone().unwrap();
    drop(file);
    assert!(!is_back(&drops));
    let path = format!("/proc/self/fd/{}", peers.as_raw_fd());
    let path_only = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
    drop(peers);
    assert!(!is_back(&drops));
    let path = format!("/proc/self/fd/{}", path_only.as_raw_fd());
    let reopened = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: without an address hint the kernel picks an unmapped address.
    let mapped =
        unsafe { mmap(null, 4096, ProtFlags::READ, MapFlags::SHARED, &reopened, 0) }.unwrap();
    drop((path_only, reopened));
    assert!(!is_back(&drops));
    // SAFETY: the mapping was made above, and nothing points to it.
    unsafe { munmap(mapped, 4096) }.unwrap();
    // A process that another test is about to start has copies for a moment.
    while !is_back(&drops) {
        std::thread::yield_now();
    }
}

/// Another process that has the file keeps the charge too.
#[test]
fn a_charge_waits_for_every_process() {
    let (file, drops) = charged();
    let peers = file.give(None).try_clone().unwrap();
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::from(peers))
        .spawn()
        .unwrap();
    drop(file);
    assert!(!is_back(&drops));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_back(&drops));
}

/// Without a watch, the charge waits for the ends of all processes that got the file.
#[test]
fn without_a_watch_a_charge_waits_for_processes() {
    let (file, drops) = charged();
    file.state.lock().given = GivenTo::Processes(Vec::new());
    let mut children: Vec<_> = (0..2)
        .map(|_| {
            let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let pid = Pid::from_child(&child);
            let process = Process {
                pid: pid.as_raw_pid(),
                end: Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap()),
            };
            file.give(Some(&process));
            file.give(Some(&process));
            child
        })
        .collect();
    drop(file);
    for child in &mut children {
        assert!(!is_back(&drops));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let start = std::time::Instant::now();
    while !is_back(&drops) {
        assert!(start.elapsed() < std::time::Duration::from_secs(60));
        std::thread::yield_now();
    }
}
