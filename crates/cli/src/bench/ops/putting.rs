//! How fast batches are taken that the client sends.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::Client;
use dipc::server::{HostProvider, ServerRequest};
use dipc::{Error, PutStats};

use crate::bench::base::case::Case;
use crate::bench::base::message::{Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, new_client};
use crate::bench::base::table::Ring;

/// Takes the batches of clients, and does nothing with them.
pub struct Taker;

impl HostProvider for Taker {
    fn open(&self, _: &ServerRequest) -> dipc::Result<OwnedDeviceStream> {
        Err(Error::unsupported("this server only takes tables"))
    }

    fn take(&self, request: &ServerRequest) -> dipc::Result<()> {
        let mut source = request.source()?;
        while source.next()?.is_some() {}
        Ok(())
    }
}

/// Sends the distinct batches in turn, in one stream, until the server has taken enough of them.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let ring = Arc::new(Ring::new(case)?);
    let client = new_client(case)?;
    let put = |enough: &dyn Fn(u64) -> bool| put(case, &client, &ready.uri, &ring, enough);
    if !case.cold {
        put(&|batches| batches >= case.warm_up())?;
    }
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let start = Instant::now();
    let deadline = start + case.seconds;
    let stats = put(&|batches| match case.batches {
        Some(share) => batches >= share,
        None => {
            batches > 0 && batches.is_multiple_of(case.clock_step()) && Instant::now() >= deadline
        }
    })?;
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
    enough: &dyn Fn(u64) -> bool,
) -> Result<PutStats> {
    let mut batches = ring.reader(None);
    let described = (&ring.schema()?, batches.device_type());
    let mut put = client.put(&[uri], TABLE, described, &case.put_options(), None)?;
    let mut sent = 0;
    while !enough(sent)
        && let Some(batch) = batches.next()?
    {
        put.push(batch, None, None).map_err(|(error, _)| error)?;
        sent += 1;
    }
    put.finish(None)?;
    Ok(put.stats())
}
