//! Reports of the kernel that no process has a file in memory any more.
//!
//! Such a file has no name in a folder. So the end of its last descriptor or mapping, in any
//! process, deletes the file, and inotify reports IN_DELETE_SELF. No thread waits for the report:
//! code that needs memory calls [`collect`] first.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::device::memfd::FileCharge;
use crate::fork::PerProcess;

static WATCHES: PerProcess<Watches> = PerProcess::new(Watches::default);

#[derive(Default)]
struct Watches {
    inotify: OnceCell<OwnedFd>,
    /// The charges of files that this process has closed, by the number of the watch.
    kept: Mutex<HashMap<i32, FileCharge>>,
}

/// Watches a file and returns the number of the watch.
pub(super) fn add(file: &OwnedFd) -> Result<i32, Errno> {
    let inotify = WATCHES.get().inotify.get_or_try_init(start)?;
    watch(inotify, file)
}

/// An inotify instance, tested with a probe: some systems do not report files in memory.
fn start() -> Result<OwnedFd, Errno> {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let file = memfd_create("dipc-probe", MemfdFlags::CLOEXEC)?;
    let number = watch(&inotify, &file)?;
    let mut kept = HashMap::from([(number, Box::new(()) as FileCharge)]);
    if !read(&inotify, &mut kept).is_empty() {
        return Err(Errno::OPNOTSUPP);
    }
    drop(file);
    match read(&inotify, &mut kept).len() {
        1 => Ok(inotify),
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn watch(inotify: &OwnedFd, file: &OwnedFd) -> Result<i32, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify::add_watch(inotify, path, WatchFlags::DELETE_SELF)
}

/// Keeps `charge` until no process has the watched file. Call it while this process has the file.
pub(super) fn keep(number: i32, charge: FileCharge) {
    WATCHES.get().kept.lock().insert(number, charge);
}

/// Drops the charges of files that no process has any more.
pub fn collect() {
    let watches = WATCHES.get();
    let Some(inotify) = watches.inotify.get() else {
        return;
    };
    let mut kept = watches.kept.lock();
    let dropped = read(inotify, &mut kept);
    drop(kept);
    // Without the lock: the drops may take other locks.
    drop(dropped);
}

fn read(inotify: &OwnedFd, kept: &mut HashMap<i32, FileCharge>) -> Vec<FileCharge> {
    let mut dropped = Vec::new();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                let live = live(inotify);
                let lost = kept.extract_if(|number, _| {
                    live.as_ref().is_some_and(|live| !live.contains(number))
                });
                dropped.extend(lost.map(|(_, charge)| charge));
            }
            // The watch ends with its file.
            Ok(event) => dropped.extend(kept.remove(&event.wd())),
            Err(Errno::INTR) => {}
            Err(_) => return dropped,
        }
    }
}

/// The numbers of the watches in the kernel. After an overflow of the event queue they tell which
/// files are gone.
fn live(inotify: &OwnedFd) -> Option<HashSet<i32>> {
    let path = format!("/proc/self/fdinfo/{}", inotify.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let numbers = text.lines().filter_map(|line| {
        let (number, _) = line.strip_prefix("inotify wd:")?.split_once(' ')?;
        i32::from_str_radix(number, 16).ok()
    });
    Some(numbers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel lists the watches of open files only.
    #[test]
    fn the_kernel_lists_what_it_watches() {
        let inotify = start().unwrap();
        let files: Vec<_> = (0..20)
            .map(|_| memfd_create("dipc-test", MemfdFlags::CLOEXEC).unwrap())
            .collect();
        let numbers: HashSet<_> = files
            .iter()
            .map(|file| watch(&inotify, file).unwrap())
            .collect();
        assert_eq!(live(&inotify).unwrap(), numbers);
        drop(files);
        assert!(live(&inotify).unwrap().is_empty());
    }
}
