//! The running streams of a server: their counts, and the streams that a connection can join.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::driver::clock;
use crate::driver::produce::OutStream;
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;

/// The running streams.
#[derive(Default)]
pub struct Streams {
    counts: Mutex<StreamCounts>,
    ended: Condvar,
}

#[derive(Default)]
struct StreamCounts {
    /// Streams with a client whose last message is not sent; at most `max_streams`.
    running: usize,
    /// Streams with a thread or a request of the host; a stop waits for them.
    active: usize,
    /// Active streams of providers and of the pull form; at most `max_providers`.
    provided: usize,
    /// Active streams whose clients have gone.
    lost: usize,
    served: u64,
    /// No more streams begin.
    closed: bool,
    /// Streams on two connections, by the id that their requests share (rule E6).
    joinable: HashMap<u128, Weak<OutStream>>,
}

impl Streams {
    /// Takes a slot for one more stream. `most_provided`: the limit of streams with providers, if
    /// the new stream has one.
    ///
    /// # Errors
    ///
    /// `Busy` if `most` streams are running or providers have `most_provided` streams, `Stopped`
    /// after [`close`](Self::close).
    pub fn take_slot(
        self: &Arc<Self>,
        most: usize,
        most_provided: Option<usize>,
    ) -> Result<Arc<Slot>> {
        let mut counts = self.counts.lock();
        if counts.closed {
            return Err(Error::new(Status::Stopped, "the server was stopped"));
        }
        if counts.running >= most {
            let text = format!("the server serves {most} streams already, its most; try again");
            return Err(Error::new(Status::Busy, text));
        }
        if let Some(most) = most_provided
            && counts.provided >= most
        {
            let text = format!(
                "the server's providers are busy with {} streams, its most (max_providers), and \
                 the clients of {} of these have gone; try again",
                counts.provided, counts.lost
            );
            return Err(Error::new(Status::Busy, text));
        }
        counts.running += 1;
        counts.active += 1;
        counts.provided += usize::from(most_provided.is_some());
        counts.served += 1;
        Ok(Arc::new(Slot {
            streams: Arc::clone(self),
            provided: most_provided.is_some(),
            place: Mutex::new(SlotState {
                running: true,
                lost: false,
            }),
        }))
    }

    /// Refuses further streams.
    pub fn close(&self) {
        self.counts.lock().closed = true;
    }

    /// Lets a second connection find `stream`.
    pub fn offer(&self, id: u128, stream: &Arc<OutStream>) {
        let mut counts = self.counts.lock();
        counts.joinable.retain(|_, known| known.strong_count() > 0);
        counts.joinable.insert(id, Arc::downgrade(stream));
    }

    /// The running stream with this id.
    pub fn find(&self, id: u128) -> Option<Arc<OutStream>> {
        self.counts.lock().joinable.get(&id).and_then(Weak::upgrade)
    }

    /// The number of active streams with a client, and of streams begun since the start.
    pub fn counts(&self) -> (usize, u64) {
        let counts = self.counts.lock();
        (counts.active - counts.lost, counts.served)
    }

    /// The number of active streams, with or without a client.
    pub fn active(&self) -> usize {
        self.counts.lock().active
    }

    /// Waits until no stream is active. Returns false after `deadline`.
    pub fn wait_idle(&self, deadline: Timestamp) -> bool {
        let mut counts = self.counts.lock();
        while counts.active > 0 {
            let left = clock::until(deadline);
            if left == Duration::ZERO {
                return false;
            }
            self.ended.wait_for(&mut counts, left);
        }
        true
    }
}

/// The slot of one stream. Its drop frees the slot.
pub struct Slot {
    streams: Arc<Streams>,
    /// The stream counts towards `max_providers`.
    provided: bool,
    place: Mutex<SlotState>,
}

/// How a stream is counted. Locked before the streams' counts.
struct SlotState {
    running: bool,
    lost: bool,
}

impl Slot {
    /// Called just before the stream's last message is sent: after that message the client may ask
    /// for the next stream.
    pub fn ending(&self) {
        let mut place = self.place.lock();
        if std::mem::take(&mut place.running) {
            self.streams.counts.lock().running -= 1;
        }
    }

    /// The stream's client has gone: another stream may run, even if the provider has not returned.
    pub fn lost(&self) {
        self.ending();
        let mut place = self.place.lock();
        if !std::mem::replace(&mut place.lost, true) {
            self.streams.counts.lock().lost += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.ending();
        let lost = self.place.get_mut().lost;
        let mut counts = self.streams.counts.lock();
        counts.active -= 1;
        counts.provided -= usize::from(self.provided);
        counts.lost -= usize::from(lost);
        drop(counts);
        self.streams.ended.notify_all();
    }
}
