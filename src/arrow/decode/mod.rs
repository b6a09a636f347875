//! Decoding of the headers and bodies of a stream into arrays that consumers own.
//!
//! No data of a peer is trusted (rule A8): a [`Decoder`] returns arrays with a valid structure, and
//! at [`Level::Full`] also with valid values. Buffers are used in the memory where they were
//! received; copied bytes are counted. Bodies may lie on a GPU, and arrays may have a GPU as target
//! ([`Decoder::with_target`]).

mod bits;
mod body;
mod budget;
mod build;
mod children;
mod choices;
mod columns;
mod compression;
mod counted;
mod empty;
mod export;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grown;
mod index;
mod join;
mod known;
mod lz4;
mod options;
mod parts;
mod plain;
mod reachable;
mod relocate;
mod remote;
mod reuse;
mod schema;
mod totals;
mod values;
mod views;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::ipc;

pub use body::ReceivedBody;
pub use known::KnownSchema;
pub use options::{DecodeOptions, DecodedBatch, Level};

use crate::arrow::decode::body::ensure_matches;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::build::{BuildContext, Built};
use crate::arrow::decode::columns::{Columns, Dictionary, ReceivedDictionaries};
use crate::arrow::decode::relocate::{ArrayPlace, MoveFigures, Relocator};
use crate::arrow::decode::reuse::{PlainBatch, SpareColumns, alignment};
use crate::arrow::decode::totals::{DictionaryTotals, Kept};
use crate::arrow::format::write_metadata;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, annotate};
use crate::device::Target;
use crate::device::gpu::{Gpu, GpuAllocator};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

/// Bytes of a pair of custom metadata in its list, which doubles as it grows.
const PAIR_BYTES: u64 = 3 * size_of::<(String, String)>() as u64;

/// Bytes of a dictionary in its map.
const ENTRY_BYTES: u64 = 2 * size_of::<(i64, Dictionary)>() as u64;

/// Decodes the messages of one stream, in their order.
#[derive(Debug)]
pub struct Decoder {
    schema: Arc<schema::DecodedSchema>,
    /// Shared with batches; a change makes a new map, at most once for each batch.
    dictionaries: Arc<ReceivedDictionaries>,
    generations: u64,
    /// Bytes of host memory that dictionaries hold besides their bodies.
    held: u64,
    totals: DictionaryTotals,
    options: DecodeOptions,
    spare: SpareColumns,
    /// The largest alignment that its columns of fixed width need.
    align: usize,
    /// The place for arrays; `None` for the place of their bodies.
    place: Option<ArrayPlace>,
    /// `None` until a body or a target is on a GPU.
    relocator: Option<Box<Relocator>>,
}

impl Decoder {
    /// Reads the schema of a stream, for arrays on the host.
    ///
    /// # Errors
    ///
    /// `InvalidData` for an invalid schema; `Unsupported` for big-endian streams, metadata versions
    /// other than 4 and 5 (rule A6), and types of a later format.
    pub fn new(header: &Header, options: DecodeOptions) -> Result<Self> {
        Self::with_target(header, options, Target::Host)
    }

    /// Reads the schema of a stream, for arrays at `target`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); as `Device::get` for a target on a GPU.
    pub fn with_target(header: &Header, options: DecodeOptions, target: Target) -> Result<Self> {
        Self::with_known(&KnownSchema::default(), header, options, target)
    }

    /// [`with_target`](Self::with_target) for a stream whose schema may be `known`.
    ///
    /// # Errors
    ///
    /// As [`with_target`](Self::with_target).
    pub fn with_known(
        known: &KnownSchema,
        header: &Header,
        options: DecodeOptions,
        target: Target,
    ) -> Result<Self> {
        let place = match target {
            Target::Host => Some(ArrayPlace::Host),
            Target::Cuda(ordinal) => Some(ArrayPlace::Gpu(Gpu::get(ordinal.into())?)),
            Target::AsSent => None,
        };
        Self::at(known, header, options, place)
    }

    /// [`with_target`](Self::with_target) for the GPU of `room`, which allocates the memory for
    /// moved arrays.
    ///
    /// # Errors
    ///
    /// As [`with_target`](Self::with_target).
    pub fn with_room(
        header: &Header,
        options: DecodeOptions,
        room: Arc<dyn GpuAllocator>,
    ) -> Result<Self> {
        let place = ArrayPlace::Gpu(Arc::clone(room.device()));
        let mut decoder = Self::at(&KnownSchema::default(), header, options, Some(place))?;
        if let Some(relocator) = &mut decoder.relocator {
            relocator.set_room(room);
        }
        Ok(decoder)
    }

    fn at(
        known: &KnownSchema,
        header: &Header,
        options: DecodeOptions,
        place: Option<ArrayPlace>,
    ) -> Result<Self> {
        let schema =
            (known.read(header, options.message_limit)).map_err(|error| error.context("schema"))?;
        Ok(Self {
            align: alignment(&schema.root),
            schema,
            dictionaries: Arc::default(),
            generations: 0,
            held: 0,
            totals: DictionaryTotals::default(),
            options,
            spare: SpareColumns::default(),
            relocator: matches!(place, Some(ArrayPlace::Gpu(_))).then(Box::default),
            place,
        })
    }

    /// A new C schema: a struct with a child for each column.
    pub fn schema(&self) -> OwnedSchema {
        export::schema(&self.schema.root)
    }

    /// Adds a dictionary: a new one, a replacement, or a delta, which is joined with the earlier
    /// values (rule A3). Earlier batches keep their dictionary. Returns the bytes that were copied
    /// on the host.
    ///
    /// # Errors
    ///
    /// `InvalidData` for an invalid message, or without a field for the dictionary; `Unsupported`
    /// for a delta whose inner dictionary was replaced; `OutOfMemory`. The dictionaries are
    /// unchanged then.
    pub fn add_dictionary(&mut self, header: &Header, body: &ReceivedBody) -> Result<u64> {
        let message = schema::message(header);
        let batch = message
            .header_as_dictionary_batch()
            .ok_or_else(|| Error::invalid_data("the message is not a dictionary"))?;
        self.dictionary(header, &message, &batch, body)
            .map_err(|error| error.context(format_args!("dictionary {}", batch.id())))
    }

    fn dictionary(
        &mut self,
        header: &Header,
        message: &ipc::Message<'_>,
        batch: &ipc::DictionaryBatch<'_>,
        body: &ReceivedBody,
    ) -> Result<u64> {
        ensure_matches(header, body)?;
        let field = self.schema.dictionaries.get(&batch.id()).cloned();
        let field = &*field.ok_or_else(|| Error::invalid_data("no field of the schema uses it"))?;
        let data = batch
            .data()
            .ok_or_else(|| Error::invalid_data("the message holds no values"))?;
        let known = self.dictionaries.get(&batch.id());
        let before = known.map_or(0, |known| known.columns.own_bytes());
        // A delta without an earlier dictionary is a dictionary.
        let delta = batch.isDelta() && known.is_some();
        let replaced = known.map_or_else(Kept::default, |known| known.kept);
        let received = if delta { replaced.bodies } else { 0 };
        let budget = DecodeBudget::of_dictionary(
            self.options.message_limit,
            self.held.saturating_sub(before),
            received,
            &body.buffers,
        );
        let (built, earlier) = if self.relocator.is_none() && body.gpu.is_none() {
            let context = self.context(message, &self.dictionaries, &budget)?;
            let built = build::dictionary(&context, field, &data, body, Box::default())?;
            (built, known.filter(|_| delta).cloned())
        } else {
            self.with_relocator(|decoder, relocator| {
                let to_host = delta || data.compression().is_some();
                let body = decoder.relocate(relocator, &data, body, to_host, &budget)?;
                let place = ArrayPlace::of(body.device());
                let nested = relocator.dictionaries(&decoder.dictionaries, &place)?;
                let context = decoder.context(message, &nested, &budget)?;
                let build = |spare| build::dictionary(&context, field, &data, &body, spare);
                let built = relocator.build(&body, Box::default(), build)?;
                // Joins happen on the host.
                let earlier = match delta {
                    true => relocator.dictionaries(&decoder.dictionaries, &ArrayPlace::Host)?,
                    false => Arc::default(),
                };
                Ok((built, earlier.get(&batch.id()).cloned()))
            })?
        };
        let Built {
            mut columns,
            mut copied,
            ..
        } = built;
        if earlier.is_some() {
            copied = copied.saturating_add(columns.make_private(&budget)?);
        }
        // A join follows offsets, so the values must be checked.
        let checked = self.options.level == Level::Full || earlier.is_some();
        if checked {
            copied = copied.saturating_add(values::check(&mut columns, field, &budget)?);
        }
        let mut columns = Arc::<Columns>::from(columns);
        let generation = if let Some(earlier) = earlier {
            let generation = earlier.generation;
            let (old, bytes) = joinable(field, earlier, &budget)?;
            copied = copied.saturating_add(bytes);
            let (joined, bytes) = join::join(field, &old, &columns, &budget)?;
            columns = Arc::new(joined);
            copied = copied.saturating_add(bytes);
            generation
        } else {
            self.generations += 1;
            self.generations
        };
        let bytes = body.buffers.iter().map(|buffer| buffer.len as u64);
        let received = bytes.fold(received, u64::saturating_add);
        let kept = Kept::of(columns.struct_bytes(), received);
        let limit = self.options.message_limit;
        // A batch still holds the map, so the change copies the map.
        if Arc::get_mut(&mut self.dictionaries).is_none() {
            budget.take((self.dictionaries.len() as u64).saturating_mul(ENTRY_BYTES))?;
        }
        self.totals
            .add(limit, replaced, kept, copied, &body.buffers)?;
        let held = self.held.saturating_sub(before);
        self.held = held.saturating_add(columns.own_bytes());
        Arc::make_mut(&mut self.dictionaries).insert(
            batch.id(),
            Dictionary {
                columns,
                generation,
                checked,
                kept,
            },
        );
        Ok(copied)
    }

    /// Decodes a record batch. Its buffers point into the body. The release of the batch, and of
    /// every child that was moved out, drops the body. If the batch is moved to another device, the
    /// body is dropped earlier.
    ///
    /// An array on a GPU has an event if its readers must wait for work.
    ///
    /// # Errors
    ///
    /// `InvalidData` for an invalid message; `Protocol` for a compressed body that was lent (rule
    /// A4); `OutOfMemory`; the driver's errors for a GPU.
    pub fn batch(&mut self, header: &Header, body: &ReceivedBody) -> Result<DecodedBatch> {
        ensure_matches(header, body)?;
        self.totals.batch();
        if self.relocator.is_none()
            && let Some((columns, plain)) = self.spare.reuse(header, body)
        {
            return self.reused_batch(columns, plain, body);
        }
        let message = schema::message(header);
        let batch = (header.kind() == HeaderKind::RecordBatch)
            .then(|| message.header_as_record_batch())
            .flatten()
            .ok_or_else(|| Error::invalid_data("the message is not a record batch"))?;
        let budget = DecodeBudget::new(self.options.message_limit, &body.buffers);
        let spare = self.spare.take();
        let mut figures = MoveFigures::default();
        let built = if self.relocator.is_none() && body.gpu.is_none() {
            let root = &self.schema.root;
            let context = self.context(&message, &self.dictionaries, &budget)?;
            let mut built = build::batch(&context, root, &batch, body, spare)?;
            self.check(&mut built, &budget)?;
            built
        } else {
            self.with_relocator(|decoder, relocator| {
                let built = decoder.batch_moved(relocator, &message, &batch, body, spare, &budget);
                figures = relocator.take_figures();
                built
            })?
        };
        let mut custom_metadata = Vec::new();
        for pair in message.custom_metadata().into_iter().flatten() {
            let bytes = [pair.key(), pair.value()].map(|text| text.map_or(0, str::len));
            budget.take(
                PAIR_BYTES
                    .saturating_add(bytes[0] as u64)
                    .saturating_add(bytes[1] as u64),
            )?;
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            custom_metadata.push((text(pair.key()), text(pair.value())));
        }
        let rows = u64::try_from(batch.length()).unwrap_or(0);
        let plain = (built.plain && self.relocator.is_none() && custom_metadata.is_empty())
            .then(|| PlainBatch::new(header, self.align, rows));
        let array = self.hand_out(built.columns, plain)?;
        let array = match custom_metadata.as_slice() {
            [] => array,
            pairs => annotate(array, &write_metadata(pairs).unwrap_or_default()),
        };
        Ok(DecodedBatch {
            copied: built.copied,
            array,
            rows,
            custom_metadata,
            copied_on_device: figures.on_device,
            staged: figures.staged,
        })
    }

    /// Decodes a batch with the header of the last batch.
    fn reused_batch(
        &mut self,
        columns: Box<Columns>,
        plain: PlainBatch,
        body: &ReceivedBody,
    ) -> Result<DecodedBatch> {
        let mut built = Built {
            columns,
            copied: 0,
            plain: true,
        };
        let budget = DecodeBudget::new(self.options.message_limit, &body.buffers);
        self.check(&mut built, &budget)?;
        Ok(DecodedBatch {
            copied: built.copied,
            rows: plain.rows,
            array: self.hand_out(built.columns, Some(plain))?,
            custom_metadata: Vec::new(),
            copied_on_device: 0,
            staged: 0,
        })
    }

    /// Exports arrays and keeps their lists for the next batch.
    fn hand_out(
        &mut self,
        mut columns: Box<Columns>,
        plain: Option<PlainBatch>,
    ) -> Result<OwnedDeviceArray> {
        let array = export::array(&mut columns)?;
        self.spare.put(columns, plain);
        Ok(array)
    }

    /// Checks the values of a batch, at level full.
    fn check(&self, built: &mut Built, budget: &DecodeBudget<'_>) -> Result<()> {
        if self.options.level == Level::Full {
            let copied = values::check(&mut built.columns, &self.schema.root, budget)?;
            built.copied = built.copied.saturating_add(copied);
        }
        Ok(())
    }

    /// Decodes a batch whose body or target is on a GPU.
    fn batch_moved(
        &self,
        relocator: &mut Relocator,
        message: &ipc::Message<'_>,
        batch: &ipc::RecordBatch<'_>,
        body: &ReceivedBody,
        spare: Box<Columns>,
        budget: &DecodeBudget<'_>,
    ) -> Result<Built> {
        let place = match &self.place {
            Some(place) => place.clone(),
            None => ArrayPlace::of(body.device()),
        };
        let body = self.relocate(
            relocator,
            batch,
            body,
            batch.compression().is_some(),
            budget,
        )?;
        let dictionaries = relocator.dictionaries(&self.dictionaries, &place)?;
        let context = self.context(message, &dictionaries, budget)?;
        let root = &self.schema.root;
        let build = |spare| build::batch(&context, root, batch, &body, spare);
        let mut built = relocator.build(&body, spare, build)?;
        if body.gpu.is_none() {
            self.check(&mut built, budget)?;
            if let ArrayPlace::Gpu(device) = &place {
                // The bytes of this copy do not count as copied on the host.
                let all = body.buffers.iter().map(|buffer| buffer.len as u64);
                let total = all.fold(0, u64::saturating_add);
                DecodeBudget::new(self.options.message_limit, &body.buffers).take(total)?;
                relocator.upload(&mut built.columns, device)?;
            }
        }
        Ok(built)
    }

    /// Moves a body to a place where it can be decoded: the place of its arrays, or the host. All
    /// reads of whole values need the host.
    fn relocate<'b>(
        &self,
        relocator: &mut Relocator,
        batch: &ipc::RecordBatch<'_>,
        body: &'b ReceivedBody,
        to_host: bool,
        budget: &DecodeBudget<'_>,
    ) -> Result<Cow<'b, ReceivedBody>> {
        if batch.compression().is_some() {
            build::ensure_sent(body)?;
        }
        let to_host = to_host || self.options.level == Level::Full;
        relocator.relocate(body, self.place.as_ref(), to_host, budget)
    }

    fn with_relocator<T>(
        &mut self,
        work: impl FnOnce(&Self, &mut Relocator) -> Result<T>,
    ) -> Result<T> {
        let mut relocator = self.relocator.take().unwrap_or_default();
        relocator.poll();
        let outcome = work(self, &mut relocator);
        self.relocator = Some(relocator);
        outcome
    }

    fn context<'a>(
        &self,
        message: &ipc::Message<'_>,
        dictionaries: &'a Arc<ReceivedDictionaries>,
        budget: &'a DecodeBudget<'a>,
    ) -> Result<BuildContext<'a>> {
        Ok(BuildContext {
            dictionaries,
            budget,
            full: self.options.level == Level::Full,
            version_4: schema::is_version_4(message)?,
        })
    }
}

/// Prepares a dictionary for a join: checked, and in private memory. Also returns the bytes that
/// were copied for that.
fn joinable(
    field: &field::DecodedField,
    earlier: Dictionary,
    budget: &DecodeBudget<'_>,
) -> Result<(Arc<Columns>, u64)> {
    if earlier.checked && !earlier.columns.is_shared() {
        return Ok((earlier.columns, 0));
    }
    let mut old = Columns::default();
    old.append(&earlier.columns);
    let mut copied = old.make_private(budget)?;
    if !earlier.checked {
        copied = copied.saturating_add(values::check(&mut old, field, budget)?);
    }
    Ok((Arc::new(old), copied))
}

#[cfg(test)]
mod tests;
