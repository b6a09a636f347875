//! Requests that a server refuses because it is busy: a call with a deadline asks again (rule Q8).

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::cancel::Cancel;
use crate::driver::{clock, waiting};
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;

/// The shortest pause, whatever the server asks for: repeating at once would load both ends.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest pause, unless the server asks for a longer one.
const LONGEST: Duration = Duration::from_secs(5);

/// The tries of one request.
pub(super) struct Tries {
    /// The request's deadline. `None`: there is one try.
    due: Option<Timestamp>,
    made: u32,
}

impl Tries {
    pub(super) fn until(due: Option<Timestamp>) -> Self {
        Self { due, made: 0 }
    }

    /// When to make the next try, after a try that failed with `error`.
    ///
    /// # Errors
    ///
    /// `error` if there is no next try.
    pub(super) fn next(&mut self, error: Error) -> Result<Timestamp> {
        let advised = error.advice().and_then(|advice| advice.retry_after);
        let (Status::Busy, Some(due), Some(advised)) = (error.status(), self.due, advised) else {
            return Err(error);
        };
        let advised = advised.max(SHORTEST);
        let left = clock::until(due);
        if left <= advised {
            return Err(error);
        }
        let by_chance = random();
        let mut wait = pause(advised, self.made, by_chance);
        if wait >= left {
            // The last tries come at different times, too.
            let spare = left.saturating_sub(advised);
            wait = advised.saturating_add(spare.saturating_mul(by_chance.into()) / 256);
        }
        let at = clock::after(wait);
        self.made = self.made.saturating_add(1);
        tracing::debug!("asked again soon: {error}");
        Ok(at)
    }

    /// Waits until the next try, after a try that failed with `error`.
    ///
    /// # Errors
    ///
    /// `error` if there is no next try; `Cancelled`.
    pub(super) fn wait(&mut self, error: Error, cancel: Option<&Cancel>) -> Result<()> {
        let at = self.next(error)?;
        while clock::now() < at {
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            waiting::sleep([], None, cancel, Some(at))?;
        }
        Ok(())
    }
}

/// At least as long as the server has advised, and longer with each try. The pauses of clients
/// differ, so that clients that were refused together do not come again together.
fn pause(advised: Duration, made: u32, random: u8) -> Duration {
    let longer = advised.saturating_mul(1 << made.min(6));
    let longer = longer.min(LONGEST.max(advised));
    longer.saturating_add(longer.saturating_mul(random.into()) / 256)
}

/// The middle of the range, if the system has no random bytes yet.
fn random() -> u8 {
    let mut byte = [128];
    let _ = getrandom(&mut byte[..], GetRandomFlags::NONBLOCK);
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Advice;

    /// Rule Q8: a server that asks for no pause does not make its clients ask without one.
    #[test]
    fn there_is_always_a_pause() {
        let mut tries = Tries::until(Some(clock::after(Duration::from_secs(60))));
        let advice = Advice {
            retry_after: Some(Duration::ZERO),
            ..Advice::default()
        };
        let busy = Error::new(Status::Busy, "full").with_advice(Some(advice));
        for _ in 0..3 {
            let before = clock::now();
            let next = tries.next(busy.clone()).unwrap();
            assert!(next >= before.saturating_add(SHORTEST));
        }
    }

    /// Rule Q8: each pause is at least as long as the server has advised, and later ones are
    /// longer.
    #[test]
    fn pauses_grow_from_the_advised_one() {
        let millis = Duration::from_millis;
        assert_eq!(pause(millis(100), 0, 0), millis(100));
        assert_eq!(pause(millis(100), 0, 128), millis(150));
        assert_eq!(pause(millis(100), 2, 0), millis(400));
        assert_eq!(pause(millis(100), 1000, 0), LONGEST);
        assert_eq!(pause(millis(60_000), 3, 0), millis(60_000));
        assert!(pause(Duration::MAX, u32::MAX, 255) > LONGEST);
    }
}
