//! Arrow out: from the headers and bodies of a stream to arrays that consumers own.
//!
//! Nothing a peer sends is trusted (rule A8): a [`Decoder`] hands out arrays whose structure is
//! sound, and at level [`Level::Full`] arrays whose values are, too. Buffers stay where they were
//! received; what had to be copied is counted. Bodies may lie on a GPU, and arrays may be wanted
//! there ([`Decoder::with_target`]).

mod bits;
mod body;
mod budget;
mod build;
mod children;
mod choices;
mod columns;
mod compression;
mod empty;
mod export;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grown;
mod index;
mod join;
mod noted;
mod options;
mod parts;
mod plain;
mod relocate;
mod remote;
mod reuse;
mod schema;
mod seen;
mod values;
mod views;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::ipc;

pub use body::ReceivedBody;
pub use options::{DecodeOptions, DecodedBatch, Level};

use crate::arrow::decode::body::ensure_matches;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::build::{BuildContext, Built};
use crate::arrow::decode::columns::{Columns, Dictionary, ReceivedDictionaries};
use crate::arrow::decode::relocate::{ArrayPlace, MoveFigures, Relocator};
use crate::arrow::decode::reuse::{PlainBatch, SpareColumns, alignment};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::Target;
use crate::device::gpu::{Gpu, GpuAllocator};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

/// What a pair of custom metadata takes beside its bytes: in the list, which doubles as it grows.
const PAIR_BYTES: u64 = 3 * size_of::<(String, String)>() as u64;

/// Decodes the messages of one stream, in their order.
#[derive(Debug)]
pub struct Decoder {
    /// What `schema` was read from.
    header: Header,
    schema: schema::DecodedSchema,
    /// Shared with the batches that use them: a change makes another map, once for each batch.
    dictionaries: Arc<ReceivedDictionaries>,
    generations: u64,
    /// Bytes of the host that dictionaries hold beside their bodies.
    held: u64,
    options: DecodeOptions,
    spare: SpareColumns,
    /// The most that its columns of fixed width ask for.
    align: usize,
    /// Where arrays are to be; `None`: where their bodies are.
    place: Option<ArrayPlace>,
    /// From the time on when a GPU has to do with it.
    relocator: Option<Box<Relocator>>,
}

impl Decoder {
    /// Reads the schema of a stream. Its arrays are to be on the host.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the schema is not sound; `Unsupported` for big-endian streams, metadata
    /// versions other than 4 and 5 (rule A6), and types that a later format may add.
    pub fn new(header: &Header, options: DecodeOptions) -> Result<Self> {
        Self::at(header, options, Some(ArrayPlace::Host))
    }

    /// Reads the schema of a stream whose arrays are to be at `target`, wherever their bodies are.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); as `Device::get` where the target is a GPU.
    pub fn with_target(header: &Header, options: DecodeOptions, target: Target) -> Result<Self> {
        let place = match target {
            Target::Host => Some(ArrayPlace::Host),
            Target::Cuda(ordinal) => Some(ArrayPlace::Gpu(Gpu::get(ordinal.into())?)),
            Target::AsSent => None,
        };
        Self::at(header, options, place)
    }

    /// [`with_target`](Self::with_target) for the GPU of `room`, which gives the memory for what is
    /// moved there.
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
        let mut decoder = Self::at(header, options, Some(place))?;
        if let Some(relocator) = &mut decoder.relocator {
            relocator.set_room(room);
        }
        Ok(decoder)
    }

    fn at(header: &Header, options: DecodeOptions, place: Option<ArrayPlace>) -> Result<Self> {
        let schema = schema::parse(header, options.message_limit)
            .map_err(|error| error.context("schema"))?;
        Ok(Self {
            header: header.clone(),
            align: alignment(&schema.root),
            schema,
            dictionaries: Arc::default(),
            generations: 0,
            held: 0,
            options,
            spare: SpareColumns::default(),
            relocator: matches!(place, Some(ArrayPlace::Gpu(_))).then(Box::default),
            place,
        })
    }

    /// The decoder for another stream of the same schema: it lets go of all that has come. `None`
    /// where a GPU has to do with it.
    pub fn emptied(mut self) -> Option<Self> {
        if self.relocator.is_some() || !matches!(self.place, Some(ArrayPlace::Host)) {
            return None;
        }
        self.dictionaries = Arc::default();
        self.generations = 0;
        self.held = 0;
        Some(self)
    }

    /// Whether it is [emptied](Self::emptied) what [`with_target`](Self::with_target) would make.
    pub fn fits(&self, header: &Header, options: DecodeOptions, target: Target) -> bool {
        self.header.is(header) && self.options == options && target == Target::Host
    }

    /// The header that its schema was read from.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The schema, as a struct with a child for each column: a fresh C schema at each call.
    pub fn schema(&self) -> OwnedSchema {
        export::schema(&self.schema.root)
    }

    /// Takes a dictionary: a new one, a replacement, or a delta, which is joined with what is there
    /// (rule A3). Batches decoded before keep the one that they use. Returns the bytes copied on
    /// the host.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the message is not sound or fits no field of the schema; `Unsupported`
    /// for a delta whose inner dictionary was replaced; `OutOfMemory`. The dictionaries are as
    /// before then.
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
        // A delta of nothing is a dictionary.
        let delta = batch.isDelta() && known.is_some();
        let received = known.filter(|_| delta).map_or(0, |known| known.received);
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
                let body = decoder.bring(relocator, &data, body, to_host, &budget)?;
                let place = ArrayPlace::of(body.device());
                let nested = relocator.dictionaries(&decoder.dictionaries, &place)?;
                let context = decoder.context(message, &nested, &budget)?;
                let build = |spare| build::dictionary(&context, field, &data, &body, spare);
                let built = relocator.build(&body, Box::default(), build)?;
                // They are joined on the host.
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
        // Joining follows offsets, which only checked values allow.
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
        let held = self.held.saturating_sub(before);
        self.held = held.saturating_add(columns.own_bytes());
        Arc::make_mut(&mut self.dictionaries).insert(
            batch.id(),
            Dictionary {
                columns,
                generation,
                checked,
                received,
            },
        );
        Ok(copied)
    }

    /// Decodes a record batch. Its buffers point into the body, which is dropped when the batch,
    /// and every child moved out of it, has been released; or it is dropped sooner, where the batch
    /// is to be elsewhere.
    ///
    /// An array on a GPU carries an event where work is under way that its readers must wait for.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the message is not sound; `Protocol` for a compressed body that was lent
    /// (rule A4); `OutOfMemory`; what the driver says, where a GPU is involved.
    pub fn batch(&mut self, header: &Header, body: &ReceivedBody) -> Result<DecodedBatch> {
        ensure_matches(header, body)?;
        if self.relocator.is_none()
            && let Some((columns, plain)) = self.spare.again(header, body)
        {
            return self.batch_again(columns, plain, body);
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
        Ok(DecodedBatch {
            copied: built.copied,
            array: self.hand_out(built.columns, plain)?,
            rows,
            custom_metadata,
            copied_on_device: figures.on_device,
            staged: figures.staged,
        })
    }

    /// A batch like the one before.
    fn batch_again(
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

    /// Hands arrays out and keeps their lists for the next batch.
    fn hand_out(
        &mut self,
        mut columns: Box<Columns>,
        plain: Option<PlainBatch>,
    ) -> Result<OwnedDeviceArray> {
        let array = export::array(&mut columns)?;
        self.spare.put(columns, plain);
        Ok(array)
    }

    /// Level full: checks the values of a batch.
    fn check(&self, built: &mut Built, budget: &DecodeBudget<'_>) -> Result<()> {
        if self.options.level == Level::Full {
            let copied = values::check(&mut built.columns, &self.schema.root, budget)?;
            built.copied = built.copied.saturating_add(copied);
        }
        Ok(())
    }

    /// A batch whose body or whose place is a GPU.
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
        let body = self.bring(
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
                // What of it was copied on the host is no part of this.
                let all = body.buffers.iter().map(|buffer| buffer.len as u64);
                let total = all.fold(0, u64::saturating_add);
                DecodeBudget::new(self.options.message_limit, &body.buffers).take(total)?;
                relocator.upload(&mut built.columns, device)?;
            }
        }
        Ok(built)
    }

    /// A body where it can be decoded: where its arrays are to be, or on the host. There it is
    /// where the processor reads all of it.
    fn bring<'b>(
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
        relocator.bring(body, self.place.as_ref(), to_host, budget)
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

/// A dictionary that a delta can be joined with: its values checked, its memory ours. Returns also
/// the bytes copied for that.
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
