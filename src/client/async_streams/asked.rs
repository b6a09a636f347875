//! The requests: they wait for a connection and for a schema, on threads of a small pool.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::flow::Consumer;
use crate::cancel::Cancel;
use crate::client::Stream;
use crate::error::{Error, Result, Status};

/// Most threads of a client that ask. Further requests wait for one of them.
const MOST_THREADS: usize = 8;

/// Asks for a stream, and waits for its schema.
pub(in crate::client) type Ask = Box<dyn FnOnce(&Cancel) -> Result<Stream> + Send>;

/// The requests of one client that wait for a thread.
#[derive(Default)]
pub(super) struct Asking {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<(Ask, Arc<Consumer>)>,
    /// Each takes requests until there are none.
    threads: usize,
}

impl Asking {
    /// Has a thread run `ask` for the consumer that `consumer` makes.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when there is no thread. Then `consumer` was not called.
    pub(super) fn ask(
        self: &Arc<Self>,
        ask: Ask,
        consumer: impl FnOnce() -> Arc<Consumer>,
    ) -> Result<()> {
        let mut waiting = self.waiting.lock();
        if waiting.threads < MOST_THREADS {
            let this = Arc::clone(self);
            let thread = thread::Builder::new().name("dipc-async-ask".into());
            match thread.spawn(move || this.run()) {
                Ok(_) => waiting.threads += 1,
                Err(_) if waiting.threads > 0 => {}
                Err(error) => {
                    let doing = "cannot start a thread that asks for a stream";
                    return Err(Error::io(doing, &error));
                }
            }
        }
        waiting.requests.push_back((ask, consumer()));
        Ok(())
    }

    fn run(&self) {
        loop {
            let (ask, consumer) = {
                let mut waiting = self.waiting.lock();
                let Some(next) = waiting.requests.pop_front() else {
                    waiting.threads -= 1;
                    return;
                };
                next
            };
            let asked = catch_unwind(AssertUnwindSafe(|| {
                let mut stream = ask(&consumer.begin_asking()?)?;
                stream.forget_cancel();
                Ok(stream)
            }));
            consumer.answer(asked.unwrap_or_else(|_| Err(panicked())));
        }
    }
}

/// The error of a stream whose code panicked.
pub(super) fn panicked() -> Error {
    let text = "a bug in libdipc, please report it: an asynchronous stream panicked";
    Error::new(Status::Panic, text)
}
