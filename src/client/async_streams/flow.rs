//! What consumers say, on its way to the thread that calls their handlers.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use crate::arrow::async_stream::{AsyncHandler, Flow};
use crate::cancel::Cancel;
use crate::client::Stream;
use crate::driver::turning::Bell;
use crate::error::Result;
use crate::fork::Generation;

/// What the thread of the handlers is told.
pub(super) enum Arrival {
    /// A stream was asked for.
    Asked(Arc<Consumer>, AsyncHandler),
    /// The stream, or why there is none.
    Answered(u64, Box<Result<Stream>>),
    /// The consumer has said something.
    Said(u64),
    /// The client was freed: no stream will be asked for any more.
    NoMore,
}

/// The arrivals, and a bell.
pub(super) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    pub(super) bell: Bell,
    /// Handlers that are not released.
    handlers: AtomicUsize,
    reader: OnceLock<ThreadId>,
    generation: Generation,
}

impl Inbox {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            arrivals: Mutex::default(),
            bell: Bell::new()?,
            handlers: AtomicUsize::new(0),
            reader: OnceLock::new(),
            generation: Generation::now(),
        })
    }

    /// This thread reads the arrivals from now on.
    pub(super) fn read_here(&self) {
        // There is one such thread.
        let _ = self.reader.set(thread::current().id());
    }

    /// Whether this thread reads the arrivals.
    pub(super) fn is_here(&self) -> bool {
        self.reader.get() == Some(&thread::current().id())
    }

    /// False in a forked child, where a lock may be held for ever.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation.is_same_process()
    }

    /// Adds the handler of a stream that is asked for.
    pub(super) fn open(&self, consumer: Arc<Consumer>, handler: AsyncHandler) {
        self.handlers.fetch_add(1, Ordering::AcqRel);
        self.send(Arrival::Asked(consumer, handler));
    }

    /// A handler was released.
    pub(super) fn close(&self) {
        self.handlers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether every handler was released.
    pub(super) fn is_empty(&self) -> bool {
        self.handlers.load(Ordering::Acquire) == 0
    }

    /// Brings an arrival, and wakes its reader.
    pub(super) fn send(&self, arrival: Arrival) {
        let was_empty = {
            let mut arrivals = self.arrivals.lock();
            arrivals.push(arrival);
            arrivals.len() == 1
        };
        // The reader looks before it sleeps.
        if was_empty && !self.is_here() {
            self.bell.ring();
        }
    }

    /// Moves the arrivals into `all`.
    pub(super) fn read(&self, all: &mut Vec<Arrival>) {
        all.append(&mut self.arrivals.lock());
    }

    /// Whether something has arrived that was not read.
    pub(super) fn has_more(&self) -> bool {
        !self.arrivals.lock().is_empty()
    }
}

/// What the consumer of one stream wants.
pub(super) struct Consumer {
    pub(super) id: u64,
    /// The producer may outlive the client's last stream.
    inbox: Weak<Inbox>,
    generation: Generation,
    /// Arrays that it takes, beyond those that it was given.
    wanted: AtomicU64,
    /// It has asked for fewer than one array.
    is_wrong: AtomicBool,
    has_cancelled: AtomicBool,
    /// Its word is in the inbox.
    has_said: AtomicBool,
    /// The thread of the handlers looks at the stream now, and will look at it again before it
    /// goes on to another one.
    pub(super) is_served: AtomicBool,
    /// Ends the request while it waits for the server.
    asking: Mutex<Option<Cancel>>,
}

impl Consumer {
    pub(super) fn new(id: u64, inbox: &Arc<Inbox>) -> Self {
        Self {
            id,
            inbox: Arc::downgrade(inbox),
            generation: inbox.generation,
            wanted: AtomicU64::new(0),
            is_wrong: AtomicBool::new(false),
            has_cancelled: AtomicBool::new(false),
            has_said: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            asking: Mutex::new(None),
        }
    }

    pub(super) fn has_cancelled(&self) -> bool {
        self.has_cancelled.load(Ordering::Acquire)
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Acquire)
    }

    /// Counts one array as given, if the consumer wants one.
    pub(super) fn take_one(&self) -> bool {
        let less = |wanted: u64| wanted.checked_sub(1);
        let taken = (self.wanted).fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    /// The word in the inbox was read.
    pub(super) fn heard(&self) {
        self.has_said.store(false, Ordering::Release);
    }

    /// A token for the request, which the consumer's `cancel` triggers.
    ///
    /// # Errors
    ///
    /// `Cancelled`, and `OutOfResources` when the process has no file descriptor left.
    pub(super) fn begin_asking(&self) -> Result<Cancel> {
        let token = Cancel::new()?;
        *self.asking.lock() = Some(token.clone());
        // A consumer that found no token has said so before.
        if self.has_cancelled() {
            token.cancel();
        }
        token.check()?;
        Ok(token)
    }

    /// The request is over: here is the stream.
    pub(super) fn answer(&self, stream: Result<Stream>) {
        *self.asking.lock() = None;
        // Without an inbox the consumer has cancelled, and the stream ends here.
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.send(Arrival::Answered(self.id, Box::new(stream)));
        }
    }

    /// Has the thread of the handlers look at the stream.
    fn wake(&self) {
        let Some(inbox) = self.inbox.upgrade() else {
            return;
        };
        if self.is_served.load(Ordering::Acquire) && inbox.is_here() {
            return;
        }
        if !self.has_said.swap(true, Ordering::AcqRel) {
            inbox.send(Arrival::Said(self.id));
        }
    }
}

impl Flow for Consumer {
    fn request(&self, n: i64) {
        if !self.generation.is_same_process() || self.has_cancelled() {
            return;
        }
        match u64::try_from(n) {
            Ok(n @ 1..) => {
                let more = |wanted: u64| Some(wanted.saturating_add(n));
                let _ = (self.wanted).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            }
            _ => self.is_wrong.store(true, Ordering::Release),
        }
        self.wake();
    }

    fn cancel(&self) {
        let is_child = !self.generation.is_same_process();
        if is_child || self.has_cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(token) = &*self.asking.lock() {
            token.cancel();
        }
        self.wake();
    }
}
