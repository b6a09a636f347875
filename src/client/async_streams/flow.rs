//! What the consumer of a stream wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use super::giving::Giving;
use crate::arrow::async_stream::Flow;
use crate::cancel::Cancel;
use crate::client::Answer;
use crate::driver::stream_loop::Caller;
use crate::error::{Error, Result};

/// What the consumer of one stream wants.
pub(super) struct Consumer {
    caller: Arc<Caller<Giving>>,
    /// Arrays that it takes, beyond those that it was given.
    wanted: AtomicU64,
    /// It has asked for fewer than one array.
    is_wrong: AtomicBool,
    has_cancelled: AtomicBool,
    /// Ends the request while it waits for the server.
    request: Cancel,
}

impl Consumer {
    pub(super) fn new(caller: Arc<Caller<Giving>>, request: Cancel) -> Self {
        Self {
            caller,
            wanted: AtomicU64::new(0),
            is_wrong: AtomicBool::new(false),
            has_cancelled: AtomicBool::new(false),
            request,
        }
    }

    /// Has the thread go on with the stream.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.caller))
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

    /// Hands over the server's answer. If the consumer has cancelled, the stream ends.
    pub(super) fn answer(&self, answer: Result<Answer>) {
        let stream = answer.and_then(|answer| match answer {
            Answer::Stream(stream) => Ok(*stream),
            _ => Err(Error::protocol("the answer is of another kind")),
        });
        self.caller.send(Box::new(stream));
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
        self.request.cancel();
        self.caller.wake();
    }
}
