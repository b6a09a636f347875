//! Streams that the host answers by a producer of Arrow's asynchronous interface.
//!
//! The producer brings its batches to a handler of ours, on a thread of its own, and does not wait.
//! One thread of the server sends the batches of all such streams.

mod answering;
mod offers;

use std::sync::Arc;

use parking_lot::Mutex;

use super::request::{AsyncAnswer, ServerRequest};
use crate::arrow::async_consumer;
use crate::driver::stream_loop::{Caller, StreamLoop};
use crate::error::Result;
use answering::Answering;
use offers::Offers;

/// The asynchronous answers of one server.
#[derive(Default)]
pub(super) struct Answers {
    started: Mutex<Option<StreamLoop<Answering>>>,
}

impl Answers {
    /// Prepares the next such stream.
    pub(super) fn prepare(&self) -> Result<AsyncAnswer> {
        let caller = self.caller()?;
        Ok(Box::new(move |request: ServerRequest| {
            async_consumer::handler(|producer| {
                let wakes = Arc::clone(&caller);
                let offers = Arc::new(Offers::new(producer, move || wakes.wake()));
                let wakes = Arc::clone(&caller);
                request.when_cancelled(move || wakes.wake());
                caller.begin(Answering::new(request, Arc::clone(&offers)));
                offers
            })
        }))
    }

    fn caller(&self) -> Result<Arc<Caller<Answering>>> {
        let mut started = self.started.lock();
        let streams = match &mut *started {
            Some(started) => started,
            none => none.insert(StreamLoop::start("dipc-answers")?),
        };
        Ok(streams.caller())
    }

    /// Ends the thread, once its last stream is over.
    pub(super) fn close(&self) {
        let started = self.started.lock().take();
        drop(started);
    }
}
