//! The calls of a stream's consumer.

use std::sync::Arc;

use super::demand::Demand;
use super::giving::Giving;
use crate::arrow::async_stream::Flow;
use crate::cancel::Cancel;
use crate::client::Answer;
use crate::driver::stream_loop::Caller;
use crate::error::{Error, Result};

/// The consumer of one stream, which asks for arrays and can cancel.
pub(super) struct Consumer {
    caller: Arc<Caller<Giving>>,
    pub(super) demand: Arc<Demand>,
    /// Ends the request while it waits for the server.
    request: Cancel,
}

impl Consumer {
    pub(super) fn new(caller: Arc<Caller<Giving>>, request: Cancel) -> Self {
        Self {
            caller,
            demand: Arc::default(),
            request,
        }
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
        if !self.caller.is_of_this_process() || self.demand.has_cancelled() {
            return;
        }
        self.demand.add(n);
        self.caller.wake();
    }

    fn cancel(&self) {
        let is_child = !self.caller.is_of_this_process();
        if is_child || !self.demand.cancel() {
            return;
        }
        self.request.cancel();
        self.caller.wake();
    }
}
