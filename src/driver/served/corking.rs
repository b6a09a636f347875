//! What waits to be written, so that it shares a system call, and a wake of the peer, with what follows.

use std::time::Duration;

use super::{Effects, Half, ServedLink};
use crate::driver::clock;
use crate::driver::io::TimerKey;
use crate::error::Result;
use crate::proto::Timestamp;

/// How long something waits for what may follow, give or take the system's timers (a millisecond).
const BRIEF: Duration = Duration::from_micros(200);
/// The same for what a stream begins with. On a virtual machine it takes 6 us to set a timer that is the next thing a processor has to
/// wake for (an exit to the hypervisor), and 0.3 where that is later than what the system itself wakes for.
const OPENING: Duration = Duration::from_millis(10);
/// As many bytes as are worth a system call although more are about to follow: the peer works on
/// them meanwhile.
const ENOUGH_BYTES: u64 = 32 << 10;

/// Whether a connection writes at once.
#[derive(Debug, Default)]
pub(super) struct Cork {
    /// More is about to follow.
    pub(super) is_in: bool,
    /// When it is written all the same.
    until: Option<Timestamp>,
    /// When the I/O thread looks after that: once for many corks of a quick stream, since to set a timer takes longer than a batch.
    timer: Option<TimerKey>,
    /// There was a cork since that timer was set.
    is_used: bool,
}

impl Cork {
    /// When to look next, where it is time `now` for what the last look left, and what waits is `due` or not.
    fn next_look(&mut self, now: Timestamp, due: bool) -> Option<Timestamp> {
        // Of the connection's timers this may be another one.
        self.timer.take_if(|timer| now >= timer.deadline)?;
        let is_used = std::mem::take(&mut self.is_used);
        match self.until {
            Some(until) => Some(until).filter(|_| !due),
            None => is_used.then(|| clock::after(BRIEF)),
        }
    }

    /// The stream is over: nobody need look. Gives the timer that is not needed.
    pub(super) fn take_timer(&mut self) -> Option<TimerKey> {
        self.is_used = false;
        self.timer.take()
    }
}

impl Half {
    /// Whether what is queued waits for more.
    pub(super) fn is_corked(&self) -> bool {
        self.cork.is_in && self.link.queued_bytes() < ENOUGH_BYTES
    }

    /// Writes what was queued, unless more is about to follow.
    pub(super) fn write(&mut self) -> Result<()> {
        if self.is_corked() {
            return Ok(());
        }
        self.link.write_queued()
    }
}

impl ServedLink {
    /// What is sent from now on may wait until [`uncork`](Self::uncork); the caller neither sleeps nor calls the host
    /// meanwhile.
    pub fn cork(&self) {
        self.half.lock().cork.is_in = true;
    }

    /// As [`cork`](Self::cork), for a moment, in which the caller may call the host.
    pub fn cork_briefly(&self) {
        self.cork_for(BRIEF);
    }

    /// The same at the start of a stream, for a longer moment.
    pub fn cork_opening(&self) {
        self.cork_for(OPENING);
    }

    fn cork_for(&self, time: Duration) {
        let until = clock::after(time);
        let cork = &mut self.half.lock().cork;
        cork.is_in = true;
        cork.until = Some(until);
        // That of the start of the stream comes too late for a batch.
        if let Some(late) = cork.timer.take_if(|timer| timer.deadline > until) {
            self.io.cancel(late);
        }
        cork.is_used = cork.timer.is_some();
        if cork.timer.is_none() {
            cork.timer = Some(self.io.call_at(until, self.source()));
        }
    }

    /// Writes what has waited.
    pub fn uncork(&self) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            half.cork.is_in = false;
            half.cork.until = None;
            self.pump(&mut half, &mut effects);
        }
        self.finish(effects);
    }

    /// Lets a client have the caller's processor that has just been sent what a stream begins with, and may wait for it there:
    /// what the caller goes on with, the end of a short stream and the release of its memory, nobody waits for. Where both
    /// ends spin each has a processor, and the other threads that spin would take the caller's.
    pub fn give_way(&self) {
        if self.io.spin().is_zero() {
            std::thread::yield_now();
        }
    }

    /// Writes what has waited long enough: whoever makes what follows takes its time.
    pub(super) fn uncork_when_due(&self) {
        let now = clock::now();
        let due = {
            let cork = &mut self.half.lock().cork;
            let due = cork.until.is_some_and(|at| now >= at);
            if let Some(at) = cork.next_look(now, due) {
                cork.timer = Some(self.io.call_at(at, self.source()));
            }
            due
        };
        if due {
            self.uncork();
            // Of what a stream begins with nothing is there yet.
            self.say_pending();
        }
    }
}
