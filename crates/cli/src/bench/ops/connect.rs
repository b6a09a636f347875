//! How long the first batch of a new stream takes, and a description.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use dipc::StreamStats;
use dipc::arrow::stream::ArrayReader as _;
use dipc::client::Client;
use dipc::transport::TlsOptions;

use crate::bench::base::case::{Case, Scheme};
use crate::bench::base::certificate;
use crate::bench::base::message::{Parent, Ready};
use crate::bench::base::streams::{TABLE, client_with, new_client};
use crate::bench::base::timing::{Run, WARM_UP_STEPS, nanoseconds, wait_until};

/// Measures the time from the request for a stream until its first batch. Both processes sleep
/// before.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let mut connector = Connector {
        case,
        uri: &ready.uri,
        client: new_client(case)?,
        tls: certificate::of_client(case.certificate.as_deref()),
        stats: StreamStats::default(),
    };
    for _ in 0..if case.cold { 0 } else { WARM_UP_STEPS } {
        connector.time()?;
    }
    connector.stats = StreamStats::default();
    if !parent.ready()? {
        return Ok(());
    }
    let mut run = Run::start()?;
    while !run.record(connector.time()?, case) {}
    let mut outcome = run.outcome()?.with(connector.stats);
    outcome.fetches = outcome.batches;
    parent.say(outcome)
}

/// Measures the time from the request for a description until the whole of it is there. Both
/// processes sleep before.
pub fn describe(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let client = new_client(case)?;
    let options = case.get_options();
    let time = || -> Result<u64> {
        wait_until(Instant::now() + case.interval, case);
        let start = Instant::now();
        client.describe(&[&ready.uri], TABLE, &options, None)?;
        Ok(nanoseconds(start.elapsed()))
    };
    for _ in 0..if case.cold { 0 } else { WARM_UP_STEPS } {
        time()?;
    }
    if !parent.ready()? {
        return Ok(());
    }
    let mut run = Run::start()?;
    while !run.record(time()?, case) {}
    let mut outcome = run.outcome()?;
    outcome.fetches = outcome.batches;
    parent.say(outcome)
}

struct Connector<'a> {
    case: &'a Case,
    uri: &'a str,
    client: Client,
    /// What clients share that resume sessions.
    tls: Arc<TlsOptions>,
    /// The bytes up to now.
    stats: StreamStats,
}

impl Connector<'_> {
    /// The time of one stream, in nanoseconds.
    fn time(&mut self) -> Result<u64> {
        if self.case.fresh {
            if !self.case.resume {
                self.tls = certificate::of_client(self.case.certificate.as_deref());
            }
            // A client reads its files once, not for each connection.
            if self.case.transport == Scheme::Tls {
                self.tls.read_client()?;
            }
            self.client = client_with(self.case, Arc::clone(&self.tls))?;
        }
        wait_until(Instant::now() + self.case.interval, self.case);
        let options = self.case.get_options();
        let start = Instant::now();
        let mut stream = self.client.get(&[self.uri], TABLE, &options, None)?;
        let first = stream.next()?;
        let took = start.elapsed();
        if first.is_none() {
            bail!("the table is empty");
        }
        drop(first);
        // Up to its end, so that the connection can be reused.
        while stream.next()?.is_some() {}
        self.stats = self.stats + stream.stats();
        Ok(nanoseconds(took))
    }
}
