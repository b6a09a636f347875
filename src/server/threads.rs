//! Threads for streams. One serves stream after stream, since to wake a thread takes less time than to
//! make one; it ends when it has had nothing to do for a while.
//!
//! Meanwhile it reads the connection of its last stream itself: the next request there wakes the thread
//! that is going to serve it, and not first the I/O thread and then that one. To wake a second thread
//! takes longer than all the rest where its core sleeps.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use smallvec::SmallVec;

use crate::driver::clock;
use crate::driver::served::ServedLink;
use crate::proto::Timestamp;
use crate::transport::Readiness;

/// How long a thread waits for its next stream.
const IDLE: Duration = Duration::from_secs(2);
/// Most threads that wait. Others end with their stream.
const MOST_IDLE: usize = 16;

/// One stream, from which the thread comes back with the connection that it was on.
type Work = Box<dyn FnOnce() -> Option<Arc<ServedLink>> + Send>;

thread_local! {
    /// While a waiting thread reads the request that has woken it: the stream that it serves next.
    static OWN: RefCell<Option<Option<Work>>> = const { RefCell::new(None) };
}

/// What a waiting thread sleeps on, beside a connection.
#[derive(Clone)]
struct Bell {
    reader: Arc<OwnedFd>,
    writer: Arc<OwnedFd>,
}

impl Bell {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            reader: Arc::new(reader),
            writer: Arc::new(writer),
        })
    }

    fn ring(&self) {
        // A full pipe has rung already.
        let _ = rustix::io::write(&self.writer, &[0]);
    }

    /// Sleeps until it has rung, until `link` has something to read, or until the time.
    fn wait(&self, until: Timestamp, link: Option<&Readiness>) -> Woken {
        let time = Timespec::try_from(clock::until(until)).ok();
        let mut polled = SmallVec::<[PollFd<'_>; 2]>::new();
        polled.push(PollFd::new(&self.reader, PollFlags::IN));
        if let Some(link) = link {
            polled.push(PollFd::new(&link.fd, PollFlags::IN));
        }
        match poll(&mut polled, time.as_ref()) {
            Ok(0) => return Woken::Late,
            // Somebody's signal: as if it had rung.
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Woken::Late,
        }
        let happened = |at: usize| polled.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let (rung, asked) = (happened(0), happened(1));
        if rung {
            let _ = rustix::io::read(&self.reader, &mut [0; 8]);
        }
        if asked { Woken::Asked } else { Woken::Rung }
    }
}

/// What has woken a thread that waits.
#[derive(PartialEq, Eq)]
enum Woken {
    /// The bell, maybe for a stream that the thread has served long since.
    Rung,
    /// The connection, and maybe the bell too.
    Asked,
    /// The time is over, or cannot be waited for.
    Late,
}

/// The threads of one server. Dropping it ends those that wait; those that work end after it.
#[derive(Default)]
pub(super) struct Threads {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Those that wait, by number; the last one began to wait last.
    idle: Vec<Idle>,
    next: u64,
    closed: bool,
}

/// A thread that waits.
struct Idle {
    number: u64,
    sender: Sender<Work>,
    bell: Bell,
}

impl Threads {
    /// Runs `work` on a thread of its own, which may be this one, later. It gives the connection whose
    /// next request the thread may wait for.
    ///
    /// # Errors
    ///
    /// Of the system, which has no thread left; `work` was dropped.
    pub(super) fn run(
        &self,
        work: impl FnOnce() -> Option<Arc<ServedLink>> + Send + 'static,
    ) -> io::Result<()> {
        let work: Work = Box::new(work);
        let Some(work) = keep_own(work) else {
            return Ok(());
        };
        let waiting = self.shared.lock().idle.pop();
        let work = match waiting {
            // Whoever was taken off the list waits until it is told: this never fails.
            Some(waiting) => match waiting.sender.send(work) {
                Ok(()) => {
                    waiting.bell.ring();
                    return Ok(());
                }
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
        for waiting in idle {
            drop(waiting.sender);
            waiting.bell.ring();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

/// Keeps `work` for this thread, if it is one that has read a request for itself.
fn keep_own(work: Work) -> Option<Work> {
    OWN.with_borrow_mut(|own| match own {
        Some(own @ None) => {
            *own = Some(work);
            None
        }
        _ => Some(work),
    })
}

/// Works until nothing comes. A panic ends the thread as it would one of its own.
fn serve(shared: &Mutex<Shared>, first: Work) {
    let mut work = first;
    let mut bell = None;
    loop {
        let link = work();
        // Without a descriptor to sleep on, the next stream has a thread made.
        let bell = match &bell {
            Some(bell) => bell,
            None => match Bell::new() {
                Ok(made) => bell.insert(made),
                Err(_) => return link.iter().for_each(|link| link.hand_back()),
            },
        };
        match wait(shared, bell, link.and_then(Parked::new)) {
            Some(next) => work = next,
            None => return,
        }
    }
}

/// A connection that this thread waits for, and the I/O thread again once this is dropped.
struct Parked(Arc<ServedLink>);

impl Parked {
    /// `None` where the I/O thread has to go on.
    fn new(link: Arc<ServedLink>) -> Option<Self> {
        link.park().then(|| Self(link))
    }

    /// Reads what has come. Returns the stream that was asked for, if this thread is to serve it.
    fn read(&self) -> Option<Work> {
        OWN.set(Some(None));
        self.0.read_parked();
        OWN.take().flatten()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What a thread does next; `None` once nothing has come for a while, or nothing will.
fn wait(shared: &Mutex<Shared>, bell: &Bell, mut parked: Option<Parked>) -> Option<Work> {
    let until = clock::after(IDLE);
    loop {
        let (sender, receiver) = mpsc::channel();
        let number = {
            let mut shared = shared.lock();
            if shared.closed || shared.idle.len() >= MOST_IDLE {
                return None;
            }
            let number = shared.next;
            shared.next += 1;
            shared.idle.push(Idle {
                number,
                sender,
                bell: bell.clone(),
            });
            number
        };
        let readiness = parked.as_ref().map(|parked| parked.0.readiness());
        let woken = bell.wait(until, readiness);
        let taken = {
            let idle = &mut shared.lock().idle;
            let place = idle.iter().position(|waiting| waiting.number == number);
            place.map(|place| idle.remove(place)).is_none()
        };
        if taken {
            // Its work is on the way, or the server has ended.
            return receiver.recv().ok();
        }
        let link = match woken {
            Woken::Late => return None,
            Woken::Rung => continue,
            Woken::Asked => parked.as_ref()?,
        };
        let own = link.read();
        if own.is_some() {
            return own;
        }
        // Not where more is under way there than one request after the other.
        parked = parked.take().filter(|parked| parked.0.park());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_on(threads: &Threads) -> mpsc::Receiver<thread::ThreadId> {
        let (sender, seen) = mpsc::channel();
        let work = move || {
            sender.send(thread::current().id()).unwrap();
            None
        };
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
        threads
            .run(move || told.recv().map(|()| None).unwrap())
            .unwrap();
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        go.send(()).unwrap();
        wait_idle(&threads, 2);
    }

    /// `IDLE`: a bell that has rung for a stream which the thread has served long since ends nothing.
    #[test]
    fn a_thread_that_is_woken_for_nothing_waits_on() {
        // On a busy machine its time may be over before it is asked: then once more.
        for _ in 0..100 {
            let threads = Threads::default();
            let start = clock::now();
            let is_late = || clock::since(start) > IDLE / 2;
            let first = run_on(&threads).recv().unwrap();
            let number = || threads.shared.lock().idle.first().map(|idle| idle.number);
            wait_idle(&threads, 1);
            for _ in 0..3 {
                let before = number();
                if let Some(idle) = threads.shared.lock().idle.first() {
                    idle.bell.ring();
                }
                while !is_late() && number().is_none_or(|now| Some(now) == before) {
                    thread::yield_now();
                }
            }
            let second = run_on(&threads).recv().unwrap();
            if !is_late() {
                assert_eq!(second, first);
                return;
            }
        }
        panic!("the machine is too busy for this test");
    }

    /// design.md, "Failure is per stream": work that panics costs its own thread and nobody else's.
    #[test]
    fn a_panic_loses_no_thread_but_its_own() {
        let threads = Threads::default();
        let first = run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        threads
            .run(move || {
                let _held = held;
                panic!("this work panics on purpose")
            })
            .unwrap();
        while Arc::strong_count(&dropped) > 1 {
            thread::yield_now();
        }
        assert_eq!(threads.shared.lock().idle.len(), 0);
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        wait_idle(&threads, 1);
    }

    /// Nothing of a server stays behind: threads that wait end with it, busy ones with their work.
    #[test]
    fn threads_end_with_their_server() {
        let threads = Threads::default();
        run_on(&threads).recv().unwrap();
        let (go, told) = mpsc::channel::<()>();
        wait_idle(&threads, 1);
        threads
            .run(move || told.recv().map(|()| None).unwrap())
            .unwrap();
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
