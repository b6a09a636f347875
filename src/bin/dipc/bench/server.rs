//! The serving process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::stream::export_device_stream;
use dipc::server::{Provider, Request, Server};

use super::case::{Case, Source};
use super::message::{Ready, Usage};
use super::table::Ring;
use super::worker::Parent;

/// The batches of the measurement.
pub const TABLE: &[u8] = b"table";
/// A few of them, for what comes before it.
pub const WARM_UP: &[u8] = b"warm-up";

/// Serves until the command goes, and says what that took whenever it is asked.
pub fn run(case: &Case, parent: &Parent) -> Result<()> {
    super::allow_descriptors();
    let ring = Arc::new(Ring::new(case)?);
    let server = Server::new(case.server_options()?)?;
    publish(&server, WARM_UP, &ring, case.warm_up())?;
    match case.source {
        Source::Published => publish(&server, TABLE, &ring, case.published())?,
        Source::Provider => serve(&server, RingProvider(Arc::clone(&ring)))?,
    }
    let address = case.address();
    let uri = server
        .listen(&address)
        .with_context(|| format!("cannot listen at {address}"))?;
    parent.say(Ready {
        uri,
        sums: ring.sums(),
    })?;
    while parent.go()? {
        let stats = server.stats();
        parent.say(Usage {
            copied_bytes: stats.bytes_copied,
            region_bytes: stats.region_bytes,
            ..Usage::now()?
        })?;
    }
    // The client has its figures, so nothing is waited for.
    let _ = server.stop(Duration::ZERO);
    Ok(())
}

fn publish(server: &Server, ticket: &[u8], ring: &Ring, count: u64) -> Result<()> {
    let batches = ring.export(count).collect();
    let outcome = server.publish(ticket, ring.schema()?, batches);
    Ok(outcome.map_err(|(error, _)| error)?)
}

fn serve(server: &Server, provider: impl Provider) -> Result<()> {
    let outcome = server.serve(TABLE, Box::new(provider));
    Ok(outcome.map_err(|(error, _)| error)?)
}

/// Hands out the distinct batches in turn, for as long as somebody asks.
struct RingProvider(Arc<Ring>);

impl Provider for RingProvider {
    fn open(&self, _: &Request) -> dipc::error::Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(self.0.reader())))
    }
}
