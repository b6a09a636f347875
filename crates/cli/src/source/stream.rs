//! Reads files in the Arrow streaming format.

use std::fs::File;
use std::iter;

use dipc::ipc::{Decoder, HeaderKind};
use dipc::{Error, Result};

use super::figures::{Counted, Figures};
use super::messages::Input;
use super::reader::{Annotated, Reader};

/// Reads a stream from front to back.
pub struct StreamReader {
    input: Input,
    /// The offset of the message being read.
    at: u64,
    decoder: Decoder,
}

impl StreamReader {
    /// Reads the schema of a stream of `len` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData`, `Protocol` and `Unsupported`, with a reason.
    pub fn open(file: File, len: u64, message_limit: Option<u64>) -> Result<Reader> {
        Self::read(Input::new(file, len), message_limit)
    }

    /// The same for a pipe, whose stream must come to its end marker: a writer that fails closes
    /// the pipe too.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_pipe(pipe: File, message_limit: Option<u64>) -> Result<Reader> {
        let mut input = Input::of_pipe(pipe);
        input.ensure_stream()?;
        Self::read(input, message_limit)
    }

    fn read(mut input: Input, message_limit: Option<u64>) -> Result<Reader> {
        let schema = input
            .header()?
            .ok_or_else(|| Error::invalid_data("the stream ends before its schema"))?;
        let decoder = Decoder::new(&schema, message_limit)?;
        let mut reader = Self {
            at: input.at(),
            input,
            decoder,
        };
        let schema = reader.decoder.schema();
        let batches =
            iter::from_fn(move || {
                let next = reader.advance().transpose()?;
                Some(next.map_err(|error| {
                    error.context(format_args!("message at offset {}", reader.at))
                }))
            });
        Ok(Reader::new(schema, batches))
    }

    fn advance(&mut self) -> Result<Option<Annotated>> {
        loop {
            self.at = self.input.at();
            let Some(header) = self.input.header()? else {
                break;
            };
            let body = self.input.body(&header)?;
            if header.kind() == HeaderKind::Schema {
                return Err(Error::invalid_data("a second schema is in the stream"));
            }
            if let Some(batch) = self.decoder.decode(&header, &body)? {
                return Ok(Some(batch));
            }
        }
        self.input.ensure_ended()?;
        Ok(None)
    }
}

/// Reads the headers of a stream of `len` bytes up to its end. Larger batches than `most` rows
/// count as several.
///
/// # Errors
///
/// `InvalidData` for a cut stream, `InvalidData` and `Protocol` for bytes that are no message.
pub fn figures(file: File, len: u64, most: Option<usize>) -> Result<Figures> {
    let mut input = Input::new(file, len);
    let mut counted = Counted::default();
    loop {
        let at = input.at();
        let next = input.header().and_then(|header| match header {
            Some(header) => {
                counted.add(&header, most)?;
                input.pass(&header).map(Some)
            }
            None => input.ensure_ended().map(|()| None),
        });
        let next = next.map_err(|error| error.context(format_args!("message at offset {at}")));
        if next?.is_none() {
            return Ok(counted.figures());
        }
    }
}
