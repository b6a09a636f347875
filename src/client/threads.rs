//! Threads on which requests wait for a connection, for hosts that do not wait themselves.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Most such threads of a client. Further requests wait for one of them.
pub(super) const MOST_THREADS: usize = 8;

/// A request, and what becomes of its answer.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The requests of one client that wait for a thread.
#[derive(Default)]
pub(super) struct AskingThreads {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Each takes jobs until there are none.
    threads: usize,
}

impl AskingThreads {
    /// Has a thread run the job that `job` makes.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when there is no thread. Then `job` was not called.
    pub(super) fn run(self: &Arc<Self>, job: impl FnOnce() -> Job) -> Result<()> {
        let mut waiting = self.waiting.lock();
        if waiting.threads < MOST_THREADS {
            let this = Arc::clone(self);
            let thread = thread::Builder::new().name("dipc-ask".into());
            match thread.spawn(move || this.work()) {
                Ok(_) => waiting.threads += 1,
                Err(_) if waiting.threads > 0 => {}
                Err(error) => {
                    let doing = "cannot start a thread that asks a server";
                    return Err(Error::io(doing, &error));
                }
            }
        }
        waiting.jobs.push_back(job());
        Ok(())
    }

    fn work(&self) {
        loop {
            let job = {
                let mut waiting = self.waiting.lock();
                let Some(next) = waiting.jobs.pop_front() else {
                    waiting.threads -= 1;
                    return;
                };
                next
            };
            // Jobs catch their own panics; the thread goes on in any case.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}
