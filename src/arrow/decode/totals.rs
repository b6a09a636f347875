//! Limits for all dictionaries of a stream together, beside the limits of each message.
//!
//! A dictionary may have no bytes, so a window does not limit the number of dictionaries. The
//! consumer does not limit it either, because it waits for a batch and sees no dictionaries.

use crate::arrow::decode::budget::{TIMES_OF_DICTIONARY, covered};
use crate::arrow::decode::options::TIMES_OF_BODIES;
use crate::device::BufferRef;
use crate::error::{Error, Result};

/// The least that a dictionary counts, in bytes: its entry, its lists and the handling of its
/// message.
const EACH: u64 = 1 << 10;

/// The costs of the dictionaries that are kept, and of those since the last batch.
#[derive(Debug, Default)]
pub(super) struct DictionaryTotals {
    /// Bytes that were made for dictionaries since the last batch.
    made: u64,
    /// Bytes that may be made for the same dictionaries because of their bodies.
    allowed: u64,
    /// Bytes of the bodies of the dictionaries that are kept.
    bodies: u64,
    /// Bytes of the structs of the dictionaries that are kept.
    structs: u64,
}

/// The bytes of a dictionary that stay with it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    /// Bytes of the bodies of the dictionary and its deltas.
    pub(super) bodies: u64,
    /// Bytes of its structs.
    pub(super) structs: u64,
}

impl Kept {
    /// The bytes of a dictionary from bodies of `bodies` bytes, whose structs have `structs` bytes.
    pub(super) fn of(structs: u64, bodies: u64) -> Self {
        Self {
            bodies,
            structs: EACH.saturating_add(structs),
        }
    }
}

impl DictionaryTotals {
    /// Notes that a batch has come. The counts since the last batch start anew.
    pub(super) fn batch(&mut self) {
        (self.made, self.allowed) = (0, 0);
    }

    /// Counts a dictionary that replaces one with the costs `before`. The new one was made from
    /// `body`, and `copied` bytes were copied for it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`: the dictionaries together are past `limit`.
    pub(super) fn add(
        &mut self,
        limit: u64,
        before: Kept,
        kept: Kept,
        copied: u64,
        body: &[BufferRef],
    ) -> Result<()> {
        let allowed = covered(body).saturating_mul(TIMES_OF_DICTIONARY);
        let made = copied.saturating_add(kept.structs);
        let replaced = |all: u64, old: u64, new: u64| all.saturating_sub(old).saturating_add(new);
        let next = Self {
            made: self.made.saturating_add(made),
            allowed: self.allowed.saturating_add(allowed),
            bodies: replaced(self.bodies, before.bodies, kept.bodies),
            structs: replaced(self.structs, before.structs, kept.structs),
        };
        let most_bodies = limit.saturating_mul(TIMES_OF_BODIES);
        for (bytes, most, what) in [
            (next.bodies, most_bodies, "the bodies of all dictionaries"),
            (next.structs, limit, "the structs of all dictionaries"),
            (
                next.made,
                limit.saturating_add(next.allowed),
                "the dictionaries since the last batch",
            ),
        ] {
            if bytes > most {
                return Err(past_totals(what, bytes, most));
            }
        }
        *self = next;
        Ok(())
    }
}

#[cold]
fn past_totals(what: &str, bytes: u64, most: u64) -> Error {
    Error::out_of_memory(format!(
        "{what} take {bytes} bytes, past the stream's limit for its dictionaries ({most} bytes): \
         raise message_limit_bytes (--max-message) if the sender is trusted, or have it send fewer"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn kept(bodies: u64, structs: u64) -> Kept {
        Kept { bodies, structs }
    }

    fn add(totals: &mut DictionaryTotals, before: Kept, after: Kept, copied: u64) -> Result<()> {
        totals.add(1000, before, after, copied, &[])
    }

    /// Rule A8: the work on dictionaries between two batches has a limit, also if none of them is
    /// kept, and a batch begins it anew.
    #[test]
    fn dictionaries_between_batches_are_counted_together() {
        let mut totals = DictionaryTotals::default();
        for round in 0..3 {
            for copied in [300, 300, 300] {
                let before = kept(
                    0,
                    if round == 0 && totals.made == 0 {
                        0
                    } else {
                        10
                    },
                );
                add(&mut totals, before, kept(0, 10), copied).unwrap();
            }
            let error = add(&mut totals, kept(0, 10), kept(0, 10), 300).unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory);
            assert!(error.text().contains("since the last batch"), "{error}");
            totals.batch();
        }
        // What a body has may be made of it several times.
        let body = BufferRef::of(&[0; 100]);
        let made = 1000 + 100 * TIMES_OF_DICTIONARY - 10;
        let mut other = DictionaryTotals::default();
        other
            .add(1000, Kept::default(), kept(100, 10), made, &[body])
            .unwrap();
        add(&mut other, kept(100, 10), kept(100, 10), 0).unwrap_err();
    }

    /// Rule A8: bodies and structs of the dictionaries that are kept have a limit. A replaced
    /// dictionary gives its part back.
    #[test]
    fn dictionaries_that_are_kept_are_counted_together() {
        let mut totals = DictionaryTotals::default();
        let most = 1000 * TIMES_OF_BODIES;
        add(&mut totals, Kept::default(), kept(most, 0), 0).unwrap();
        let error = add(&mut totals, Kept::default(), kept(1, 0), 0).unwrap_err();
        assert!(error.text().contains("the bodies of all"), "{error}");
        add(&mut totals, kept(most, 0), kept(most, 0), 0).unwrap();
        let mut totals = DictionaryTotals::default();
        add(&mut totals, Kept::default(), kept(0, 600), 0).unwrap();
        totals.batch();
        let error = add(&mut totals, Kept::default(), kept(0, 600), 0).unwrap_err();
        assert!(error.text().contains("the structs of all"), "{error}");
        // Without a limit nothing is refused.
        totals
            .add(u64::MAX, Kept::default(), kept(u64::MAX, 1), u64::MAX, &[])
            .unwrap();
    }
}
