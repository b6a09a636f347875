//! How long the first batch of a new stream takes, and a description.

use std::time::Instant;

use anyhow::{Result, bail};
use dipc::{Client, ClientBuilder, StreamStats};

use crate::bench::base::case::{Case, Scheme};
use crate::bench::base::message::{Parent, Ready};
use crate::bench::base::streams::{TABLE, client_builder, new_client};
use crate::bench::base::timing::{Run, WARM_UP_STEPS, nanoseconds, wait_until};

/// Measures the time from the request for a stream until its first batch. Both processes sleep
/// before.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let mut connector = Connector {
        case,
        uri: &ready.uri,
        client: new_client(case)?,
        clients: new_clients(case)?,
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
        client.describe_with(&ready.uri, TABLE, &options)?;
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

/// Makes clients that have already read their files, which a client does once and not for each
/// connection.
fn new_clients(case: &Case) -> dipc::Result<ClientBuilder> {
    let clients = client_builder(case)?;
    match case.transport {
        Scheme::Tls => clients.read_tls(),
        Scheme::Shm | Scheme::Tcp | Scheme::Ucx => Ok(clients),
    }
}

struct Connector<'a> {
    case: &'a Case,
    uri: &'a str,
    client: Client,
    /// Makes clients that resume each other's sessions.
    clients: ClientBuilder,
    /// The bytes up to now.
    stats: StreamStats,
}

impl Connector<'_> {
    /// The time of one stream, in nanoseconds.
    fn time(&mut self) -> Result<u64> {
        if self.case.fresh {
            if !self.case.resume {
                self.clients = new_clients(self.case)?;
            }
            self.client = self.clients.clone().build()?;
        }
        wait_until(Instant::now() + self.case.interval, self.case);
        let options = self.case.get_options();
        let start = Instant::now();
        let mut stream = self.client.get_with(self.uri, TABLE, &options)?;
        let first = stream.next_array()?;
        let took = start.elapsed();
        if first.is_none() {
            bail!("the table is empty");
        }
        drop(first);
        // Up to its end, so that the connection can be reused.
        while stream.next_array()?.is_some() {}
        self.stats = self.stats + stream.stats();
        Ok(nanoseconds(took))
    }
}
