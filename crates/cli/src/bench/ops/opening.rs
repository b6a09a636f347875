//! How many new streams of one batch can be opened in a second, compared with Flight's `DoGet`: the
//! same batch, the same processes, and as many tasks of one runtime.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use arrow_flight::flight_service_client::FlightServiceClient;
use dipc::{Client, GetOptions};
use futures::TryStreamExt as _;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::flight;
use crate::bench::base::case::Case;
use crate::bench::base::message::{Opened, Opening, Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, new_client, runtime};

/// The measured time is divided into this many parts. The two sides take turns, so that a slow
/// moment of the machine affects both.
const SLICES: u32 = 8;

/// Opens streams on both sides in turn, until the time of the case is over.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let runtime = runtime()?;
    let uri = ready.flight.as_deref().context("there is no Flight")?;
    let by_flight = Side::Flight(runtime.block_on(flight::connect(case, uri))?);
    let by_libdipc = Side::Libdipc(Arc::new(Asking {
        client: new_client(case)?,
        uri: ready.uri.clone(),
        options: case.get_options(),
    }));
    let slices = |opened: &mut Opened| {
        runtime.block_on(open_all(&by_libdipc, case, &mut opened.libdipc))?;
        runtime.block_on(open_all(&by_flight, case, &mut opened.flight))
    };
    // They make connections, mappings and threads.
    slices(&mut Opened::default())?;
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let start = Instant::now();
    let mut opened = Opened::default();
    while opened.flight.streams == 0 || start.elapsed() < case.seconds {
        slices(&mut opened)?;
    }
    let used = before.until_now()?;
    parent.say(Outcome {
        seconds: start.elapsed().as_secs_f64(),
        fetches: opened.libdipc.streams + opened.flight.streams,
        opened: Some(opened),
        ..used
    })
}

/// Has a task for each stream of the case, which opens one after the other for one slice.
async fn open_all(side: &Side, case: &Case, sum: &mut Opening) -> Result<()> {
    let (start, time) = (Instant::now(), case.seconds / SLICES);
    let mut tasks = JoinSet::new();
    for _ in 0..case.streams {
        let (side, rows) = (side.clone(), case.rows);
        tasks.spawn(async move {
            let mut streams = 0_u64;
            while streams == 0 || start.elapsed() < time {
                let came = side.open().await?;
                ensure!(came == rows, "{came} rows have come, not {rows}");
                streams += 1;
            }
            Ok(streams)
        });
    }
    while let Some(ended) = tasks.join_next().await {
        sum.streams += ended.context("a task of the client failed")??;
    }
    sum.seconds += start.elapsed().as_secs_f64();
    Ok(())
}

#[derive(Clone)]
enum Side {
    Libdipc(Arc<Asking>),
    Flight(FlightServiceClient<Channel>),
}

impl Side {
    /// Opens a stream, and reads it up to its end. Gives its rows.
    async fn open(&self) -> Result<u64> {
        match self {
            Self::Libdipc(of) => of.open().await,
            Self::Flight(client) => flight::get(client.clone()).await,
        }
    }
}

/// The requests to libdipc's server.
struct Asking {
    client: Client,
    uri: String,
    options: GetOptions,
}

impl Asking {
    async fn open(&self) -> Result<u64> {
        let asked = self.client.get_async_with(&self.uri, TABLE, &self.options);
        let mut batches = asked.await?;
        let mut rows = 0;
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }
}
