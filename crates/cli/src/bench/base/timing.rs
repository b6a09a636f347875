//! Times: waits, clocks, and the repetition of steps for the time of a case.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::case::Case;
use super::message::{Latency, Outcome, Parent, Usage};

/// Batches, streams or requests before the measurement.
pub const WARM_UP_STEPS: u64 = 32;

/// How long a spinning host keeps its core before it yields to other spinning threads.
const YIELD_PAUSE: Duration = Duration::from_micros(10);

/// Waits until `due`. Spins if both ends of the case spin.
pub fn wait_until(due: Instant, case: &Case) {
    let mut yielded = Instant::now();
    loop {
        let now = Instant::now();
        let left = due.saturating_duration_since(now);
        if left.is_zero() {
            return;
        }
        if case.spin.is_zero() {
            thread::sleep(left);
        } else if now - yielded >= YIELD_PAUSE {
            thread::yield_now();
            yielded = now;
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The figures of a measurement of times.
pub struct Run {
    times: Histogram<u64>,
    usage: Usage,
    start: Instant,
}

impl Run {
    pub fn start() -> Result<Self> {
        Ok(Self {
            times: histogram()?,
            usage: Usage::now()?,
            start: Instant::now(),
        })
    }

    /// Returns whether the measurement is complete.
    pub fn record(&mut self, nanoseconds: u64, case: &Case) -> bool {
        self.times.saturating_record(nanoseconds.max(1));
        match case.batches {
            Some(batches) => self.times.len() >= batches,
            None => self.start.elapsed() >= case.seconds,
        }
    }

    pub fn outcome(self) -> Result<Outcome> {
        let seconds = self.start.elapsed().as_secs_f64();
        let used = self.usage.until_now()?;
        Ok(Outcome {
            seconds,
            batches: self.times.len(),
            latency: Some(Latency::of(&self.times)),
            ..used
        })
    }
}

/// Repeats `step` for the case's time, and reads the clock after each `many` steps. Gives the
/// number of steps and their time.
pub fn repeat(case: &Case, many: u64, mut step: impl FnMut() -> Result<()>) -> Result<Outcome> {
    let before = Usage::now()?;
    let start = Instant::now();
    let mut count = 0_u64;
    while match case.batches {
        Some(batches) => count < batches,
        None => !count.is_multiple_of(many) || start.elapsed() < case.seconds,
    } {
        step()?;
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = before.until_now()?;
    Ok(Outcome {
        seconds,
        batches: count,
        ..used
    })
}

/// How many small steps pass between two readings of the clock.
pub fn many(case: &Case) -> u64 {
    (64 << 10) / case.batch_bytes() + 1
}

/// Repeats a small `step` when the command says so, and reports its speed.
pub fn measure(case: &Case, parent: &Parent, step: impl FnMut() -> Result<()>) -> Result<()> {
    match parent.ready()? {
        true => parent.say(repeat(case, many(case), step)?),
        false => Ok(()),
    }
}

/// The same for a `step` that gives its time in nanoseconds.
pub fn measure_times(
    case: &Case,
    parent: &Parent,
    mut step: impl FnMut() -> Result<u64>,
) -> Result<()> {
    let mut times = histogram()?;
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, 1, || {
        times.saturating_record(step()?.max(1));
        Ok(())
    })?;
    parent.say(Outcome {
        latency: Some(Latency::of(&times)),
        ..outcome
    })
}

/// A time as a number for a histogram.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic clock, in nanoseconds; the same in both processes.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let nanoseconds = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}

/// A histogram of nanoseconds, to three digits, up to a minute.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("cannot make a histogram")
}
