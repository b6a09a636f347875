//! What the consumer of a stream wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::giving::Giving;
use crate::arrow::async_stream::Flow;
use crate::cancel::Cancel;
use crate::client::Stream;
use crate::driver::stream_loop::Caller;
use crate::error::Result;

/// What the consumer of one stream wants.
pub(super) struct Consumer {
    caller: Arc<Caller<Giving>>,
    /// Arrays that it takes, beyond those that it was given.
    wanted: AtomicU64,
    /// It has asked for fewer than one array.
    is_wrong: AtomicBool,
    has_cancelled: AtomicBool,
    /// Ends the request while it waits for the server.
    asking: Mutex<Option<Cancel>>,
}

impl Consumer {
    pub(super) fn new(caller: Arc<Caller<Giving>>) -> Self {
        Self {
            caller,
            wanted: AtomicU64::new(0),
            is_wrong: AtomicBool::new(false),
            has_cancelled: AtomicBool::new(false),
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

    /// Hands over the server's answer. If the consumer has cancelled, the stream ends.
    pub(super) fn answer(&self, stream: Result<Stream>) {
        *self.asking.lock() = None;
        self.caller.tell(Box::new(stream));
    }
}

impl Flow for Consumer {
    fn request(&self, n: i64) {
        if !self.caller.is_of_this_process() || self.has_cancelled() {
            return;
        }
        match u64::try_from(n) {
            Ok(n @ 1..) => {
                let more = |wanted: u64| Some(wanted.saturating_add(n));
                let _ = (self.wanted).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            }
            _ => self.is_wrong.store(true, Ordering::Release),
        }
        self.caller.wake();
    }

    fn cancel(&self) {
        let is_child = !self.caller.is_of_this_process();
        if is_child || self.has_cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(token) = &*self.asking.lock() {
            token.cancel();
        }
        self.caller.wake();
    }
}
