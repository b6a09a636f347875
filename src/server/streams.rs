//! The streams that a server has under way: how many, and which can be joined.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::driver::clock;
use crate::driver::produce::OutStream;
use crate::proto::Timestamp;

/// The streams under way.
#[derive(Default)]
pub struct Streams {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    active: usize,
    served: u64,
    /// Streams on two connections, by the id that their requests share (rule E6).
    joinable: HashMap<u128, Weak<OutStream>>,
}

impl Streams {
    /// Takes a place for one more stream, unless `most` are under way.
    pub fn take_slot(self: &Arc<Self>, most: usize) -> Option<Slot> {
        let mut state = self.state.lock();
        if state.active >= most {
            return None;
        }
        state.active += 1;
        state.served += 1;
        Some(Slot {
            streams: Arc::clone(self),
        })
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
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.streams.state.lock().active -= 1;
        self.streams.ended.notify_all();
    }
}
