//! The times of single batches: within a stream, and at the start of a stream.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, schema_to_c};
use dipc::client::{Client, Stream};
use dipc::error::{Error, Status};
use dipc::server::{HostProvider, ServerRequest};
use dipc::transport::TlsOptions;
use hdrhistogram::Histogram;

use super::case::{Case, Scheme};
use super::certificate;
use super::client::{client_with, new_client};
use super::message::{Latency, Outcome, Ready, Usage, histogram, now_ns};
use super::server::TABLE;
use super::table::{Batch, Store};
use super::values::Values;
use super::worker::Parent;
use crate::output::whole;

/// Batches, or streams, before the measurement.
const WARM_UP: u64 = 32;

/// How long a spinning host keeps its core before it yields to other spinning threads.
const YIELD_PAUSE: Duration = Duration::from_micros(10);

/// Waits until `due`. Spins if both ends of the case spin.
pub fn wait_until(due: Instant, case: &Case) {
    let mut yielded = Instant::now();
    loop {
        let now = Instant::now();
        let left = due.saturating_duration_since(now);
        if left.is_zero() {
            return;
        }
        if case.spin.is_zero() {
            thread::sleep(left);
        } else if now - yielded >= YIELD_PAUSE {
            thread::yield_now();
            yielded = now;
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Provides a batch at each interval, stamped with the current time.
pub struct StampProvider {
    pub case: Case,
}

impl HostProvider for StampProvider {
    fn open(&self, _: &ServerRequest) -> dipc::error::Result<OwnedDeviceStream> {
        let store = Store::new(&self.case).map_err(provider_error)?;
        let case = self.case.clone();
        Ok(export_device_stream(Box::new(Stamps {
            case,
            store,
            batches: Vec::new(),
            due: Instant::now(),
        })))
    }
}

fn provider_error(error: anyhow::Error) -> Error {
    Error::new(Status::Provider, whole(&error))
}

struct Stamps {
    case: Case,
    store: Store,
    /// The batches made so far. A batch without other owners can be reused.
    batches: Vec<Arc<Batch>>,
    due: Instant,
}

impl Stamps {
    /// Moves a batch that nobody reads any more to the end of `batches`.
    fn free_batch(&mut self) -> Result<&mut Arc<Batch>> {
        let free = self
            .batches
            .iter_mut()
            .position(|batch| Arc::get_mut(batch).is_some());
        match free {
            Some(index) => {
                let last = self.batches.len() - 1;
                self.batches.swap(index, last);
            }
            None => {
                let batch = Batch::new(&self.store, self.case.shape(), self.case.words(), 1)?;
                self.batches.push(Arc::new(batch));
            }
        }
        self.batches.last_mut().context("there is no batch")
    }
}

impl ArrayReader for Stamps {
    fn schema(&mut self) -> dipc::error::Result<OwnedSchema> {
        schema_to_c(&self.case.shape().schema())
    }

    fn next(&mut self) -> dipc::error::Result<Option<OwnedDeviceArray>> {
        let (due, case) = (self.due, self.case.clone());
        let batch = self.free_batch().map_err(provider_error)?;
        wait_until(due, &case);
        if let Some(batch) = Arc::get_mut(batch) {
            batch.stamp(now_ns()).map_err(provider_error)?;
        }
        let array = batch.export();
        // Not from `due`: after a pause many batches would follow without interval.
        self.due = Instant::now() + case.interval;
        Ok(Some(array))
    }

    fn device_type(&self) -> i32 {
        self.store.device_type()
    }
}

/// The figures of a measurement of times.
struct Run {
    times: Histogram<u64>,
    usage: Usage,
    start: Instant,
}

impl Run {
    fn start() -> Result<Self> {
        Ok(Self {
            times: histogram()?,
            usage: Usage::now()?,
            start: Instant::now(),
        })
    }

    /// Returns whether the measurement is complete.
    fn record(&mut self, nanoseconds: u64, case: &Case) -> bool {
        self.times.saturating_record(nanoseconds.max(1));
        match case.batches {
            Some(batches) => self.times.len() >= batches,
            None => self.start.elapsed() >= case.seconds,
        }
    }

    fn outcome(self) -> Result<Outcome> {
        let seconds = self.start.elapsed().as_secs_f64();
        let usage = Usage::now()?;
        Ok(Outcome {
            seconds,
            batches: self.times.len(),
            latency: Some(Latency::of(&self.times)),
            cpu_seconds: usage.cpu_seconds - self.usage.cpu_seconds,
            peak_bytes: usage.peak_bytes,
            ..Outcome::default()
        })
    }
}

/// Measures the time from the server's hand-over of a batch until the client has it.
pub fn latency(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let client = new_client(case)?;
    let mut stream = client.get(&[&ready.uri], TABLE, &case.get_options(), None)?;
    let values = Values::of(&mut stream, case.shape())?;
    for _ in 0..if case.cold { 0 } else { WARM_UP } {
        delay(&mut stream, &values)?;
    }
    parent.say(())?;
    if !parent.go()? {
        return Ok(());
    }
    let mut run = Run::start()?;
    let before = stream.stats();
    while !run.record(delay(&mut stream, &values)?, case) {}
    let stats = stream.stats();
    parent.say(Outcome {
        fetches: 1,
        lent_bytes: stats.bytes_lent - before.bytes_lent,
        copied_bytes: stats.bytes_copied - before.bytes_copied,
        copied_on_device_bytes: stats.bytes_copied_on_device - before.bytes_copied_on_device,
        staged_bytes: stats.bytes_staged - before.bytes_staged,
        received_bytes: stats.bytes_received - before.bytes_received,
        ..run.outcome()?
    })
}

/// The time of the next batch, in nanoseconds.
fn delay(stream: &mut Stream, values: &Values) -> Result<u64> {
    let array = stream.next()?;
    let now = now_ns();
    let Some(array) = array else {
        bail!("the stream ended");
    };
    // SAFETY: the array is of the stream that `values` was made of (the caller).
    let stamp = unsafe { values.first(&array) }?;
    Ok(now.saturating_sub(stamp.context("the batch is empty")?))
}

/// Measures the time from the request for a stream until its first batch. Both processes sleep
/// before.
pub fn connect(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let mut connector = Connector {
        case,
        uri: &ready.uri,
        client: new_client(case)?,
        tls: certificate::of_client(case.certificate.as_deref()),
        outcome: Outcome::default(),
    };
    for _ in 0..if case.cold { 0 } else { WARM_UP } {
        connector.time()?;
    }
    connector.outcome = Outcome::default();
    parent.say(())?;
    if !parent.go()? {
        return Ok(());
    }
    let mut run = Run::start()?;
    while !run.record(connector.time()?, case) {}
    let Outcome {
        lent_bytes,
        copied_bytes,
        copied_on_device_bytes,
        staged_bytes,
        received_bytes,
        ..
    } = connector.outcome;
    let outcome = run.outcome()?;
    parent.say(Outcome {
        fetches: outcome.batches,
        lent_bytes,
        copied_bytes,
        copied_on_device_bytes,
        staged_bytes,
        received_bytes,
        ..outcome
    })
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
    for _ in 0..if case.cold { 0 } else { WARM_UP } {
        time()?;
    }
    parent.say(())?;
    if !parent.go()? {
        return Ok(());
    }
    let mut run = Run::start()?;
    while !run.record(time()?, case) {}
    let outcome = run.outcome()?;
    parent.say(Outcome {
        fetches: outcome.batches,
        ..outcome
    })
}

struct Connector<'a> {
    case: &'a Case,
    uri: &'a str,
    client: Client,
    /// What clients share that resume sessions.
    tls: Arc<TlsOptions>,
    /// The bytes up to now.
    outcome: Outcome,
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
        let stats = stream.stats();
        self.outcome.lent_bytes += stats.bytes_lent;
        self.outcome.copied_bytes += stats.bytes_copied;
        self.outcome.copied_on_device_bytes += stats.bytes_copied_on_device;
        self.outcome.staged_bytes += stats.bytes_staged;
        self.outcome.received_bytes += stats.bytes_received;
        Ok(nanoseconds(took))
    }
}

/// A time as a number for a histogram.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
