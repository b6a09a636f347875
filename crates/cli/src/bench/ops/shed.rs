//! What a request costs a busy server that refuses it, compared with a request that it serves.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dipc::{Client, GetOptions, Status};

use crate::bench::base::case::Case;
use crate::bench::base::message::{Latency, Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, WARM_UP, new_client};
use crate::bench::base::timing::{WARM_UP_STEPS, histogram, nanoseconds, repeat, wait_until};

/// Asks for the table again and again: first the server has room for the stream, then another
/// stream has its only place. As many requests are refused as were served, at the same pace.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let asking = Asking {
        case,
        client: new_client(case)?,
        uri: &ready.uri,
        options: case.get_options(),
    };
    for _ in 0..if case.cold { 0 } else { WARM_UP_STEPS } {
        asking.be_served()?;
    }
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let start = Instant::now();
    let served = repeat(case, 1, || asking.be_served())?.batches;
    if !parent.ready()? {
        return Ok(());
    }
    let mut times = histogram()?;
    // It has room for one batch of several, so it stays.
    let options = asking.options.clone().window(1, case.window_bytes);
    let holding = asking.client.get_with(asking.uri, WARM_UP, &options)?;
    for _ in 0..served {
        times.saturating_record(asking.be_refused()?.max(1));
    }
    let seconds = start.elapsed().as_secs_f64();
    let used = before.until_now()?;
    parent.say(Outcome {
        seconds,
        batches: served,
        fetches: served,
        latency: Some(Latency::of(&times)),
        ..used
    })?;
    // The command reads the server's figures next, before the stream ends.
    parent.go()?;
    drop(holding);
    Ok(())
}

struct Asking<'a> {
    case: &'a Case,
    client: Client,
    uri: &'a str,
    options: GetOptions,
}

impl Asking<'_> {
    fn be_served(&self) -> Result<()> {
        wait_until(Instant::now() + self.case.interval, self.case);
        let mut stream = self.client.get_with(self.uri, TABLE, &self.options)?;
        stream.next_array()?.context("the table is empty")?;
        // Up to its end, so that the connection can be reused.
        while stream.next_array()?.is_some() {}
        Ok(())
    }

    /// Gives the time of the answer, in nanoseconds.
    fn be_refused(&self) -> Result<u64> {
        wait_until(Instant::now() + self.case.interval, self.case);
        let start = Instant::now();
        let asked = self.client.get_with(self.uri, TABLE, &self.options);
        let took = nanoseconds(start.elapsed());
        match asked {
            Err(error) if error.status() == Status::Busy => Ok(took),
            Err(error) => Err(error.into()),
            Ok(_) => bail!("a server without room has served a request"),
        }
    }
}
