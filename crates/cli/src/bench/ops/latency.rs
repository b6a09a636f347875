//! How long a batch takes from one process to the other, within one stream.

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dipc::{Batches, DeviceArray, Error, Provider, Reader, Request, Status};

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

impl Provider for StampProvider {
    fn get(&self, _: &Request<'_>) -> dipc::Result<Batches> {
        let store = Store::new(&self.case).map_err(|error| provider_error(&error))?;
        let (schema, device) = (Arc::clone(store.schema()), store.device());
        let mut stamps = Stamps {
            case: self.case.clone(),
            store,
            batches: Vec::new(),
            due: Instant::now(),
        };
        let arrays = iter::from_fn(move || {
            let next = stamps.next();
            Some(next.map_err(|error| provider_error(&error)))
        });
        Ok(Batches::of_arrays(schema, device, arrays))
    }
}

fn provider_error(error: &anyhow::Error) -> Error {
    Error::new(Status::Provider, whole(error))
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
                let batch = Batch::new(&self.store, self.case.words(), 1)?;
                self.batches.push(Arc::new(batch));
            }
        }
        self.batches.last_mut().context("there is no batch")
    }

    /// Waits until a batch is due.
    fn next(&mut self) -> Result<DeviceArray> {
        let (due, case) = (self.due, self.case.clone());
        let batch = self.free_batch()?;
        wait_until(due, &case);
        if let Some(batch) = Arc::get_mut(batch) {
            batch.stamp(now_ns())?;
        }
        let array = batch.export();
        // Not from `due`: after a pause many batches would follow without interval.
        self.due = Instant::now() + case.interval;
        Ok(array)
    }
}

/// Measures the time from the server's hand-over of a batch until the client has it.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let client = new_client(case)?;
    let mut stream = client.get_with(&ready.uri, TABLE, &case.get_options())?;
    let values = Values::of(&stream.schema(), case.shape())?;
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
fn delay(stream: &mut Reader, values: &Values) -> Result<u64> {
    let array = stream.next_array()?;
    let now = now_ns();
    let Some(array) = array else {
        bail!("the stream ended");
    };
    // SAFETY: the array is of the stream that `values` was made of (the caller).
    let stamp = unsafe { values.first(&array) }?;
    Ok(now.saturating_sub(stamp.context("the batch is empty")?))
}
