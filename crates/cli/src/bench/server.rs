//! The serving process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use dipc::{Request, Server};

use super::base::case::{Case, Op, Source};
use super::base::message::{Parent, Ready, Usage};
use super::base::streams::{TABLE, WARM_UP, allow_descriptors};
use super::base::table::Ring;
use super::ops::flight::OneBatchServer;
use super::ops::latency::StampProvider;
use super::ops::{filtering, machine, pushing, putting};
use crate::listening::listen;

/// Serves until the command ends, and reports its usage on request.
pub fn run(case: &Case, parent: &Parent) -> Result<()> {
    allow_descriptors();
    if case.op == Op::Machine {
        return machine::serve(case, parent);
    }
    let (server, mut ready) = start(case)?;
    // It answers until the end of this process.
    let flight = (case.op == Op::Open).then(|| OneBatchServer::start(case));
    let flight = flight.transpose()?;
    ready.flight = flight.as_ref().map(|flight| flight.uri.clone());
    parent.say(ready)?;
    while parent.go()? {
        let stats = server.stats();
        parent.say(Usage {
            copied_bytes: stats.bytes_copied,
            copied_on_device_bytes: stats.bytes_copied_on_device,
            staged_bytes: stats.bytes_staged,
            region_bytes: stats.region_bytes,
            ..Usage::now()?
        })?;
    }
    // The client has its figures, so the server stops at once.
    let _ = server.stop(Duration::ZERO);
    Ok(())
}

/// A listening server, and the client's information about it.
pub fn start(case: &Case) -> Result<(Server, Ready)> {
    if case.op == Op::Filter {
        return filtering::start(case);
    }
    let ring = Arc::new(Ring::new(case)?);
    let server = case.server()?;
    server.load(WARM_UP, ring.table(ring.arrays(Some(case.warm_up()))))?;
    match (case.op, case.source) {
        (Op::Put, _) => server.handler(putting::Taker)?,
        (Op::Latency, _) => server.serve(TABLE, StampProvider { case: case.clone() })?,
        (_, Source::Published) => {
            server.load(TABLE, ring.table(ring.arrays(Some(case.published()))))?;
        }
        (op, Source::Provider) => {
            // Only a new stream's first batch is measured; a second batch would disturb it.
            let count = (op == Op::Connect).then_some(1);
            let ring = Arc::clone(&ring);
            server.serve(TABLE, move |_: &Request<'_>| {
                Ok(ring.table(ring.arrays(count)))
            })?;
        }
        (op, Source::Push) => {
            server.pull_handler()?;
            let count = (op == Op::Connect).then_some(1);
            let (server, ring) = (server.clone(), Arc::clone(&ring));
            // It ends with the server.
            thread::Builder::new()
                .name("bench-push".into())
                .spawn(move || {
                    if let Err(error) = pushing::run(&server, &ring, count) {
                        tracing::error!("the pushing thread has failed: {error:#}");
                    }
                })?;
        }
    }
    let address = case.address();
    let uri = listen(&server, &address)?;
    let (sums, flight) = (ring.sums(), None);
    Ok((server, Ready { uri, sums, flight }))
}
