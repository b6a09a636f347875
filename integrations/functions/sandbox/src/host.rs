//! What a module may call, and the state of the host that belongs to one call of a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use wasmtime::{Caller, Linker, ResourceLimiter, UpdateDeadline};

use crate::forward::Asked;
use crate::wasm32::array_in::{self, Budget, Refused};
use crate::wasm32::read::Memory;
use crate::{Bound, Error, Forward, Limits, Outputs, Result};

/// The module of all imports.
pub(crate) const MODULE: &str = "dipc";

/// The imports that a module may have, with the numbers of their parameters and results, all of
/// type i32.
pub(crate) const IMPORTS: [(&str, usize, usize); 4] = [
    ("emit", 1, 1),
    ("emit_bytes", 2, 1),
    ("fail", 2, 0),
    ("forward", 6, 1),
];

/// Elements of all tables of a module: references to functions, for the most part.
const TABLE_ELEMENTS: usize = 1 << 20;
/// Bytes of a function's failure that are kept.
const FAILURE_BYTES: u32 = 16 << 10;

/// The host's state of one call.
pub(crate) struct State {
    limits: Limits,
    /// Known once the module has started.
    pub(crate) memory: Option<wasmtime::Memory>,
    /// The output's schema; `None` if the output is bytes.
    pub(crate) schema: Option<SchemaRef>,
    /// The function may put out now.
    pub(crate) emitting: bool,
    /// When the module must have returned.
    pub(crate) deadline: Option<Instant>,
    pub(crate) signals: Arc<Signals>,
    /// Why the host stops the module.
    pub(crate) stop: Option<Error>,
    /// The text of the function's failure.
    pub(crate) failure: Option<String>,
    /// The module has asked for more memory than it may have.
    pub(crate) wants_memory: bool,
    /// How often the call may still go on elsewhere.
    pub(crate) hops: u32,
    /// Calls stay at this host.
    pub(crate) stays: bool,
    /// The module was told that it may not go on.
    pub(crate) wants_hop: bool,
    pub(crate) forward: Option<Forward>,
    table_elements: usize,
    rows: u64,
    bytes: u64,
    step_bytes: u64,
    batches: Outputs,
    values: BinaryBuilder,
}

/// What other threads say to a call.
#[derive(Default)]
pub(crate) struct Signals {
    pub(crate) cancelled: AtomicBool,
    pub(crate) no_more: AtomicBool,
    /// Tells whether whoever waits for the call has gone.
    pub(crate) gone: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Signals {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.gone.as_ref().is_some_and(|gone| gone())
    }
}

/// Defines the imports.
pub(crate) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "emit", |caller: Caller<'_, State>, array: u32| {
        with_memory(caller, |state, memory| state.emit(memory, array))
    })?;
    linker.func_wrap(
        MODULE,
        "emit_bytes",
        |caller: Caller<'_, State>, bytes: u32, length: u32| {
            with_memory(caller, |state, memory| {
                state.emit_bytes(memory, bytes, length)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fail",
        |caller: Caller<'_, State>, text: u32, length: u32| {
            with_memory(caller, |state, memory| state.fail(memory, text, length))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "forward",
        |caller: Caller<'_, State>,
         uri,
         uri_length,
         descriptor,
         descriptor_length,
         state,
         length| {
            let asked = Asked {
                uri: (uri, uri_length),
                descriptor: (descriptor, descriptor_length),
                state: (state, length),
            };
            with_memory(caller, |state, memory| state.forward(memory, &asked))
        },
    )?;
    Ok(())
}

/// Lends the module's memory to the host; an error of the host stops the module.
fn with_memory<T>(
    mut caller: Caller<'_, State>,
    body: impl FnOnce(&mut State, Memory<'_>) -> Result<T>,
) -> wasmtime::Result<T> {
    let result = match caller.data().memory {
        Some(memory) => {
            let (bytes, state) = memory.data_and_store_mut(&mut caller);
            body(state, Memory(bytes))
        }
        None => Err(Error::Data(
            "a call of the host while the module starts".into(),
        )),
    };
    result.map_err(|error| caller.data_mut().stopped(error))
}

/// Ends a call whose time is over or that was cancelled. Called at each tick.
pub(crate) fn tick(state: &mut State) -> wasmtime::Result<UpdateDeadline> {
    if state.signals.is_cancelled() {
        return Err(state.stopped(Error::Cancelled));
    }
    if state
        .deadline
        .is_some_and(|deadline| deadline <= Instant::now())
    {
        let error = state.out_of_time();
        return Err(state.stopped(error));
    }
    Ok(UpdateDeadline::Continue(1))
}

/// The schema of bytes.
pub(crate) fn bytes_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(
        "bytes",
        DataType::Binary,
        false,
    )]))
}

impl State {
    pub(crate) fn new(limits: &Limits, signals: Arc<Signals>) -> Self {
        Self {
            limits: limits.clone(),
            memory: None,
            schema: None,
            emitting: false,
            deadline: None,
            signals,
            stop: None,
            failure: None,
            wants_memory: false,
            hops: limits.hops,
            stays: false,
            wants_hop: false,
            forward: None,
            table_elements: 0,
            rows: limits.output_rows,
            bytes: limits.output_bytes,
            step_bytes: limits.step_bytes,
            batches: Outputs::new(),
            values: BinaryBuilder::with_capacity(0, 0),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn out_of_time(&self) -> Error {
        let value = u64::try_from(self.limits.time.as_millis()).unwrap_or(u64::MAX);
        Error::Limit {
            bound: Bound::Time,
            value,
        }
    }

    pub(crate) fn out_of_memory(&self) -> Error {
        Error::Limit {
            bound: Bound::Memory,
            value: self.limits.memory_bytes,
        }
    }

    pub(crate) fn out_of_hops(&self) -> Error {
        if self.stays {
            return Error::NoPeers;
        }
        Error::Limit {
            bound: Bound::Hops,
            value: self.limits.hops.into(),
        }
    }

    fn stopped(&mut self, error: Error) -> wasmtime::Error {
        self.stop = Some(error);
        wasmtime::Error::msg("stopped by the host")
    }

    /// What one step has put out.
    pub(crate) fn take_outputs(&mut self) -> Result<Outputs> {
        self.flush()?;
        self.step_bytes = self.limits.step_bytes;
        Ok(std::mem::take(&mut self.batches))
    }

    fn emit(&mut self, memory: Memory<'_>, array: u32) -> Result<u32> {
        self.ensure_emitting()?;
        let Some(schema) = &self.schema else {
            return Err(Error::Data(
                "a batch of a function whose output is bytes".into(),
            ));
        };
        let most = self.bytes.min(self.step_bytes);
        let mut budget = Budget {
            rows: self.rows,
            bytes: most,
        };
        match array_in::batch(memory, array, schema, &mut budget) {
            Ok(batch) => self.batches.push(batch),
            Err(Refused::Rows) => return Err(self.too_many_rows()),
            Err(Refused::Bytes) => return Err(self.too_many_bytes()),
            Err(Refused::Wrong(error)) => return Err(error),
        }
        self.rows = budget.rows;
        self.spend(most - budget.bytes)?;
        Ok(self.answer())
    }

    fn emit_bytes(&mut self, memory: Memory<'_>, bytes: u32, length: u32) -> Result<u32> {
        self.ensure_emitting()?;
        if self.schema.is_some() {
            return Err(Error::Data(
                "bytes of a function whose output is a table".into(),
            ));
        }
        let value = memory.bytes(bytes, u64::from(length))?;
        self.rows = self
            .rows
            .checked_sub(1)
            .ok_or_else(|| self.too_many_rows())?;
        // Each value has an offset too.
        self.spend(u64::from(length) + 4)?;
        // The offsets of one batch have 31 bits.
        let held = self.values.values_slice().len() as u64;
        if held + u64::from(length) > u64::from(u32::MAX / 2) {
            self.flush()?;
        }
        self.values.append_value(value);
        Ok(self.answer())
    }

    fn fail(&mut self, memory: Memory<'_>, text: u32, length: u32) -> Result<()> {
        memory.bytes(text, u64::from(length))?;
        let kept = memory.bytes(text, u64::from(length.min(FAILURE_BYTES)))?;
        let text = String::from_utf8_lossy(kept);
        self.failure = Some(text.replace(char::is_control, "\u{fffd}"));
        Ok(())
    }

    fn forward(&mut self, memory: Memory<'_>, asked: &Asked) -> Result<u32> {
        self.ensure_emitting()?;
        if self.forward.is_some() {
            return Err(Error::Data("a call goes on at two servers".into()));
        }
        let forward = asked.read(memory)?;
        self.wants_hop = self.hops == 0;
        if !self.wants_hop {
            self.forward = Some(forward);
        }
        Ok(self.wants_hop.into())
    }

    fn ensure_emitting(&self) -> Result<()> {
        match self.emitting {
            true => Ok(()),
            false => Err(Error::Data(
                "output outside of dipc_process and dipc_finish".into(),
            )),
        }
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        let left = self
            .bytes
            .checked_sub(bytes)
            .zip(self.step_bytes.checked_sub(bytes));
        (self.bytes, self.step_bytes) = left.ok_or_else(|| self.too_many_bytes())?;
        Ok(())
    }

    /// What a function is told about its output: 1 if nobody needs more of it.
    fn answer(&self) -> u32 {
        self.signals.no_more.load(Ordering::Relaxed).into()
    }

    fn too_many_rows(&self) -> Error {
        Error::Limit {
            bound: Bound::OutputRows,
            value: self.limits.output_rows,
        }
    }

    fn too_many_bytes(&self) -> Error {
        let (bound, value) = match self.bytes < self.step_bytes {
            true => (Bound::OutputBytes, self.limits.output_bytes),
            false => (Bound::StepBytes, self.limits.step_bytes),
        };
        Error::Limit { bound, value }
    }

    /// Makes a batch of the values so far.
    fn flush(&mut self) -> Result<()> {
        let values = self.values.finish();
        if arrow::array::Array::is_empty(&values) {
            return Ok(());
        }
        let batch = RecordBatch::try_new(bytes_schema(), vec![Arc::new(values) as ArrayRef]);
        self.batches
            .push(batch.map_err(|error| Error::Data(error.to_string()))?);
        Ok(())
    }
}

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired as u64 <= self.limits.memory_bytes;
        self.wants_memory |= !fits;
        Ok(fits)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let all = self
            .table_elements
            .saturating_add(desired.saturating_sub(current));
        let fits = all <= TABLE_ELEMENTS;
        if fits {
            self.table_elements = all;
        }
        self.wants_memory |= !fits;
        Ok(fits)
    }

    fn instances(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}
