//! A look for more before a thread sleeps.
//!
//! To put a thread to sleep and to wake it costs the two ends some 50 us where their processors halt
//! meanwhile, and a few where they share one. Within a stream the other end has mostly said more before
//! that time is over; so a thread looks for it that long, and gives way to whoever wants its processor. Where
//! that was in vain it looks less and less often, so that what comes now and then costs nothing. But not where much came since the
//! last look: the other end is at work then, and waits for this one as soon as its credit is used. With each of them asleep while
//! the other wakes all looks would be in vain.

use std::time::Duration;

use crate::driver::clock;

/// How long a look takes at most: as long as what it may save.
const LONGEST: Duration = Duration::from_micros(50);
/// After that many looks in vain there is one for each 2^6 sleeps.
const MOST_IN_VAIN: u32 = 6;

/// What comes at once in a stream whose other end is at work: messages, or batches. Less may be all that there is.
const MUCH: u32 = 8;
/// After that there is a look for each fourth sleep, at least.
const MOST_SKIPPED: u32 = 3;

/// What a thread knows of its looks.
#[derive(Debug, Default)]
pub struct Brief {
    /// Looks in vain, one after the other.
    in_vain: u32,
    /// Sleeps without a look still to come.
    skip: u32,
    /// How much came since the last look or sleep.
    came: u32,
}

impl Brief {
    /// So much came without a look: messages, or batches.
    pub fn note(&mut self, came: usize) {
        let came = u32::try_from(came).unwrap_or(u32::MAX);
        self.came = self.came.saturating_add(came);
    }

    /// Calls `look` for a while, if it is worth it. Returns whether it found something.
    pub fn look(&mut self, mut look: impl FnMut() -> bool) -> bool {
        if std::mem::take(&mut self.came) >= MUCH {
            self.skip = self.skip.min(MOST_SKIPPED);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let start = clock::now();
        loop {
            // Whoever is to say more may need this processor.
            std::thread::yield_now();
            if look() {
                self.in_vain = 0;
                return true;
            }
            if clock::since(start) >= LONGEST {
                break;
            }
        }
        self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        self.skip = (1 << self.in_vain) - 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread to which little is said looks seldom, and often again once that has changed.
    #[test]
    fn looks_in_vain_become_seldom() {
        let mut brief = Brief::default();
        let looks = |brief: &mut Brief, found: bool| {
            let mut looked = false;
            brief.look(|| {
                looked = true;
                found
            });
            looked
        };
        let in_vain = (0..1024).filter(|_| looks(&mut brief, false)).count();
        assert!((16..32).contains(&in_vain), "{in_vain} looks");
        while !looks(&mut brief, true) {}
        assert!((0..100).all(|_| looks(&mut brief, true)));
    }

    /// A thread that is told much goes on looking, found or not.
    #[test]
    fn what_comes_in_plenty_is_looked_for() {
        let mut brief = Brief::default();
        let mut looks = |came: usize| {
            let mut looked = false;
            brief.note(came);
            brief.look(|| {
                looked = true;
                false
            });
            looked
        };
        let much = usize::try_from(MUCH).unwrap();
        let looked = (0..1024).filter(|_| looks(much)).count();
        assert!(looked >= 256, "{looked} looks");
        let looked = (0..1024).filter(|_| looks(much - 1)).count();
        assert!(looked < 32, "{looked} looks");
    }
}
