use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use wasmtime::{Instance, InstancePre, Store, Trap, TypedFunc, WasmParams, WasmResults};

use crate::host::{self, Signals, State};
use crate::memory;
use crate::sandbox::Inner;
use crate::wasm32::image::{Image, Piece};
use crate::wasm32::read::Memory;
use crate::wasm32::{ALIGNMENT, SCHEMA_BYTES, schema_in, schema_out, write};
use crate::{Bound, Error, Forward, Limits, Result};

/// The version of the interface between host and module.
const ABI_VERSION: u32 = 1;

/// What one step of a function has put out, in order.
pub type Outputs = Vec<RecordBatch>;

/// A function that runs on one table.
///
/// Call [`process`](Self::process) for each batch and then [`finish`](Self::finish), or drop it at
/// any time. It may move between threads, but one step runs on one thread, and blocks it. This
/// thread needs a stack of 2 MiB, of which the module may use 512 KiB.
pub struct Running {
    guest: Guest,
    functions: Functions,
    schema: SchemaRef,
    input: Option<SchemaRef>,
    over: bool,
    /// The function has ended well.
    finished: bool,
}

/// Stops a [`Running`] from any thread. A clone stops the same call.
#[derive(Clone, Default)]
pub struct Canceller(Arc<Signals>);

/// An instance, and what its calls have used.
struct Guest {
    sandbox: Arc<Inner>,
    store: Store<State>,
    used: Duration,
}

/// Memory of the module's own that the host has taken for its input.
struct Block {
    /// Where the image begins.
    base: u32,
    /// What the module has given, and how many bytes.
    given: u32,
    length: u32,
    /// Where in the whole memory pages of files may lie.
    mapped: Range<usize>,
}

struct Functions {
    alloc: TypedFunc<(u32, u32), u32>,
    free: TypedFunc<(u32, u32, u32), ()>,
    init: TypedFunc<(u32, u32, u32, u32, u32, u32), u32>,
    process: TypedFunc<u32, u32>,
    finish: TypedFunc<(), u32>,
}

impl Running {
    pub(crate) fn start(
        sandbox: Arc<Inner>,
        code: &InstancePre<State>,
        (function, arguments): (&str, &[u8]),
        input: Option<&SchemaRef>,
        limits: &Limits,
        canceller: &Canceller,
    ) -> Result<Self> {
        let mut image = Image::default();
        let name = add(&mut image, Piece::Bytes(function.as_bytes()))?;
        let argument = add(&mut image, Piece::Bytes(arguments))?;
        let output = add(&mut image, Piece::Owned(vec![0; SCHEMA_BYTES]))?;
        let table = match input {
            Some(schema) => Some(schema_out::put(&mut image, schema)?),
            None => None,
        };

        let mut guest = Guest::new(sandbox, limits, canceller)?;
        let instance = guest.run(|store| code.instantiate(store))?;
        let functions = guest.functions(&instance)?;
        let block = guest.place(&functions, &image)?;
        let base = block.base;
        // All pieces lie in the block, which was checked to lie in the memory.
        let at = |place: u32| base + place;
        let code = guest.call(
            &functions.init,
            (
                at(name),
                length(function.len())?,
                at(argument),
                length(arguments.len())?,
                table.map_or(0, at),
                at(output),
            ),
        )?;
        guest.ensure_well(code)?;
        let schema = schema_in::read(Memory(guest.memory()?), at(output))?;
        guest.store.data_mut().schema.clone_from(&schema);
        guest.free(&functions, block)?;
        let schema = schema.unwrap_or_else(host::bytes_schema);
        Ok(Self {
            guest,
            functions,
            schema,
            input: input.cloned(),
            over: false,
            finished: false,
        })
    }

    /// The output's schema. A function whose output is bytes has one column `bytes`, binary and
    /// never null, with a row for each value.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// A way to stop this call from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.guest.store.data().signals))
    }

    /// Gives a batch of the input to the function, and returns what it puts out.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the batch is not of the input's schema, and the call goes on. After any
    /// other error the call is over.
    pub fn process(&mut self, batch: &RecordBatch) -> Result<Outputs> {
        self.ensure_open()?;
        self.ensure_fits(batch)?;
        let columns = write::columns(batch);
        let sandbox = Arc::clone(&self.guest.sandbox);
        let mut image = Image::with_files(sandbox.files.as_deref());
        let array = write::batch(&mut image, batch.num_rows(), &columns)?;
        self.step(|guest, functions| {
            let block = guest.place(functions, &image)?;
            let array = block.base + array;
            let outputs = guest.emitting(|guest| guest.call(&functions.process, array))?;
            guest.free(functions, block)?;
            Ok(outputs)
        })
    }

    /// Tells the function that its input has ended, and returns what it puts out. The call is
    /// then over.
    ///
    /// # Errors
    ///
    /// As [`Error`] tells.
    pub fn finish(&mut self) -> Result<Outputs> {
        self.ensure_open()?;
        let outputs =
            self.step(|guest, functions| guest.emitting(|guest| guest.call(&functions.finish, ())));
        self.over = true;
        self.finished = outputs.is_ok();
        outputs
    }

    /// Has the call stay at this host, as a bound of no hops does, with another error.
    pub(crate) fn forbid_hops(&mut self) {
        let state = self.guest.store.data_mut();
        (state.hops, state.stays) = (0, true);
    }

    /// Lowers the number of hops that the call has left, if it came from another host.
    pub fn limit_hops(&mut self, left: u32) {
        let state = self.guest.store.data_mut();
        state.hops = state.hops.min(left);
    }

    /// How often the call may still go on elsewhere.
    pub fn hops(&self) -> u32 {
        self.guest.store.data().hops
    }

    /// Where the call goes on, once [`finish`](Self::finish) has returned its last output. The host
    /// follows, or ends the call with an error. `None`: the call is complete, or has failed.
    pub fn take_forward(&mut self) -> Option<Forward> {
        let forward = self.guest.store.data_mut().forward.take();
        forward.filter(|_| self.finished)
    }

    fn step<T>(&mut self, body: impl FnOnce(&mut Guest, &Functions) -> Result<T>) -> Result<T> {
        let result = body(&mut self.guest, &self.functions);
        self.over |= result.is_err();
        result
    }

    fn ensure_open(&self) -> Result<()> {
        if self.over { Err(Error::Over) } else { Ok(()) }
    }

    fn ensure_fits(&self, batch: &RecordBatch) -> Result<()> {
        let Some(input) = &self.input else {
            return Err(Error::Input("a batch for a call without a table".into()));
        };
        let theirs = batch.schema_ref();
        let same = Arc::ptr_eq(input, theirs)
            || input.fields().len() == theirs.fields().len()
                && (input.fields().iter().zip(theirs.fields()))
                    .all(|(a, b)| a.data_type() == b.data_type());
        match same {
            true => Ok(()),
            false => Err(Error::Input(
                "a batch of another schema than the call's input".into(),
            )),
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Canceller {
    /// For one call ([`Module::start_with`](crate::Module::start_with)).
    pub fn new() -> Self {
        Self::default()
    }

    /// One that also cancels by itself once `gone` is true. The host asks every few milliseconds
    /// while a step runs, on the thread of the step.
    pub fn when(gone: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Signals {
            gone: Some(Box::new(gone)),
            ..Signals::default()
        }))
    }

    /// Ends the call within milliseconds with [`Error::Cancelled`], in a step that runs or in the
    /// next one.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Tells the function, at its next output, that nobody needs more rows. It may go on.
    pub fn no_more(&self) {
        self.0.no_more.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller").finish_non_exhaustive()
    }
}

impl Guest {
    fn new(sandbox: Arc<Inner>, limits: &Limits, canceller: &Canceller) -> Result<Self> {
        let state = State::new(limits, Arc::clone(&canceller.0));
        let mut store = Store::new(&sandbox.engine, state);
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut store| host::tick(store.data_mut()));
        store
            .set_fuel(limits.fuel)
            .map_err(|error| Error::Host(format!("{error:#}")))?;
        Ok(Self {
            sandbox,
            store,
            used: Duration::ZERO,
        })
    }

    /// Looks the exports up; their types were checked when the module was compiled.
    fn functions(&mut self, instance: &Instance) -> Result<Functions> {
        let missing = |error: wasmtime::Error| Error::Module(format!("{error:#}"));
        let memory = instance.get_memory(&mut self.store, "memory");
        self.store.data_mut().memory = memory;
        let store = &mut self.store;
        let version: TypedFunc<(), u32> = instance
            .get_typed_func(&mut *store, "dipc_abi_version")
            .map_err(missing)?;
        let functions = Functions {
            alloc: instance
                .get_typed_func(&mut *store, "dipc_alloc")
                .map_err(missing)?,
            free: instance
                .get_typed_func(&mut *store, "dipc_free")
                .map_err(missing)?,
            init: instance
                .get_typed_func(&mut *store, "dipc_init")
                .map_err(missing)?,
            process: instance
                .get_typed_func(&mut *store, "dipc_process")
                .map_err(missing)?,
            finish: instance
                .get_typed_func(&mut *store, "dipc_finish")
                .map_err(missing)?,
        };
        match self.call(&version, ())? {
            ABI_VERSION => Ok(functions),
            other => Err(Error::Module(format!("version {other}, not {ABI_VERSION}"))),
        }
    }

    fn memory(&self) -> Result<&[u8]> {
        match self.store.data().memory {
            Some(memory) => Ok(memory.data(&self.store)),
            None => Err(Error::Module("export memory is missing".into())),
        }
    }

    /// Writes an image into memory of the module's own.
    fn place(&mut self, functions: &Functions, image: &Image<'_>) -> Result<Block> {
        // A module aligns its memory to 64 bytes: the image begins at the first page in the block.
        let slack = image.alignment() - ALIGNMENT;
        let length = (image.length().checked_add(slack))
            .ok_or_else(|| Error::Input("more than 4 GiB for one call".into()))?;
        let given = self.call(&functions.alloc, (length, ALIGNMENT))?;
        if given == 0 {
            return Err(match self.store.data().wants_memory {
                true => self.store.data().out_of_memory(),
                false => Error::Function(format!("no memory for {length} bytes")),
            });
        }
        let base = (given.checked_next_multiple_of(image.alignment()))
            .filter(|base| given.is_multiple_of(ALIGNMENT) && base - given <= slack);
        let range = base.and_then(|base| {
            let begin = base as usize;
            Some(begin..begin.checked_add(image.length() as usize)?)
        });
        let block = range.and_then(|range| self.memory_mut()?.get_mut(range));
        let (Some(base), Some(block)) = (base, block) else {
            return Err(Error::Data(format!(
                "dipc_alloc gives {given:#x}, where no {length} bytes begin at a multiple of \
                 {ALIGNMENT}"
            )));
        };
        let mapped = image.write(block, base)?;
        let begin = base as usize;
        Ok(Block {
            base,
            given,
            length,
            mapped: begin + mapped.start..begin + mapped.end,
        })
    }

    /// Gives a block back to the module, without the pages of files: their bytes may be others'
    /// when the module runs again.
    fn free(&mut self, functions: &Functions, block: Block) -> Result<()> {
        if !block.mapped.is_empty()
            && let Some(pages) = self.memory_mut().and_then(|all| all.get_mut(block.mapped))
        {
            memory::clear(pages)
                .map_err(|error| Error::Host(format!("the input cannot be unmapped: {error}")))?;
        }
        self.call(&functions.free, (block.given, block.length, ALIGNMENT))
    }

    fn memory_mut(&mut self) -> Option<&mut [u8]> {
        let memory = self.store.data().memory?;
        Some(memory.data_mut(&mut self.store))
    }

    /// Runs a step that may put out.
    fn emitting(&mut self, body: impl FnOnce(&mut Self) -> Result<u32>) -> Result<Outputs> {
        self.store.data_mut().emitting = true;
        let code = body(self)?;
        self.store.data_mut().emitting = false;
        self.ensure_well(code)?;
        self.store.data_mut().take_outputs()
    }

    /// An error if a function has returned another code than 0.
    fn ensure_well(&mut self, code: u32) -> Result<()> {
        let state = self.store.data_mut();
        if code == 0 {
            state.failure = None;
            return Ok(());
        }
        Err(match state.failure.take() {
            Some(text) => Error::Function(text),
            None if state.wants_memory => state.out_of_memory(),
            None if state.wants_hop => state.out_of_hops(),
            None => Error::Function(format!("it returned {code} and no text")),
        })
    }

    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: &TypedFunc<P, R>,
        parameters: P,
    ) -> Result<R> {
        self.run(|store| function.call(store, parameters))
    }

    /// Runs code of the module within the call's bounds.
    fn run<R>(&mut self, body: impl FnOnce(&mut Store<State>) -> wasmtime::Result<R>) -> Result<R> {
        let state = self.store.data_mut();
        if state.signals.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let begin = Instant::now();
        let left = state.limits().time.checked_sub(self.used);
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            return Err(state.out_of_time());
        };
        // A time without an end is none.
        state.deadline = begin.checked_add(left);
        self.store.set_epoch_deadline(1);
        let ticking = self.sandbox.ticker.run();
        let result = body(&mut self.store);
        drop(ticking);
        self.used = self.used.saturating_add(begin.elapsed());
        result.map_err(|error| self.explain(&error))
    }

    fn explain(&mut self, error: &wasmtime::Error) -> Error {
        let state = self.store.data_mut();
        if let Some(error) = state.stop.take() {
            return error;
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => Error::Limit {
                bound: Bound::Fuel,
                value: state.limits().fuel,
            },
            _ if state.wants_memory => state.out_of_memory(),
            // A panic sets its text, and then stops by a trap.
            Some(trap) => match state.failure.take() {
                Some(text) => Error::Function(text),
                None => Error::Trap(trap.to_string()),
            },
            // The system has no memory for an instance, for example.
            None => Error::Host(format!("{error:#}")),
        }
    }
}

fn add<'a>(image: &mut Image<'a>, piece: Piece<'a>) -> Result<u32> {
    image
        .add(piece)
        .ok_or_else(|| Error::Input("arguments of more than 4 GiB".into()))
}

fn length(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| Error::Input("arguments of more than 4 GiB".into()))
}
