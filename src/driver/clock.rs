//! The one place that reads the clock.

use std::time::{Duration, Instant};

use once_cell::sync::Lazy;

use crate::proto::Timestamp;

static ORIGIN: Lazy<Instant> = Lazy::new(read);

#[allow(
    clippy::disallowed_methods,
    reason = "this is the clock that everything else is given"
)]
fn read() -> Instant {
    Instant::now()
}

/// Monotonic time since the first call in this process.
pub fn now() -> Timestamp {
    let origin = *ORIGIN;
    let nanos = read().saturating_duration_since(origin).as_nanos();
    Timestamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// How long until `deadline`; zero when it has passed.
pub fn until(deadline: Timestamp) -> Duration {
    Duration::from_nanos(deadline.as_nanos().saturating_sub(now().as_nanos()))
}

/// The [`Timestamp`] of the system's `time`.
pub fn at(time: Instant) -> Timestamp {
    after(time.saturating_duration_since(read()))
}

/// How long ago `start` was.
pub fn since(start: Timestamp) -> Duration {
    now().saturating_since(start)
}

/// The point `wait` from now.
pub fn after(wait: Duration) -> Timestamp {
    now().saturating_add(wait)
}
