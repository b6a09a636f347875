//! Files in memory (memfd) that other processes get, and the charges for them.
//!
//! A process that got such a file can keep its pages for any time, and can pass the file on. So the
//! file's [`FileCharge`] is returned when the kernel reports that the last descriptor and the last
//! mapping of all processes are gone ([`watch`]). Without such a report, the charge is returned
//! when all processes that got the file from this process have ended.

mod watch;
mod whole;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Resource, getrlimit};

use crate::device::outlive;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
pub use watch::collect;
pub use whole::ensure_whole;

/// Counts a file against a budget; dropped when no process has the file.
pub type FileCharge = Box<dyn Any + Send + Sync>;

/// A file in memory that this process made.
pub struct Memfd {
    fd: Arc<OwnedFd>,
    generation: Generation,
    state: Mutex<MemfdState>,
}

#[derive(Default)]
struct MemfdState {
    charge: Option<FileCharge>,
    given: GivenTo,
}

/// Who besides this process may have the file.
#[derive(Default)]
enum GivenTo {
    #[default]
    Nobody,
    /// The kernel reports the end of the file by the watch with this number.
    Watched(i32),
    /// There is no watch. These are the processes that got the file.
    Processes(Vec<Process>),
}

/// A process and a descriptor that reports its end.
#[derive(Debug, Clone)]
pub struct Process {
    /// The process number as this process sees it, or 0 if unknown.
    pub pid: i32,
    /// Readable when the process has ended.
    pub end: Arc<OwnedFd>,
}

impl Process {
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.end, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
    }
}

impl std::fmt::Debug for Memfd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Memfd").field(&self.fd).finish()
    }
}

/// The most bytes of a file of this process.
pub fn most_bytes() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

impl Memfd {
    /// A sealable file of `len` bytes without allocated pages. `/proc/PID/maps` shows `name`.
    ///
    /// # Errors
    ///
    /// `OutOfResources` above the limit of file sizes, or without a descriptor left; `OutOfMemory`.
    pub fn create(name: &str, len: u64) -> Result<Self> {
        // Above the limit the kernel would send SIGXFSZ, which ends the process.
        let most = most_bytes();
        if len > most {
            return Err(Error::new(
                Status::OutOfResources,
                format!(
                    "{len} bytes are more than the {most} that a file of this process may have; \
                     raise that limit (ulimit -f)"
                ),
            ));
        }
        let failed = |errno| Error::os("cannot make a file in memory", errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, len).map_err(failed)?;
        Ok(Self {
            fd: Arc::new(fd),
            generation: Generation::now(),
            state: Mutex::default(),
        })
    }

    /// This process's descriptor.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Attaches `charge`, which is dropped when no process has the file.
    pub fn charge(&self, charge: FileCharge) {
        self.state.lock().charge = Some(charge);
    }

    /// The descriptor for a peer. `process` is the peer's, if known.
    pub fn give(&self, process: Option<&Process>) -> Arc<OwnedFd> {
        let mut state = self.state.lock();
        if matches!(state.given, GivenTo::Nobody) {
            state.given = match watch::add(&self.fd) {
                Ok(number) => GivenTo::Watched(number),
                Err(errno) => {
                    tracing::debug!(
                        "memory that is lent counts until a peer's process ends: {errno}"
                    );
                    GivenTo::Processes(Vec::new())
                }
            };
        }
        if let GivenTo::Processes(processes) = &mut state.given
            && let Some(process) = process
        {
            processes.retain(|process| !process.has_ended());
            // A process keeps its number until it ends, so an equal number means the same process.
            let known = |known: &Process| process.pid != 0 && known.pid == process.pid;
            if !processes.iter().any(known) {
                processes.push(process.clone());
            }
        }
        Arc::clone(&self.fd)
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut());
        // In a forked child the file still belongs to the parent, and locks may be held for ever.
        if !self.generation.is_same_process() {
            let _left = std::mem::ManuallyDrop::new(state);
            return;
        }
        let Some(charge) = state.charge else {
            return;
        };
        match state.given {
            GivenTo::Nobody => {}
            // Kept before the descriptor closes, because it may be the last one.
            GivenTo::Watched(number) => watch::keep(number, charge),
            GivenTo::Processes(processes) => {
                let charge = Arc::new(charge);
                for process in processes {
                    outlive::keep_until_end(&process.end, Box::new(Arc::clone(&charge)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
