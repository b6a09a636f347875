//! Time as an argument: the machines never read a clock.

use std::time::Duration;

/// A moment of the caller's monotonic clock, in nanoseconds from any origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `by` later, or the last possible moment.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of [`Timestamp`]: neither end of the range panics or wraps.
    #[test]
    fn arithmetic_saturates() {
        let late = Timestamp::from_nanos(u64::MAX - 1);
        assert_eq!(late.saturating_add(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(
            late.saturating_add(Duration::from_nanos(1)).as_nanos(),
            u64::MAX
        );
        assert_eq!(Timestamp::default().saturating_since(late), Duration::ZERO);
        assert_eq!(
            Timestamp::from_nanos(30).saturating_since(Timestamp::from_nanos(10)),
            Duration::from_nanos(20)
        );
    }
}
