//! How fast the server takes batches that the client sends.

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use dipc::{Batches, Client, Error, Provider, PutStats, Reader, Request};

use crate::bench::base::case::Case;
use crate::bench::base::message::{Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, new_client};
use crate::bench::base::table::Ring;

/// Takes the batches of clients, and does nothing with them.
pub struct Taker;

impl Provider for Taker {
    fn get(&self, _: &Request<'_>) -> dipc::Result<Batches> {
        Err(Error::unsupported("this server only takes tables"))
    }

    fn put(&self, _: &Request<'_>, mut table: Reader) -> dipc::Result<()> {
        while table.next_array()?.is_some() {}
        Ok(())
    }
}

/// Sends the distinct batches in turn, in one stream, until the server has taken enough of them.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let ring = Arc::new(Ring::new(case)?);
    let client = new_client(case)?;
    if !case.cold {
        let warm_up = case.warm_up();
        let enough = move |batches| batches >= warm_up;
        put(case, &client, &ready.uri, &ring, enough)?;
    }
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let start = Instant::now();
    let (deadline, share, step) = (start + case.seconds, case.batches, case.clock_step());
    let enough = move |batches: u64| match share {
        Some(share) => batches >= share,
        None => batches > 0 && batches.is_multiple_of(step) && Instant::now() >= deadline,
    };
    let stats = put(case, &client, &ready.uri, &ring, enough)?;
    let seconds = start.elapsed().as_secs_f64();
    let used = before.until_now()?;
    parent.say(Outcome {
        seconds,
        batches: stats.batches,
        fetches: 1,
        lent_bytes: stats.bytes_lent,
        copied_bytes: stats.bytes_copied,
        received_bytes: stats.bytes_sent,
        ..used
    })
}

/// Sends one stream, until the server has taken the whole of it.
fn put(
    case: &Case,
    client: &Client,
    uri: &str,
    ring: &Arc<Ring>,
    enough: impl Fn(u64) -> bool + Send + 'static,
) -> Result<PutStats> {
    let mut arrays = ring.arrays(None);
    let mut sent = 0;
    let arrays = iter::from_fn(move || {
        let next = (!enough(sent)).then(|| arrays.next()).flatten();
        sent += 1;
        next
    });
    let table = ring.table(arrays);
    let mut put = client.start_put_of(uri, TABLE, table, &case.put_options())?;
    put.finish()?;
    Ok(put.stats())
}
