//! Threads on which requests wait for a connection, for hosts that do not wait themselves.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Most such threads of a client. Further requests wait for one of them.
pub(super) const MOST_THREADS: usize = 8;

/// How long a thread without a job waits for one: a shuffle asks for hundreds of streams, one soon
/// after the other.
const LINGER: Duration = Duration::from_secs(1);

/// A request, and what becomes of its answer.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The requests of one client that wait for a thread. The drop ends the threads without a job.
#[derive(Default)]
pub(super) struct AskingThreads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Of threads without a job.
    told: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Each takes jobs until there are none for a while.
    threads: usize,
    /// Of these, those without a job.
    idle: usize,
    /// No thread waits for jobs any more.
    is_over: bool,
}

impl AskingThreads {
    /// Has a thread run the job that `job` makes.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when there is no thread. Then `job` was not called.
    pub(super) fn run(&self, job: impl FnOnce() -> Job) -> Result<()> {
        let shared = &self.0;
        let mut waiting = shared.waiting.lock();
        // An idle thread may be on its way to an earlier job.
        if waiting.idle <= waiting.jobs.len() && waiting.threads < MOST_THREADS {
            let shared = Arc::clone(shared);
            let thread = thread::Builder::new().name("dipc-ask".into());
            match thread.spawn(move || shared.work()) {
                Ok(_) => waiting.threads += 1,
                Err(_) if waiting.threads > 0 => {}
                Err(error) => {
                    let doing = "cannot start a thread that asks a server";
                    return Err(Error::io(doing, &error));
                }
            }
        }
        waiting.jobs.push_back(job());
        shared.told.notify_one();
        Ok(())
    }
}

impl Drop for AskingThreads {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever.
        if let Some(mut waiting) = self.0.waiting.try_lock() {
            waiting.is_over = true;
            self.0.told.notify_all();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            // Jobs catch their own panics; the thread goes on in any case.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// The next job. `None`: the thread ends.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            let job = waiting.jobs.pop_front();
            if job.is_some() {
                return job;
            }
            let is_late = !waiting.is_over && {
                waiting.idle += 1;
                let waited = self.told.wait_for(&mut waiting, LINGER);
                waiting.idle -= 1;
                waited.timed_out() && waiting.jobs.is_empty()
            };
            if is_late || waiting.is_over && waiting.jobs.is_empty() {
                waiting.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// Promise of `LINGER`: jobs that come one after the other share threads.
    #[test]
    fn threads_take_several_jobs() {
        let threads = AskingThreads::default();
        let (done, ids) = mpsc::channel();
        let mut seen = HashSet::new();
        for _ in 0..50 {
            let done = done.clone();
            let job: Job = Box::new(move || done.send(thread::current().id()).unwrap());
            threads.run(|| job).unwrap();
            seen.insert(ids.recv().unwrap());
        }
        assert!(seen.len() <= MOST_THREADS, "{} threads", seen.len());
    }

    /// Promise of `AskingThreads`: a burst of jobs takes several threads, and all end with the
    /// value.
    #[test]
    fn threads_end_with_the_client() {
        let threads = AskingThreads::default();
        let (done, ends) = mpsc::channel();
        let gate = Arc::new(std::sync::Barrier::new(MOST_THREADS));
        for _ in 0..MOST_THREADS {
            let (done, gate) = (done.clone(), Arc::clone(&gate));
            let job: Job = Box::new(move || {
                gate.wait();
                done.send(()).unwrap();
            });
            threads.run(|| job).unwrap();
        }
        (0..MOST_THREADS).for_each(|_| ends.recv().unwrap());
        let shared = Arc::downgrade(&threads.0);
        let begun = Instant::now();
        drop(threads);
        while shared.strong_count() > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "threads are left"
            );
            thread::yield_now();
        }
    }
}
