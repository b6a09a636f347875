//! Streams that the host answers by a producer of Arrow's asynchronous interface.
//!
//! The producer brings its batches to a handler of ours, on a thread of its own, and does not wait.
//! One thread of the server sends the batches of all such streams.

mod answering;
mod offers;

use std::sync::Arc;

use parking_lot::Mutex;

use super::request::Request;
use crate::arrow::abi::ArrowAsyncDeviceStreamHandler;
use crate::arrow::async_consumer;
use crate::driver::stream_loop::{Caller, StreamLoop};
use crate::error::{Error, Result, Status};
use answering::Answering;
use offers::Offers;

/// The asynchronous answers of one server.
#[derive(Default)]
pub(super) struct Answers {
    started: Mutex<Option<StreamLoop<Answering>>>,
}

impl Answers {
    /// What the next such stream needs.
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

/// A place for an asynchronous answer to one request.
pub struct AsyncAnswer {
    caller: Arc<Caller<Answering>>,
}

impl Request {
    /// Pull form: prepares an answer by a producer of Arrow's asynchronous interface. The arrays
    /// will be released where those of providers are.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a provider's request, for a client that only sends a stream, and for a
    /// stream that the host has begun otherwise; `Stopped`; `OutOfResources` when the process has
    /// no threads or descriptors left.
    pub fn prepare_async_answer(&self) -> Result<AsyncAnswer> {
        let core = self.ensure_unanswered()?;
        let caller = core.answers.caller()?;
        self.release_by(core.callbacks()?)?;
        Ok(AsyncAnswer { caller })
    }

    /// Pull form: has the arrays of a stream that the host has not begun released where those of
    /// providers are, instead of by the host's own calls.
    ///
    /// # Errors
    ///
    /// As [`prepare_async_answer`](Self::prepare_async_answer).
    pub fn release_by_callbacks(&self) -> Result<()> {
        let core = self.ensure_unanswered()?;
        self.release_by(core.callbacks()?)
    }
}

impl AsyncAnswer {
    /// Gives the handler for the producer. A thread of the server sends what the handler gets.
    pub fn begin(self, request: Request) -> ArrowAsyncDeviceStreamHandler {
        let caller = self.caller;
        async_consumer::handler(|producer| {
            let offers = Arc::new(Offers::new(producer, Arc::clone(&caller)));
            let wakes = Arc::clone(&caller);
            request.when_cancelled(move || wakes.wake());
            caller.begin(Answering::new(request, Arc::clone(&offers)));
            offers
        })
    }
}

/// The error of a producer that does not follow its interface.
fn wrong(text: &str) -> Error {
    Error::new(
        Status::Provider,
        format!("the server's asynchronous producer {text}"),
    )
}
