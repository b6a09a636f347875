//! Messages of Arrow's IPC format from sources that nobody has checked: files, queues, Arrow
//! Flight.
//!
//! Every value is checked before it becomes a record batch, as if a peer of another user had sent
//! it.
//!
//! ```
//! # fn read(messages: Vec<(Vec<u8>, Vec<u8>)>) -> dipc::Result<()> {
//! use dipc::ipc::{Body, Decoder, Header};
//!
//! let mut messages = messages.into_iter();
//! # let Some((schema, _)) = messages.next() else { return Ok(()) };
//! let mut decoder = Decoder::new(&Header::parse(&schema)?, None)?;
//! for (header, body) in messages {
//!     let header = Header::parse(&header)?;
//!     let body = Body::copy_of(&header, &body)?;
//!     if let Some((batch, metadata)) = decoder.decode(&header, &body)? {
//!         println!("{} rows, {metadata:?}", batch.num_rows());
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc;

use crate::arrow::batches::{batch_from_c, schema_from_c};
use crate::arrow::decode::{self, DecodeOptions, ReceivedBody};
use crate::arrow::format::{Field, Metadata, Schema};
use crate::device::HostBuffer;
use crate::error::{Error, Result};
use crate::proto::{self, verifier_options};

pub use crate::proto::HeaderKind;

/// The header of a message: its flatbuffer is verified, and its buffers lie inside its body.
#[derive(Clone)]
pub struct Header(proto::Header);

impl Header {
    /// Reads the flatbuffer of a message, without its marker and length.
    ///
    /// # Errors
    ///
    /// `Protocol`: the bytes are no schema, dictionary or record batch of metadata version 4 or 5
    /// in little-endian order, or a buffer lies outside the body.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Ok(Self(proto::Header::parse(bytes)?))
    }

    /// The kind of the message.
    pub fn kind(&self) -> HeaderKind {
        self.0.kind()
    }

    /// Bytes of the body, with padding; 0 for a schema.
    pub fn body_len(&self) -> u64 {
        self.0.body_len()
    }

    /// Whether the body is compressed.
    pub fn is_compressed(&self) -> bool {
        self.0.compressed()
    }

    /// The flatbuffer, aligned to 8 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The flatbuffer as the `arrow` crate reads it.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn message(&self) -> Result<ipc::Message<'_>> {
        let bytes = self.0.bytes();
        ipc::root_as_message_with_opts(&verifier_options(bytes.len()), bytes)
            .map_err(|error| Error::invalid_data(error.to_string()))
    }

    /// Whether the schema of this message has the same fields as `schema`, for example the schema
    /// of a file's footer: the same names, types and dictionaries. Metadata may differ.
    ///
    /// # Errors
    ///
    /// `InvalidData` and `Unsupported`: one of the two is not a valid schema.
    pub fn has_fields_of(&self, schema: &ipc::Schema<'_>) -> Result<bool> {
        let message = self.message()?;
        let own = message
            .header_as_schema()
            .ok_or_else(|| Error::invalid_data("its first message is not a schema"))?;
        let (own, other) = (Schema::from_ipc(&own)?, Schema::from_ipc(schema)?);
        Ok(same_fields(&own.fields, &other.fields))
    }
}

/// Whether the fields have the same types.
fn same_fields(one: &[Field], other: &[Field]) -> bool {
    let same = |(one, other): (&Field, &Field)| {
        one.name == other.name
            && one.ty == other.ty
            && one.nullable == other.nullable
            && one.dictionary == other.dictionary
            && same_fields(&one.children, &other.children)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

opaque_debug! { Header, |it| kind = it.kind(), body_len = it.body_len() }

/// Reads the footer of an Arrow file: the flatbuffer before the file's last 10 bytes.
///
/// # Errors
///
/// `InvalidData`: the bytes are no footer.
pub fn footer(bytes: &[u8]) -> Result<ipc::Footer<'_>> {
    ipc::root_as_footer_with_opts(&verifier_options(bytes.len()), bytes)
        .map_err(|error| Error::invalid_data(format!("it is not a flatbuffer: {error}")))
}

/// The body of a message, in memory that arrays can use where it lies.
#[derive(Clone)]
pub struct Body(ReceivedBody);

impl Body {
    /// Allocates the body of `header`, and has `read` fill it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; the error of `read`.
    pub fn read(header: &Header, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let len = usize::try_from(header.body_len()).unwrap_or(usize::MAX);
        let mut memory = HostBuffer::to_fill(len)?;
        read(memory.as_mut_slice())?;
        ReceivedBody::packed(&header.0, memory).map(Self)
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    ///
    /// `Protocol` if the header says another length; `OutOfMemory`.
    pub fn copy_of(header: &Header, bytes: &[u8]) -> Result<Self> {
        let memory = HostBuffer::copy_of(bytes)?;
        ReceivedBody::packed(&header.0, memory).map(Self)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

/// Decodes the messages of one stream.
pub struct Decoder {
    inner: decode::Decoder,
    schema: SchemaRef,
    copied: u64,
}

impl Decoder {
    /// Reads the schema of a stream. `message_limit`: most bytes that a message may take in
    /// addition to its body; `None`: 512 MiB.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a header that is no schema, or has a type that the `arrow` crate lacks;
    /// `Unsupported` for types of a later format.
    pub fn new(schema: &Header, message_limit: Option<u64>) -> Result<Self> {
        let options = DecodeOptions::of_peer(false, None, message_limit);
        let inner = decode::Decoder::new(&schema.0, options)?;
        let schema = SchemaRef::new(schema_from_c(&inner.schema())?);
        Ok(Self {
            inner,
            schema,
            copied: 0,
        })
    }

    /// The schema of each batch.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Decodes a message: keeps a dictionary, or gives a record batch and its custom metadata. The
    /// batch shares the memory of the body.
    ///
    /// # Errors
    ///
    /// `Protocol` for a second schema; `InvalidData` for damaged values; `OutOfMemory`.
    pub fn decode(
        &mut self,
        header: &Header,
        body: &Body,
    ) -> Result<Option<(RecordBatch, Metadata)>> {
        match header.kind() {
            HeaderKind::Schema => Err(Error::protocol("a second schema came in one stream")),
            HeaderKind::Dictionary => {
                self.copied += self.inner.add_dictionary(&header.0, &body.0)?;
                Ok(None)
            }
            HeaderKind::RecordBatch => {
                let decoded = self.inner.batch(&header.0, &body.0)?;
                self.copied += decoded.copied;
                // SAFETY: the decoder has checked the array, at level full, against the schema
                // that `self.schema` was made of (rule A8).
                let batch = unsafe { batch_from_c(decoded.array, &self.schema) }?;
                Ok(Some((batch, decoded.custom_metadata)))
            }
        }
    }

    /// Bytes of buffers that were unpacked or copied up to now.
    pub fn bytes_copied(&self) -> u64 {
        self.copied
    }
}

opaque_debug! { Decoder, |it| schema = it.schema }
