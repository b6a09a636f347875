//! How many new streams of one batch can be opened in a second, beside Flight's `DoGet`: the same
//! batch, the same processes, and as many tasks of one runtime.

use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use arrow_flight::flight_service_client::FlightServiceClient;
use dipc::arrow::OwnedDeviceArray;
use dipc::arrow::stream::ArrayReader as _;
use dipc::arrow::{batch_from_c, schema_from_c};
use dipc::client::{Client, GetOptions, NextBatch, Stream};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::flight;
use crate::bench::base::case::Case;
use crate::bench::base::message::{Opened, Opening, Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, ask, new_client, runtime};

/// Parts of the measured time. The two sides have them in turn, so that a slow moment of the
/// machine affects both.
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
            Self::Libdipc(of) => read(ask(&of.client, &of.uri, TABLE, &of.options).await?).await,
            Self::Flight(client) => flight::get(client.clone()).await,
        }
    }
}

/// The requests to libdipc's server, as its asynchronous API makes them.
struct Asking {
    client: Client,
    uri: String,
    options: GetOptions,
}

async fn read(mut stream: Box<Stream>) -> Result<u64> {
    let schema = Arc::new(schema_from_c(&stream.schema()?)?);
    let mut rows = 0;
    while let Some(array) = next(&mut stream).await? {
        // SAFETY: the stream checks its arrays against its schema, which is `schema`.
        rows += unsafe { batch_from_c(array, &schema) }?.num_rows() as u64;
    }
    Ok(rows)
}

async fn next(stream: &mut Stream) -> Result<Option<OwnedDeviceArray>> {
    loop {
        let found = poll_fn(|context| {
            let is_woken = stream.wake(context.waker());
            match stream.try_next() {
                Ok(NextBatch::NotYet) if is_woken => Poll::Pending,
                found => Poll::Ready(found),
            }
        });
        match found.await? {
            NextBatch::Batch(array) => return Ok(Some(array)),
            NextBatch::End => return Ok(None),
            NextBatch::NotYet => readable(stream.fd()?).await?,
        }
    }
}

/// Waits until `fd` is readable.
async fn readable(fd: BorrowedFd<'_>) -> Result<()> {
    let own = fd.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` has one descriptor, which is open until the drop of the `AsyncFd`.
    let watched = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
    watched.readable().await?.retain_ready();
    Ok(())
}
