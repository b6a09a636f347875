//! The streams that a server has under way: how many, and which can be joined.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::driver::clock;
use crate::driver::produce::OutStream;
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;

/// The streams under way.
#[derive(Default)]
pub struct Streams {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Streams whose last word has not been sent: `max_streams` bounds them.
    running: usize,
    /// Streams that still have a thread or a request of the host's: a stop waits for them.
    active: usize,
    served: u64,
    /// No more streams begin.
    closed: bool,
    /// Streams on two connections, by the id that their requests share (rule E6).
    joinable: HashMap<u128, Weak<OutStream>>,
}

impl Streams {
    /// Takes a place for one more stream.
    ///
    /// # Errors
    ///
    /// `Busy` when `most` are running, `Stopped` after [`close`](Self::close).
    pub fn take_slot(self: &Arc<Self>, most: usize) -> Result<Arc<Slot>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(Status::Stopped, "the server was stopped"));
        }
        if state.running >= most {
            let text = format!("the server serves {most} streams already, its most; try again");
            return Err(Error::new(Status::Busy, text));
        }
        state.running += 1;
        state.active += 1;
        state.served += 1;
        Ok(Arc::new(Slot {
            streams: Arc::clone(self),
            running: AtomicBool::new(true),
        }))
    }

    /// Lets no more streams begin.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Lets a second connection find `stream`.
    pub fn offer(&self, id: u128, stream: &Arc<OutStream>) {
        let mut state = self.state.lock();
        state.joinable.retain(|_, known| known.strong_count() > 0);
        state.joinable.insert(id, Arc::downgrade(stream));
    }

    /// The stream with this id, if it is still under way.
    pub fn find(&self, id: u128) -> Option<Arc<OutStream>> {
        self.state.lock().joinable.get(&id).and_then(Weak::upgrade)
    }

    /// Streams under way, and begun since the start.
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.active, state.served)
    }

    /// Waits until no stream is under way. Returns whether that is so.
    pub fn wait_idle(&self, deadline: Timestamp) -> bool {
        let mut state = self.state.lock();
        while state.active > 0 {
            let left = clock::until(deadline);
            if left == Duration::ZERO {
                return false;
            }
            self.ended.wait_for(&mut state, left);
        }
        true
    }
}

/// The place of one stream; dropping it frees the place.
pub struct Slot {
    streams: Arc<Streams>,
    running: AtomicBool,
}

impl Slot {
    /// The stream's last word is about to be sent: a client that has it may ask for the next one.
    pub fn ending(&self) {
        if self.running.swap(false, Ordering::Relaxed) {
            self.streams.state.lock().running -= 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.ending();
        self.streams.state.lock().active -= 1;
        self.streams.ended.notify_all();
    }
}
