use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::Engine;

use crate::{Error, Result};

/// How often running modules look at the time.
const TICK: Duration = Duration::from_millis(5);

/// A thread that has running modules look at the time. It sleeps while none runs, and ends with
/// this value.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    /// The thread sleeps until it is woken.
    parked: bool,
    closed: bool,
}

/// One module that runs.
pub(crate) struct Ticking<'t>(&'t Shared);

impl Ticker {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (engine, theirs) = (engine.clone(), Arc::clone(&shared));
        let builder = std::thread::Builder::new().name("dipc-sandbox".into());
        let thread = builder.spawn(move || theirs.tick(&engine));
        let thread = thread.map_err(|error| Error::Host(format!("no thread: {error}")))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Ticks while the result lives.
    pub(crate) fn run(&self) -> Ticking<'_> {
        let mut state = self.shared.lock();
        state.running += 1;
        // A thread that is not parked will see the number within a tick.
        if std::mem::take(&mut state.parked) {
            self.shared.wake.notify_one();
        }
        Ticking(&self.shared)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic, and a panic of it would change nothing here.
            let _ = thread.join();
        }
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self, engine: &Engine) {
        let mut state = self.lock();
        while !state.closed {
            if state.running == 0 {
                state.parked = true;
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.wake.wait_timeout(state, TICK);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            engine.increment_epoch();
        }
    }
}
