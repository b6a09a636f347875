//! Streams whose batches one thread of the client gives to handlers.
//!
//! A thread of a small pool connects and waits for the schema. Then the stream goes to the one
//! thread that calls every handler of the client.

mod flow;
mod giving;

use std::sync::Arc;

use parking_lot::Mutex;

use super::Stream;
use super::threads::AskingThreads;
use crate::arrow::async_stream::{AsyncHandler, Flow};
use crate::cancel::Cancel;
use crate::driver::stream_loop::{StreamLoop, caught};
use crate::error::Result;
use flow::Consumer;
use giving::Giving;

/// The asynchronous streams of one client. They outlive it.
#[derive(Default)]
pub(super) struct AsyncStreams {
    started: Mutex<Option<StreamLoop<Giving>>>,
}

impl AsyncStreams {
    /// Has one of the `threads` call `ask`, and its stream given to the handler that `handler`
    /// makes for this flow.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left. Then no handler was
    /// made.
    pub(super) fn start(
        &self,
        threads: &Arc<AskingThreads>,
        ask: impl FnOnce(&Cancel) -> Result<Stream> + Send + 'static,
        handler: impl FnOnce(Arc<dyn Flow>) -> AsyncHandler,
    ) -> Result<()> {
        let mut started = self.started.lock();
        let streams = match &mut *started {
            Some(started) => started,
            none => none.insert(StreamLoop::start("dipc-async")?),
        };
        threads.run(|| {
            let caller = streams.caller();
            let consumer = Arc::new(Consumer::new(Arc::clone(&caller)));
            let handler = handler(Arc::clone(&consumer) as _);
            caller.begin(Giving::new(Arc::clone(&consumer), handler));
            Box::new(move || {
                let asked = caught(|| {
                    let mut stream = ask(&consumer.begin_asking()?)?;
                    stream.set_cancel(None);
                    Ok(stream)
                });
                consumer.answer(asked);
            })
        })
    }
}
