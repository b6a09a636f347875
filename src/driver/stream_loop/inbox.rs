//! What other threads bring for the streams, on its way to the thread of the streams.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Wake;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use super::stream::LoopStream;
use crate::driver::bell::Bell;
use crate::error::Result;
use crate::fork::Generation;

/// What is brought to the thread.
pub(super) enum Arrival<S: LoopStream> {
    /// A stream to go on with.
    Stream(Arc<Caller<S>>, Box<S>),
    /// Something for a stream.
    Word(u64, S::Word),
    /// Go on with a stream.
    Call(u64),
}

/// Stands for no stream in place of a stream's id.
const NO_STREAM: u64 = u64::MAX;

/// The arrivals, and a bell.
pub(super) struct Inbox<S: LoopStream> {
    arrivals: Mutex<Vec<Arrival<S>>>,
    pub(super) bell: Bell,
    /// The number of streams that are not over, plus 1 for the owner of the thread while it may add
    /// more.
    users: AtomicUsize,
    reader: OnceLock<ThreadId>,
    /// The stream that the thread goes on with now. If it is called during that time, the thread
    /// goes on with it once more.
    current: AtomicU64,
    generation: Generation,
}

impl<S: LoopStream> Inbox<S> {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            arrivals: Mutex::new(Vec::new()),
            bell: Bell::new()?,
            users: AtomicUsize::new(1),
            reader: OnceLock::new(),
            current: AtomicU64::new(NO_STREAM),
            generation: Generation::now(),
        })
    }

    /// This thread reads the arrivals from now on.
    pub(super) fn read_here(&self) {
        // Only one thread calls this.
        let _ = self.reader.set(thread::current().id());
    }

    /// Whether this thread reads the arrivals.
    pub(super) fn is_here(&self) -> bool {
        self.reader.get() == Some(&thread::current().id())
    }

    /// Returns false in a forked child, where a lock may be held for ever.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation.is_same_process()
    }

    /// A stream is over, or the owner of the thread is gone. Returns whether that was the last
    /// user.
    pub(super) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether every stream is over and no more can be added.
    pub(super) fn is_over(&self) -> bool {
        self.users.load(Ordering::Acquire) == 0
    }

    /// The thread goes on with the stream `id`.
    pub(super) fn while_current<T>(&self, id: u64, step: impl FnOnce() -> T) -> T {
        // Only this thread reads it.
        self.current.store(id, Ordering::Relaxed);
        let outcome = step();
        self.current.store(NO_STREAM, Ordering::Relaxed);
        outcome
    }

    /// Brings an arrival, and wakes its reader.
    pub(super) fn send(&self, arrival: Arrival<S>) {
        let was_empty = {
            let mut arrivals = self.arrivals.lock();
            arrivals.push(arrival);
            arrivals.len() == 1
        };
        // The reader looks at the arrivals before it sleeps.
        if was_empty && !self.is_here() {
            self.bell.ring();
        }
    }

    /// Moves the arrivals into `all`.
    pub(super) fn read(&self, all: &mut Vec<Arrival<S>>) {
        all.append(&mut self.arrivals.lock());
    }

    /// Whether there are arrivals that were not read.
    pub(super) fn has_more(&self) -> bool {
        !self.arrivals.lock().is_empty()
    }
}

/// Reaches one stream from any thread.
pub struct Caller<S: LoopStream> {
    pub(super) id: u64,
    /// The host may hold on to this for longer than the thread runs.
    inbox: Weak<Inbox<S>>,
    generation: Generation,
    /// A call of this stream is in the inbox.
    has_called: AtomicBool,
}

/// For bells, which ring only once until they are silenced: a call during the stream's own step is
/// kept.
impl<S: LoopStream> Wake for Caller<S> {
    fn wake(self: Arc<Self>) {
        if let Some(inbox) = self.inbox.upgrade() {
            self.call(&inbox);
        }
    }
}

impl<S: LoopStream> Caller<S> {
    pub(super) fn new(id: u64, inbox: &Arc<Inbox<S>>) -> Self {
        Self {
            id,
            inbox: Arc::downgrade(inbox),
            generation: inbox.generation,
            has_called: AtomicBool::new(false),
        }
    }

    /// Returns false in a forked child, where a lock may be held for ever.
    pub fn is_of_this_process(&self) -> bool {
        self.generation.is_same_process()
    }

    /// Brings the stream to the thread, once.
    pub fn begin(self: &Arc<Self>, stream: S) {
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.users.fetch_add(1, Ordering::AcqRel);
            inbox.send(Arrival::Stream(Arc::clone(self), Box::new(stream)));
        }
    }

    /// Brings something for the stream. If the stream is over, it is dropped.
    pub fn send(&self, word: S::Word) {
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.send(Arrival::Word(self.id, word));
        }
    }

    /// Makes the thread go on with the stream.
    pub fn wake(&self) {
        let Some(inbox) = self.inbox.upgrade() else {
            return;
        };
        if inbox.is_here() && inbox.current.load(Ordering::Relaxed) == self.id {
            return;
        }
        self.call(&inbox);
    }

    fn call(&self, inbox: &Inbox<S>) {
        if !self.has_called.swap(true, Ordering::AcqRel) {
            inbox.send(Arrival::Call(self.id));
        }
    }

    /// The thread has read the call from the inbox.
    pub(super) fn heard(&self) {
        self.has_called.store(false, Ordering::Release);
    }
}
