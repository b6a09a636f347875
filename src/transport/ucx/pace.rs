//! How often the end of sends is looked at.
//!
//! A large body stays with its sender until the receiver has fetched it and says so, which wakes whoever sleeps
//! on the sender's worker. The wake is paid by the receiver, between two copies: a system call, and some 10 us
//! more where the sender's processor has halted. So while many bytes wait to be fetched nobody is to be woken;
//! the sender looks again when half of them may be gone. Where too little is then, it lets itself be woken
//! again, and tries less and less often.

use std::time::Duration;

/// What a receiver copies in a microsecond at most, in bytes: out of huge pages. Where it takes longer the sender looks too
/// early, which costs little; too late, and the receiver has nothing to do.
const FASTEST: u64 = 25_000;
/// The shortest pause. Less is soon over, and asleep half of that.
const SHORTEST: Duration = Duration::from_micros(200);
/// The longest pause: so much later a message that ends no send may be read.
const LONGEST: Duration = Duration::from_millis(1);
/// Sends that end in a pause which is worth it: so many wakes are one.
const WORTH: u32 = 2;
/// After that many pauses in vain there is one for each 2^8 chances.
const MOST_IN_VAIN: u32 = 8;

/// What a connection knows of its sends.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Sends that have ended since it was last asked for a pause.
    ended: u32,
    /// There was one.
    paused: bool,
    /// Pauses in vain, one after the other.
    in_vain: u32,
    /// Chances to let pass.
    skip: u32,
}

impl Pace {
    /// A send that was under way has ended.
    pub(super) fn note_end(&mut self) {
        self.ended = self.ended.saturating_add(1);
    }

    /// How long to leave the worker alone now, with so many bytes that wait to be fetched; `None`: whoever sleeps is to be woken
    /// by what comes.
    pub(super) fn pause(&mut self, bytes: u64) -> Option<Duration> {
        let ended = std::mem::take(&mut self.ended);
        if std::mem::take(&mut self.paused) {
            if ended >= WORTH {
                self.in_vain = 0;
            } else {
                self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
                self.skip = 1 << self.in_vain;
            }
        }
        let pause = Duration::from_micros(bytes / 2 / FASTEST).min(LONGEST);
        if ended == 0 || pause < SHORTEST {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.paused = true;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A pause is so long that half of what is under way may be gone, and never long.
    #[test]
    fn a_pause_lasts_until_half_may_be_done() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(16 * MIB), None, "none has ended");
        pace.note_end();
        assert_eq!(pace.pause(16 * MIB), Some(Duration::from_micros(335)));
        (0..WORTH).for_each(|_| pace.note_end());
        assert_eq!(pace.pause(256 * MIB), Some(LONGEST));
        (0..WORTH).for_each(|_| pace.note_end());
        assert_eq!(pace.pause(MIB), None, "soon done");
    }

    /// A peer that fetches little in pauses is soon left alone with them, and is not once it does again.
    #[test]
    fn pauses_in_vain_become_seldom() {
        let mut pace = Pace::default();
        let chance = |pace: &mut Pace, ended: u32| {
            (0..ended).for_each(|_| pace.note_end());
            pace.pause(16 * MIB).is_some()
        };
        let paused = (0..1024).filter(|_| chance(&mut pace, 1)).count();
        assert!((8..20).contains(&paused), "{paused} pauses");
        while !chance(&mut pace, WORTH) {}
        assert!((0..100).all(|_| chance(&mut pace, WORTH)));
    }
}
