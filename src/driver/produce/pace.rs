//! Which batches of a provider wait for the next ones.
//!
//! To write costs a system call, over a network's sockets some 5 us, and the peer one to read. A provider that is done with
//! a small batch in less makes the next ones before the consumer has looked at the last. So what such a provider makes is
//! written by several batches: not before it has been quick for a while, for it may have only a few; and not for long.
//! Should it take its time all of a sudden, the I/O thread writes what it left ([`ServedLink::cork_briefly`]).
//!
//! [`ServedLink::cork_briefly`]: crate::driver::served::ServedLink::cork_briefly

use std::time::Duration;

use crate::proto::Timestamp;

/// How long a quick batch takes at most to make. What sending takes says nothing: it is long while the consumer sleeps.
const QUICK: Duration = Duration::from_micros(10);
/// After that many quick batches, one after the other, the next ones wait.
const RUN: u32 = 8;
/// How long the first of them waits for the last.
const LONGEST: Duration = Duration::from_micros(20);
/// How many leave together.
const MOST: u32 = 8;

/// Whether a batch may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// It is written at once, with those that wait.
    Nothing,
    /// It waits, as the first.
    FromNow,
    /// It waits with others.
    On,
}

/// How quick the batches are, and which of them wait.
#[derive(Debug)]
pub(super) struct Pace {
    /// Quick batches, one after the other.
    run: u32,
    /// Something waits: at first what is said before the first batch.
    held: bool,
    /// Since when, and how many.
    since: Option<Timestamp>,
    batches: u32,
    /// Whether the last one was small.
    is_small: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            run: 0,
            held: true,
            since: None,
            batches: 0,
            is_small: true,
        }
    }
}

impl Pace {
    /// A batch, or its dictionary, is small or not: with a large one what it takes is not the system call.
    pub(super) fn note(&mut self, is_small: bool) {
        self.is_small = is_small;
    }

    /// Whether a batch may wait that was pulled at `now` and `made_in` so long; it is taken to be as small as the last one.
    pub(super) fn holds(&mut self, now: Timestamp, made_in: Duration) -> Holds {
        if made_in > QUICK || !self.is_small {
            self.run = 0;
            return Holds::Nothing;
        }
        if self.run < RUN {
            self.run += 1;
            return Holds::Nothing;
        }
        self.batches += 1;
        match self.since {
            None => {
                self.since = Some(now);
                self.held = true;
                Holds::FromNow
            }
            Some(since) if self.batches < MOST && now.saturating_since(since) < LONGEST => {
                Holds::On
            }
            Some(_) => Holds::Nothing,
        }
    }

    /// Whether something waits, which does not from now on.
    pub(super) fn take_held(&mut self) -> bool {
        self.since = None;
        self.batches = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Duration = Duration::from_micros(1);

    /// A pace that has seen a run of quick batches.
    fn running(now: Timestamp) -> Pace {
        let mut pace = Pace::default();
        assert!((0..RUN).all(|_| pace.holds(now, ONE) == Holds::Nothing));
        pace.take_held();
        pace
    }

    /// A short burst leaves batch by batch, a longer one by several, and none of these waits long.
    #[test]
    fn many_quick_batches_leave_together() {
        let now = crate::driver::clock::now();
        let mut pace = running(now);
        let together = |pace: &mut Pace, step: Duration| {
            let held = (0_u32..).map(|nth| pace.holds(now.saturating_add(step * nth), ONE));
            let held: Vec<_> = held.take_while(|it| *it != Holds::Nothing).collect();
            assert!(pace.take_held());
            assert_eq!(held[0], Holds::FromNow);
            assert!(held[1..].iter().all(|it| *it == Holds::On));
            held.len() + 1
        };
        assert_eq!(together(&mut pace, ONE), MOST as usize);
        assert_eq!(together(&mut pace, LONGEST / 2), 3);
        assert_eq!(together(&mut pace, LONGEST), 2);
        assert!(!pace.take_held());
    }

    /// One that took its time, and one that is large, leave at once, and those after them for a while.
    #[test]
    fn slow_and_large_batches_leave_at_once() {
        let now = crate::driver::clock::now();
        let mut pace = running(now);
        assert_eq!(pace.holds(now, ONE), Holds::FromNow);
        assert_eq!(pace.holds(now, QUICK + ONE), Holds::Nothing);
        assert!(pace.take_held());
        assert!((0..RUN).all(|_| pace.holds(now, ONE) == Holds::Nothing));
        pace.note(false);
        assert_eq!(pace.holds(now, ONE), Holds::Nothing);
        pace.note(true);
        assert!((0..RUN).all(|_| pace.holds(now, ONE) == Holds::Nothing));
        assert_eq!(pace.holds(now, ONE), Holds::FromNow);
    }
}
