//! Streams whose batches one thread of the client gives to handlers.
//!
//! A thread of a small pool connects and waits for the schema. Then the stream goes to the one
//! thread that calls every handler of the client. That thread sleeps in one epoll instance over the
//! descriptors of all its streams.

mod flow;
mod giving;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::Stream;
use super::threads::{AskingThreads, caught};
use crate::arrow::async_stream::{AsyncHandler, Flow};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use flow::{Arrival, Consumer, Inbox};
use giving::Giver;

/// The asynchronous streams of one client.
#[derive(Default)]
pub(super) struct AsyncStreams {
    started: Mutex<Option<Started>>,
    ids: AtomicU64,
}

struct Started {
    inbox: Arc<Inbox>,
    thread: JoinHandle<()>,
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
        let Started { inbox, .. } = match &mut *started {
            Some(started) => started,
            none => none.insert(Started::new()?),
        };
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        threads.run(|| {
            let consumer = Arc::new(Consumer::new(id, inbox));
            let handler = handler(Arc::clone(&consumer) as _);
            inbox.open(Arc::clone(&consumer), handler);
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

impl Started {
    fn new() -> Result<Self> {
        let inbox = Arc::new(Inbox::new()?);
        let mut giver = Giver::new(Arc::clone(&inbox))?;
        let thread = thread::Builder::new()
            .name("dipc-async".into())
            .spawn(move || giver.run())
            .map_err(|error| {
                Error::io("cannot start the thread of asynchronous streams", &error)
            })?;
        Ok(Self { inbox, thread })
    }
}

impl Drop for AsyncStreams {
    fn drop(&mut self) {
        let Some(started) = self.started.get_mut().take() else {
            return;
        };
        if !started.inbox.is_of_this_process() {
            // In a forked child locks may be held for ever: the copy is leaked.
            let _left = ManuallyDrop::new(started);
            return;
        }
        // The streams outlive the client, and the thread ends with the last one.
        started.inbox.send(Arrival::NoMore);
        if started.inbox.is_empty() && !started.inbox.is_here() {
            // A thread that panicked has ended too.
            let _ = started.thread.join();
        }
    }
}
