//! A table that is being received, and what it costs. The fetch of a batch includes its copies to
//! the GPU; the work on its rows takes place on the host, and is no part of the fetch.

use std::time::{Duration, Instant};

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use dipc::{StreamStats, Target as Device};

use crate::fetched::Counted;
use crate::report::Report;

/// A stream, with the time that was spent in it.
pub struct Fetch {
    stream: Box<dyn Counted>,
    waited: Duration,
    /// The device of the last array.
    device: Option<Device>,
}

impl Fetch {
    /// `waited`: how long the request took.
    pub fn new(stream: Box<dyn Counted>, waited: Duration) -> Self {
        Self {
            stream,
            waited,
            device: None,
        }
    }

    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let start = Instant::now();
        let array = self.stream.next().and_then(|array| {
            array.as_ref().map_or(Ok(()), dipc::DeviceArray::wait)?;
            Ok(array)
        });
        self.waited += start.elapsed();
        let Some(array) = array? else {
            return Ok(None);
        };
        self.device = Device::of(array.device(), array.device_id()).ok();
        Ok(Some(array.into_batch()?))
    }

    pub fn stats(&self) -> StreamStats {
        self.stream.stats()
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
        report.seconds = self.waited.as_secs_f64();
        report.device = self.device.map(|device| device.to_string());
        report.taken = self.stream.taken();
    }
}
