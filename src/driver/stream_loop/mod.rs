//! One thread that calls the host for many streams.
//!
//! The thread sleeps in one epoll instance over the descriptors of all its streams. It ends with
//! the last stream, once no more streams can be added.

mod inbox;
mod stream;

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use foldhash::{HashMap, HashMapExt as _};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::error::{Error, Result, Status};
use inbox::{Arrival, Inbox};

pub use inbox::Caller;
pub use stream::{LoopStream, Next, Watcher};

/// The most events that are read at once.
const MOST_EVENTS: usize = 64;
/// The bell's key in the epoll instance. Streams count from 0.
const BELL: u64 = u64::MAX;

/// The outcome of `step`; a panic is an error.
///
/// # Errors
///
/// Those of `step`, and `Panic`.
pub fn caught<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        let text = "a bug in libdipc, please report it: a thread of the library panicked";
        Err(Error::new(Status::Panic, text))
    })
}

/// The thread and its streams. After the drop the thread ends as soon as its last stream is over.
pub struct StreamLoop<S: LoopStream> {
    inbox: Arc<Inbox<S>>,
    /// `None` only while being dropped.
    thread: Option<JoinHandle<()>>,
    next: u64,
}

impl<S: LoopStream> StreamLoop<S> {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn start(name: &str) -> Result<Self> {
        let inbox = Arc::new(Inbox::new()?);
        let mut streams = Streams::new(Arc::clone(&inbox))?;
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || streams.run())
            .map_err(|error| {
                Error::io("cannot start the thread of asynchronous streams", &error)
            })?;
        Ok(Self {
            inbox,
            thread: Some(thread),
            next: 0,
        })
    }

    /// A [`Caller`] by which other threads reach the next stream. [`Caller::begin`] brings the
    /// stream.
    pub fn caller(&mut self) -> Arc<Caller<S>> {
        let id = self.next;
        self.next += 1;
        Arc::new(Caller::new(id, &self.inbox))
    }
}

impl<S: LoopStream> Drop for StreamLoop<S> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.inbox.is_of_this_process() {
            // In a forked child locks may be held for ever: the copies are leaked.
            let _left = ManuallyDrop::new((Arc::clone(&self.inbox), thread));
            return;
        }
        // The streams outlive the owner, and the thread ends with the last one.
        let is_last = self.inbox.leave();
        self.inbox.bell.ring();
        if is_last && !self.inbox.is_here() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// What the thread works on.
struct Streams<S: LoopStream> {
    inbox: Arc<Inbox<S>>,
    epoll: OwnedFd,
    streams: HashMap<u64, (Arc<Caller<S>>, S)>,
    /// The streams to go on with.
    ready: VecDeque<u64>,
}

impl<S: LoopStream> Streams<S> {
    fn new(inbox: Arc<Inbox<S>>) -> Result<Self> {
        let failed = |errno| Error::os("cannot make a descriptor for asynchronous streams", errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let data = EventData::new_u64(BELL);
        epoll::add(&epoll, inbox.bell.fd()?, data, EventFlags::IN).map_err(failed)?;
        Ok(Self {
            inbox,
            epoll,
            streams: HashMap::new(),
            ready: VecDeque::new(),
        })
    }

    /// Works until no stream can be added and the last one is over.
    fn run(&mut self) {
        self.inbox.read_here();
        let mut arrivals = Vec::new();
        let mut events = Vec::with_capacity(MOST_EVENTS);
        loop {
            self.inbox.read(&mut arrivals);
            for arrival in arrivals.drain(..) {
                self.hear(arrival);
            }
            // Streams that become ready meanwhile go on only after new arrivals were read.
            for _ in 0..self.ready.len() {
                if let Some(id) = self.ready.pop_front() {
                    self.advance(id);
                }
            }
            if self.inbox.is_over() {
                return;
            }
            self.wait(&mut events);
        }
    }

    fn hear(&mut self, arrival: Arrival<S>) {
        let id = match arrival {
            Arrival::Stream(caller, stream) => {
                let id = caller.id;
                // A call may have come before its stream.
                caller.heard();
                self.streams.insert(id, (caller, *stream));
                id
            }
            Arrival::Word(id, word) => {
                // A stream that is over needs nothing more.
                if let Some((_, stream)) = self.streams.get_mut(&id) {
                    stream.hear(word);
                }
                id
            }
            Arrival::Call(id) => {
                if let Some((caller, _)) = self.streams.get(&id) {
                    caller.heard();
                }
                id
            }
        };
        self.ready.push_back(id);
    }

    /// Goes on with a stream.
    fn advance(&mut self, id: u64) {
        let Some((_, stream)) = self.streams.get_mut(&id) else {
            return;
        };
        let epoll = &self.epoll;
        let watcher = Watcher::new(epoll, id);
        let next = self.inbox.while_current(id, || caught(|| stream.advance()));
        let watched = next.and_then(|next| {
            if let Next::Sleep | Next::Idle = next {
                stream.watch(next, watcher)?;
            }
            Ok(next)
        });
        let next = watched.unwrap_or_else(|error| {
            stream.fail(&error);
            Next::Over
        });
        match next {
            Next::More => self.ready.push_back(id),
            Next::Sleep | Next::Idle => {}
            Next::Over => {
                stream.unwatch(watcher);
                let over = self.streams.remove(&id);
                // The drop calls the host.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(over)));
                self.inbox.leave();
            }
        }
    }

    /// Sleeps until a stream has something, or something arrives.
    fn wait(&mut self, events: &mut Vec<Event>) {
        let is_busy = !self.ready.is_empty() || self.inbox.has_more();
        let now = Timespec::default();
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        let waited = epoll::wait(&self.epoll, room, is_busy.then_some(&now));
        if let Err(errno) = waited
            && errno != rustix::io::Errno::INTR
        {
            tracing::error!("cannot wait for asynchronous streams: {errno}");
        }
        for event in events.drain(..) {
            match event.data.u64() {
                BELL => self.inbox.bell.silence(),
                id => self.ready.push_back(id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    /// Calls its own thread in its first step, and ends in the next.
    struct CallsItself {
        waker: Option<Waker>,
        ended: Sender<()>,
    }

    impl LoopStream for CallsItself {
        type Word = Waker;

        fn hear(&mut self, waker: Waker) {
            self.waker = Some(waker);
        }

        fn advance(&mut self) -> Result<Next> {
            match self.waker.take() {
                Some(waker) => {
                    waker.wake();
                    Ok(Next::Idle)
                }
                None => Ok(Next::Over),
            }
        }

        fn fail(&mut self, _: &Error) {}

        fn watch(&mut self, _: Next, _: Watcher<'_>) -> Result<()> {
            Ok(())
        }

        fn unwatch(&mut self, _: Watcher<'_>) {
            self.ended.send(()).unwrap();
        }
    }

    /// `Caller` as a waker: a stream that is called in its own step goes on once more, since a bell
    /// does not ring twice.
    #[test]
    fn a_stream_may_call_itself() {
        let mut streams = StreamLoop::start("dipc-test").unwrap();
        let (ended, over) = channel();
        let caller = streams.caller();
        let waker = Waker::from(Arc::clone(&caller));
        caller.begin(CallsItself {
            waker: Some(waker),
            ended,
        });
        over.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
