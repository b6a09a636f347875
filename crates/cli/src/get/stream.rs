//! A fetched stream, read like a C program reads it: through an `ArrowDeviceArrayStream`, whose
//! arrays are imported as record batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use dipc::arrow::stream::{ArrayReader, export_device_stream, to_device};
use dipc::arrow::transfer::to_host;
use dipc::arrow::{BatchReader, OwnedDeviceArray, OwnedSchema};
use dipc::device::{Target as Device, cuda};
use dipc::{DeviceKind, Error, StreamStats};
use parking_lot::Mutex;

use crate::fetched::Counted;
use crate::report::{Report, Taken};

/// The stream's figures and error, noted here because the C struct has neither.
#[derive(Default)]
struct Seen {
    stats: StreamStats,
    /// Time spent in the stream, without the work on its rows.
    waited: Duration,
    /// The device of the last array.
    device: Option<Device>,
    taken: Vec<Taken>,
    error: Option<Error>,
}

/// A stream that notes its figures.
struct Watched {
    stream: Box<dyn Counted>,
    seen: Arc<Mutex<Seen>>,
    /// The fetch waits for arrays on a GPU, so that their copies are part of its time.
    arrivals: Option<cuda::Stream>,
}

impl Watched {
    /// Waits until an array on a GPU is complete.
    fn arrive(&mut self, array: &OwnedDeviceArray) -> dipc::Result<()> {
        let raw = array.raw();
        if raw.sync_event.is_null() {
            return Ok(());
        }
        if self.arrivals.is_none() {
            let device = cuda::Device::get(raw.device_id)?;
            self.arrivals = Some(cuda::Stream::new(&device)?);
        }
        let Some(arrivals) = &self.arrivals else {
            return Ok(());
        };
        // SAFETY: by Arrow's interface the array keeps its event until it is released, and all
        // arrays of a stream of libdipc are on one device.
        unsafe { arrivals.wait_for_producer(raw.sync_event) }?;
        arrivals.synchronize()
    }
}

impl ArrayReader for Watched {
    fn schema(&mut self) -> dipc::Result<OwnedSchema> {
        self.stream.schema()
    }

    fn next(&mut self) -> dipc::Result<Option<OwnedDeviceArray>> {
        let start = Instant::now();
        let outcome = self.stream.next().and_then(|array| {
            if let Some(array) = &array {
                self.arrive(array)?;
            }
            Ok(array)
        });
        let mut seen = self.seen.lock();
        seen.waited += start.elapsed();
        seen.stats = self.stream.stats();
        if let Ok(Some(array)) = &outcome {
            let raw = array.raw();
            seen.device = Device::of(DeviceKind(raw.device_type), raw.device_id).ok();
        }
        if let Ok(None) = outcome {
            seen.taken = self.stream.taken();
        }
        seen.error = outcome.as_ref().err().cloned();
        outcome
    }

    fn device_type(&self) -> i32 {
        self.stream.device_type()
    }
}

/// A stream read through its C struct.
pub struct Fetch {
    reader: BatchReader,
    seen: Arc<Mutex<Seen>>,
}

impl Fetch {
    pub fn new(stream: Box<dyn Counted>, waited: Duration) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen {
            waited,
            ..Seen::default()
        }));
        let on_host = stream.device_type() == DeviceKind::CPU.0;
        let watched = Watched {
            stream,
            seen: Arc::clone(&seen),
            arrivals: None,
        };
        let mut exported = export_device_stream(Box::new(watched));
        if !on_host {
            // The work on rows takes place on the host, and is no part of the fetch.
            exported = to_device(to_host(exported)?);
        }
        // SAFETY: the stream is one of libdipc's own, which hands out only arrays that it has
        // checked against the schema (rule A8).
        let reader = unsafe { BatchReader::new(exported) }?;
        Ok(Self { reader, seen })
    }

    pub fn schema(&self) -> SchemaRef {
        arrow::record_batch::RecordBatchReader::schema(&self.reader)
    }

    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let outcome = self.reader.next_batch();
        // The C struct keeps only the text; the stream's own error has status and text.
        outcome.map_err(|error| self.seen.lock().error.take().unwrap_or(error).into())
    }

    pub fn stats(&self) -> StreamStats {
        self.seen.lock().stats
    }

    pub fn report(&self, report: &mut Report) {
        let stats = self.stats();
        report.rows = stats.rows;
        report.batches = stats.batches;
        report.bytes_lent = stats.bytes_lent;
        report.bytes_copied = stats.bytes_copied;
        report.bytes_received = stats.bytes_received;
        report.bytes_copied_on_device = stats.bytes_copied_on_device;
        report.bytes_staged = stats.bytes_staged;
        let mut seen = self.seen.lock();
        report.seconds = seen.waited.as_secs_f64();
        report.device = seen.device.map(|device| device.to_string());
        report.taken = std::mem::take(&mut seen.taken);
    }
}
