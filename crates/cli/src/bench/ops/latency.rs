//! How long a batch takes from one process to the other, within one stream.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, schema_to_c};
use dipc::client::Stream;
use dipc::server::{HostProvider, ServerRequest};
use dipc::{Error, Status};

use crate::bench::base::case::Case;
use crate::bench::base::message::{Outcome, Parent, Ready};
use crate::bench::base::streams::{TABLE, new_client};
use crate::bench::base::table::{Batch, Store};
use crate::bench::base::timing::{Run, WARM_UP_STEPS, now_ns, wait_until};
use crate::bench::base::values::Values;
use crate::output::whole;

/// Provides a batch at each interval, stamped with the current time.
pub struct StampProvider {
    pub case: Case,
}

impl HostProvider for StampProvider {
    fn open(&self, _: &ServerRequest) -> dipc::Result<OwnedDeviceStream> {
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
    fn schema(&mut self) -> dipc::Result<OwnedSchema> {
        schema_to_c(&self.case.shape().schema())
    }

    fn next(&mut self) -> dipc::Result<Option<OwnedDeviceArray>> {
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

/// Measures the time from the server's hand-over of a batch until the client has it.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let client = new_client(case)?;
    let mut stream = client.get(&[&ready.uri], TABLE, &case.get_options(), None)?;
    let values = Values::of(&mut stream, case.shape())?;
    for _ in 0..if case.cold { 0 } else { WARM_UP_STEPS } {
        delay(&mut stream, &values)?;
    }
    if !parent.ready()? {
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
