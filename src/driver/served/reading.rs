//! Who reads a connection: mostly the I/O thread, within a stream also the stream's own.
//!
//! A producer that is ahead of its consumer waits for credit and gets its memory back by the message. Were
//! both read by the I/O thread, that would be woken for every half window, wake the stream's thread for the
//! credit and the callback thread for the memory: three threads of which one has something to do. So once
//! half the window is used, the stream's thread reads before each pull, and the I/O thread no more.
//!
//! The host may take its time for a batch, or wait in there for memory that it lent. So the I/O thread reads again
//! [`PATIENCE`] after the stream's thread last did.

use std::time::Duration;

use super::{Effects, Half, ServedLink};
use crate::driver::clock;
use crate::driver::io::Interest;
use crate::proto::{SenderState, Timestamp};

/// How long the I/O thread leaves the reading to a thread that does not read.
const PATIENCE: Duration = Duration::from_millis(1);
/// A stream's thread that comes back so soon after the I/O thread has read waited for what that read.
const WAITED: Duration = Duration::from_micros(500);
/// After that many such times, one after the other, a stream's thread leaves 2^12 reads to the I/O thread.
const MOST_WAITS: u32 = 12;

/// Who reads a connection in a stream.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The stream's thread, until then.
    until: Option<Timestamp>,
    /// When a timer is set that looks after it.
    timer: Option<Timestamp>,
    /// When the I/O thread took the reading back.
    taken_back_at: Option<Timestamp>,
    /// How often the stream's thread waited for that, one after the other.
    waits: u32,
    /// Reads that the I/O thread is still to do after it.
    left: u32,
}

impl Reading {
    /// Whether the I/O thread leaves it to another.
    pub(super) fn is_by_thread(&self) -> bool {
        self.until.is_some()
    }
}

impl Half {
    /// The thread that has read a request reads on, unless it mostly waited for what the I/O thread read. The timer of the cork that
    /// begins its stream looks after it, as one sooner would cost more than the stream: a host that takes its time for the first batch
    /// or for the release of its stream may keep the client's next words waiting that long.
    pub(super) fn read_by_thread(&mut self) {
        if self.reading.left == 0 {
            self.reading.until = Some(clock::after(PATIENCE));
        }
    }

    /// A thread reads no more. Returns whether something is there of which the descriptor does not tell.
    pub(super) fn stop_reading(&mut self) -> bool {
        self.reading.until = None;
        std::mem::take(&mut self.looked_at) && self.link.doze()
    }
}

impl ServedLink {
    /// What the I/O thread is to be told of.
    pub(super) fn interest(&self, half: &Half) -> Interest {
        let flooded = half.is_flooded();
        let parked = half.parked && half.sender.state() == SenderState::Idle;
        if !self.readiness.socket {
            // What is queued may leave only while somebody turns the connection.
            let left = half.link.queued_bytes() == 0 || half.is_corked();
            return if flooded || parked || (half.reading.is_by_thread() && left) {
                Interest::Nothing
            } else {
                Interest::Read
            };
        }
        let reads = !flooded && !parked && !half.reading.is_by_thread();
        let writes = flooded || (half.link.queued_bytes() > 0 && !half.is_corked());
        match (reads, writes) {
            (true, true) => Interest::ReadWrite,
            (true, false) => Interest::Read,
            (false, true) => Interest::Write,
            (false, false) => Interest::Nothing,
        }
    }

    /// Reads what has come if half the window is used, on the thread that drives the stream and will soon
    /// be back; or `at_once`, if it waits for room.
    pub fn read_along(&self, at_once: bool) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            let half = &mut *half;
            // While batches wait to leave together, with them.
            let due = at_once || (half.sender.is_half_used() && !half.is_corked());
            if half.closed.is_some() || !due {
                return;
            }
            if half.reading.left > 0 {
                half.reading.left -= 1;
                return;
            }
            let until = clock::after(PATIENCE);
            half.reading.until = Some(until);
            if self.profile.is_for_looking && !std::mem::replace(&mut half.looked_at, true) {
                half.link.wake();
            }
            if half.reading.timer.is_none() {
                half.reading.timer = Some(until);
                effects.timers.push(until);
            }
            if half.link.queued_bytes() > 0
                && !half.is_corked()
                && let Err(error) = half.link.flush()
            {
                self.close(half, error, &mut effects);
            }
            // The end of the peer's process is the I/O thread's to see.
            self.receive(half, true, &mut effects);
            self.pump(half, &mut effects);
        }
        self.finish(effects);
    }

    /// The I/O thread reads again: the stream's thread is about to sleep, took its time, or is done. What has come
    /// meanwhile, the next request too, is the I/O thread's to read.
    pub fn hand_back(&self) {
        let mut effects = Effects::default();
        let more = {
            let mut half = self.half.lock();
            let half = &mut *half;
            let reading = &mut half.reading;
            if reading.until.take().is_none() {
                if let Some(at) = reading.taken_back_at.take()
                    && clock::since(at) < WAITED
                {
                    reading.waits = (reading.waits + 1).min(MOST_WAITS);
                    reading.left = 1 << reading.waits;
                }
                return;
            }
            reading.waits = 0;
            let more = half.stop_reading();
            self.pump(half, &mut effects);
            more
        };
        self.finish(effects);
        if more {
            self.io.call_soon(self.source());
        }
    }

    /// The same where the stream's thread has not come back, at any timer of the connection. Returns whether the I/O
    /// thread reads now.
    pub(super) fn take_back_when_due(&self) -> bool {
        let mut half = self.half.lock();
        let reading = &mut half.reading;
        let now = clock::now();
        let timer = reading.timer.take_if(|at| now >= *at);
        let Some(until) = reading.until else {
            return true;
        };
        if now >= until {
            reading.until = None;
            // Who has not waited for anything yet has no timer.
            reading.taken_back_at = timer.map(|_| now);
            return true;
        }
        if timer.is_some() || reading.timer.is_none() {
            reading.timer = Some(until);
            drop(half);
            self.io.call_at(until, self.source());
        }
        false
    }
}
