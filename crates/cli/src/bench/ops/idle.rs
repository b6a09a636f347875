//! The cost of idle streams.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::TryStreamExt as _;

use crate::bench::base::case::Case;
use crate::bench::base::message::{Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, WARM_UP, new_client, runtime};

/// Time for the streams to become idle: the server first fills the window of each.
const SETTLE: Duration = Duration::from_secs(1);

/// Opens the streams, and takes one batch from each. Then the windows are full, and the server
/// pauses.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let runtime = runtime()?;
    let client = new_client(case)?;
    let options = case.get_options();
    if !case.cold {
        // The first stream of a process costs more than later streams, so one is fetched before.
        let mut stream = client.get_with(&ready.uri, WARM_UP, &options)?;
        while stream.next_array()?.is_some() {}
    }
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let mut streams = Vec::new();
    for _ in 0..case.streams {
        // The streams share a connection, as in an event loop.
        let asked = client.get_async_with(&ready.uri, TABLE, &options);
        let mut stream = runtime.block_on(asked)?;
        if runtime.block_on(stream.try_next())?.is_none() {
            bail!("the server's table has no batches");
        }
        streams.push(stream);
    }
    thread::sleep(SETTLE);
    let open = Usage::now()?;
    if !parent.ready()? {
        return Ok(());
    }
    thread::sleep(case.seconds);
    let used = open.until_now()?;
    let (mut lent_bytes, mut copied_bytes, mut received_bytes) = (0, 0, 0);
    for stream in &streams {
        let stats = stream.stats();
        lent_bytes += stats.bytes_lent;
        copied_bytes += stats.bytes_copied;
        received_bytes += stats.bytes_received;
    }
    let grown = open.private_bytes.saturating_sub(before.private_bytes);
    parent.say(Outcome {
        seconds: case.seconds.as_secs_f64(),
        batches: u64::from(case.streams),
        fetches: u64::from(case.streams),
        lent_bytes,
        copied_bytes,
        received_bytes,
        stream_bytes: Some(grown / u64::from(case.streams)),
        ..used
    })?;
    // The command reads the server's figures next, before the streams end.
    parent.go()?;
    drop(streams);
    Ok(())
}
