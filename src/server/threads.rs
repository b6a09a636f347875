//! Threads for streams. One serves stream after stream, since to wake a thread takes less time than to
//! make one; it ends when it has had nothing to do for a while.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a thread waits for its next stream.
const IDLE: Duration = Duration::from_secs(2);
/// Most threads that wait. Others end with their stream.
const MOST_IDLE: usize = 16;

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one server. Dropping it ends those that wait; those that work end after it.
#[derive(Default)]
pub(super) struct Threads {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Those that wait, by number; the last one began to wait last.
    idle: Vec<(u64, Sender<Work>)>,
    next: u64,
    closed: bool,
}

impl Threads {
    /// Runs `work` on a thread of its own.
    ///
    /// # Errors
    ///
    /// Of the system, which has no thread left; `work` was dropped.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let waiting = self.shared.lock().idle.pop();
        let work: Work = Box::new(work);
        let work = match waiting {
            // Whoever was taken off the list waits until it is told: this never fails.
            Some((_, waiting)) => match waiting.send(work) {
                Ok(()) => return Ok(()),
                Err(unsent) => unsent.0,
            },
            None => work,
        };
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("dipc-stream".into())
            .spawn(move || serve(&shared, work))
            .map(drop)
    }

    /// Ends the threads that wait, and from now on each one with its stream.
    pub(super) fn close(&self) {
        let idle = {
            let mut shared = self.shared.lock();
            shared.closed = true;
            std::mem::take(&mut shared.idle)
        };
        drop(idle);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

/// Works until nothing comes. A panic ends the thread as it would one of its own.
fn serve(shared: &Mutex<Shared>, first: Work) {
    let mut work = first;
    loop {
        work();
        let (sender, receiver) = mpsc::channel();
        let number = {
            let mut shared = shared.lock();
            if shared.closed || shared.idle.len() >= MOST_IDLE {
                return;
            }
            let number = shared.next;
            shared.next += 1;
            shared.idle.push((number, sender));
            number
        };
        work = match receiver.recv_timeout(IDLE) {
            Ok(next) => next,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let idle = &mut shared.lock().idle;
                if let Some(place) = idle.iter().position(|(other, _)| *other == number) {
                    idle.remove(place);
                    return;
                }
                // Taken off the list a moment ago: its work is on the way.
                match receiver.recv() {
                    Ok(next) => next,
                    Err(_) => return,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_on(threads: &Threads) -> mpsc::Receiver<thread::ThreadId> {
        let (sender, seen) = mpsc::channel();
        let work = move || sender.send(thread::current().id()).unwrap();
        threads.run(work).unwrap();
        seen
    }

    fn wait_idle(threads: &Threads, count: usize) {
        while threads.shared.lock().idle.len() != count {
            thread::yield_now();
        }
    }

    /// design.md, "Threads": one thread for each active stream, and the same one for the next.
    #[test]
    fn a_thread_serves_stream_after_stream() {
        let threads = Threads::default();
        let first = run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        assert_eq!(run_on(&threads).recv().unwrap(), first);
        // While it works, another stream gets another thread.
        wait_idle(&threads, 1);
        let (go, told) = mpsc::channel::<()>();
        threads.run(move || told.recv().unwrap()).unwrap();
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        go.send(()).unwrap();
        wait_idle(&threads, 2);
    }

    /// Nothing of a server stays behind: threads that wait end with it, busy ones with their work.
    #[test]
    fn threads_end_with_their_server() {
        let threads = Threads::default();
        run_on(&threads).recv().unwrap();
        let (go, told) = mpsc::channel::<()>();
        wait_idle(&threads, 1);
        threads.run(move || told.recv().unwrap()).unwrap();
        run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        let shared = Arc::downgrade(&threads.shared);
        drop(threads);
        go.send(()).unwrap();
        // Each thread holds what they share.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
