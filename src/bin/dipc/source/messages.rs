//! The messages of Arrow streams and files, one behind the other, and the batches in them.
//!
//! libdipc's own decoder reads them, at level full: it refuses what the reader of the `arrow` crate
//! takes for values, such as big-endian numbers, or panics on.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use dipc::arrow::decode::{DecodeOptions, Decoder, ReceivedBody};
use dipc::arrow::{batch_from_c, schema_from_c};
use dipc::device::HostBuffer;
use dipc::error::{Error, Result};
use dipc::proto::Header;

/// What stands before the length of a message since Arrow 0.15.
const MARKER: u32 = u32::MAX;

/// A file of messages, and how far it has been read.
pub struct Input {
    file: BufReader<File>,
    at: u64,
    /// Where reading stops: the end of the file, or of the part that holds messages.
    end: u64,
}

impl Input {
    /// Reads the first `end` bytes of `file`, which is at its start.
    pub fn new(file: File, end: u64) -> Self {
        Self {
            file: BufReader::with_capacity(1 << 16, file),
            at: 0,
            end,
        }
    }

    /// Where the next byte is read.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Goes to a place, from which on it reads to `end`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn seek(&mut self, at: u64, end: u64) -> Result<()> {
        self.file
            .seek(SeekFrom::Start(at))
            .map_err(|error| Error::io("cannot read the file", &error))?;
        self.at = at;
        self.end = end;
        Ok(())
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the file ends before; what the system says.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len() as u64;
        self.ensure_there(len)?;
        self.file
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                // It was longer when it was opened.
                ErrorKind::UnexpectedEof => self.cut(len),
                _ => Error::io("cannot read the file", &error),
            })?;
        self.at += len;
        Ok(())
    }

    /// The next header; `None` at the end of the stream. Its body follows.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the file is cut off; the errors of [`Header::parse`].
    pub fn header(&mut self) -> Result<Option<Header>> {
        // A writer may end a stream by closing the file.
        if self.at == self.end {
            return Ok(None);
        }
        let mut length = self.word()?;
        if length == MARKER {
            length = self.word()?;
        }
        if length == 0 {
            return Ok(None);
        }
        self.ensure_there(length.into())?;
        // Checked against the file, so that no claim is allocated.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.read(&mut bytes)?;
        Ok(Some(Header::parse(&bytes)?))
    }

    /// The body of the header just read.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the file is cut off; `OutOfMemory`.
    pub fn body(&mut self, header: &Header) -> Result<ReceivedBody> {
        let len = header.body_len();
        self.ensure_there(len)?;
        let mut memory = HostBuffer::to_fill(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.read(memory.as_mut_slice())?;
        ReceivedBody::packed(header, memory)
    }

    /// Passes over the body of the header just read.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the file is cut off; what the system says.
    pub fn pass(&mut self, header: &Header) -> Result<()> {
        let len = header.body_len();
        self.ensure_there(len)?;
        // Bodies are checked against the file, and no file has more bytes than that.
        self.file
            .seek_relative(i64::try_from(len).unwrap_or(i64::MAX))
            .map_err(|error| Error::io("cannot read the file", &error))?;
        self.at += len;
        Ok(())
    }

    /// The stream has ended, and so must the file.
    ///
    /// # Errors
    ///
    /// `InvalidData` where more follows, which is not read.
    pub fn ensure_ended(&self) -> Result<()> {
        match self.end - self.at {
            0 => Ok(()),
            rest => Err(Error::invalid_data(format!(
                "{rest} bytes follow the end of the stream; if they are another stream, write it \
                 to a file of its own"
            ))),
        }
    }

    fn word(&mut self) -> Result<u32> {
        let mut word = [0; 4];
        self.read(&mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn ensure_there(&self, len: u64) -> Result<()> {
        if len <= self.end - self.at {
            return Ok(());
        }
        Err(self.cut(len))
    }

    fn cut(&self, len: u64) -> Error {
        Error::invalid_data(format!(
            "it is cut off: {len} bytes are asked for at offset {}, and {} are there",
            self.at,
            self.end - self.at
        ))
    }
}

/// Makes batches of messages.
pub struct Batches {
    decoder: Decoder,
    schema: SchemaRef,
}

impl Batches {
    /// Reads the schema. `message_limit` is [`DecodeOptions::message_limit`].
    ///
    /// # Errors
    ///
    /// Those of [`Decoder::new`]; `InvalidData` for types that the `arrow` crate lacks.
    pub fn new(schema: &Header, message_limit: Option<u64>) -> Result<Self> {
        let mut options = DecodeOptions::default();
        if let Some(limit) = message_limit {
            options.message_limit = limit;
        }
        let decoder = Decoder::new(schema, options)?;
        let schema = Arc::new(schema_from_c(&decoder.schema())?);
        Ok(Self { decoder, schema })
    }

    /// The schema.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Takes a dictionary.
    ///
    /// # Errors
    ///
    /// Those of [`Decoder::add_dictionary`].
    pub fn add_dictionary(&mut self, header: &Header, body: &ReceivedBody) -> Result<()> {
        self.decoder.add_dictionary(header, body)?;
        Ok(())
    }

    /// Decodes a batch.
    ///
    /// # Errors
    ///
    /// Those of [`Decoder::batch`] and of [`batch_from_c`].
    pub fn batch(&mut self, header: &Header, body: &ReceivedBody) -> Result<RecordBatch> {
        let batch = self.decoder.batch(header, body)?;
        // SAFETY: the decoder has checked the array, at level full, against the schema that
        // `self.schema` was made of (rule A8).
        unsafe { batch_from_c(batch.array, &self.schema) }
    }
}
