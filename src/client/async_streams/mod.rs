//! Streams whose batches one thread of the client gives to handlers.
//!
//! No thread of the caller waits for the request. Once the server has answered, the stream goes to
//! the one thread that calls every handler of the client.

mod demand;
mod flow;
mod giving;

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use super::Answer;
use super::requests::{Asking, Request, Requests, Told};
use crate::arrow::async_stream::{AsyncHandler, Flow};
use crate::cancel::Cancel;
use crate::driver::stream_loop::StreamLoop;
use crate::error::Result;
use flow::Consumer;
use giving::Giving;

/// The asynchronous streams of one client. They outlive it.
#[derive(Default)]
pub(super) struct AsyncStreams {
    started: Mutex<Option<StreamLoop<Giving>>>,
}

impl AsyncStreams {
    /// Starts a request on the thread of `requests`. `make` builds the request for a token. The
    /// stream goes to the handler that `handler` builds for this flow.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left. Then no handler was
    /// made.
    pub(super) fn start(
        &self,
        requests: &Arc<Requests>,
        make: impl FnOnce(Cancel) -> Box<dyn Request>,
        handler: impl FnOnce(Arc<dyn Flow>) -> AsyncHandler,
    ) -> Result<()> {
        let cancel = Cancel::new()?;
        let mut started = self.started.lock();
        let streams = match &mut *started {
            Some(started) => started,
            none => none.insert(StreamLoop::start("dipc-async")?),
        };
        requests.start(|| {
            let caller = streams.caller();
            let consumer = Arc::new(Consumer::new(Arc::clone(&caller), cancel.clone()));
            let handler = handler(Arc::clone(&consumer) as _);
            let waker = Waker::from(Arc::clone(&caller));
            caller.begin(Giving::new(Arc::clone(&consumer.demand), waker, handler));
            Asking {
                request: make(cancel.clone()),
                cancel,
                told: Box::new(consumer),
            }
        })
    }
}

impl Told for Arc<Consumer> {
    fn answered(self: Box<Self>, answer: Result<Answer>) {
        self.answer(answer);
    }
}
