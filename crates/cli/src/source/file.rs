//! Files in the Arrow file format: a stream, and a footer with the places of its messages.
//!
//! The footer decides what is read, so it is compared with the messages. Errors are: a block
//! outside the file, a block that overlaps another block or other data, a message that no block
//! names, and a schema that differs from the stream's.

use std::fs::File;
use std::iter;

use arrow::buffer::MutableBuffer;
use arrow::ipc::{Block, MetadataVersion};
use dipc::ipc::{Body, Decoder, Header, HeaderKind, footer};
use dipc::{Error, Result};

use super::figures::{Counted, Figures};
use super::messages::Input;
use super::reader::{Annotated, Reader};

/// The first and the last bytes.
const MAGIC: &[u8; 6] = b"ARROW1";
/// The offset of the stream, after the padded magic bytes.
const START: u64 = 8;
/// The bytes after the footer: its length, and the magic bytes.
const TAIL: u64 = 10;

/// A message's place in the footer.
#[derive(Debug, Clone, Copy)]
struct Place {
    kind: HeaderKind,
    /// The offsets of the message, of its body, and of the body's end.
    start: u64,
    body: u64,
    end: u64,
}

/// Reads the batches in the order of the footer.
pub struct FileReader {
    input: Input,
    decoder: Decoder,
    rest: std::vec::IntoIter<Place>,
}

impl FileReader {
    /// Reads the footer, the schema and the dictionaries of a file of `len` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData`, `Protocol` and `Unsupported`, with a reason.
    pub fn open(file: File, len: u64, message_limit: Option<u64>) -> Result<Reader> {
        let mut input = Input::new(file, len);
        let footer = Footer::read(&mut input, len)?;
        let footer_start = footer.start;
        let schema = first_message(&mut input, footer_start)?;
        let decoder = Decoder::new(&schema, message_limit)?;
        if !footer.has_fields_of(&schema)? {
            return Err(Error::invalid_data(
                "the footer has another schema than the stream before it",
            ));
        }
        let stream = input.at();
        let places = footer.places()?;
        ensure_tiled(&mut input, &places, stream, footer_start)?;
        let (dictionaries, rest): (Vec<_>, Vec<_>) = places
            .into_iter()
            .partition(|place| place.kind == HeaderKind::Dictionary);
        let mut reader = Self {
            input,
            decoder,
            rest: rest.into_iter(),
        };
        reader.read_dictionaries(&dictionaries)?;
        let schema = reader.decoder.schema();
        let batches = iter::from_fn(move || reader.advance().transpose());
        Ok(Reader::new(schema, batches))
    }

    /// Dictionaries apply to all batches, wherever they lie. So each has one value, and deltas.
    fn read_dictionaries(&mut self, places: &[Place]) -> Result<()> {
        let mut seen = std::collections::HashSet::new();
        for place in places {
            let (header, body) = self.message(*place)?;
            let message = header.message()?;
            if let Some(dictionary) = message.header_as_dictionary_batch()
                && !seen.insert(dictionary.id())
                && !dictionary.isDelta()
            {
                return Err(Error::invalid_data(format!(
                    "dictionary {} comes twice, which the Arrow file format does not allow; write \
                     the table as an Arrow stream",
                    dictionary.id()
                )));
            }
            self.decoder.decode(&header, &body)?;
        }
        Ok(())
    }

    /// Reads a message at its place in the footer.
    fn message(&mut self, place: Place) -> Result<(Header, Body)> {
        let at = |error: Error| error.context(format_args!("block at offset {}", place.start));
        self.input.seek(place.start, place.body)?;
        let header = self
            .input
            .header()
            .map_err(at)?
            .filter(|header| header.kind() == place.kind)
            .ok_or_else(|| at(Error::invalid_data("it is not what the footer calls it")))?;
        if header.body_len() != place.end - place.body {
            return Err(at(Error::invalid_data(format!(
                "its body has {} bytes, and {} by the footer",
                header.body_len(),
                place.end - place.body
            ))));
        }
        self.input.seek(place.body, place.end)?;
        let body = self.input.body(&header).map_err(at)?;
        Ok((header, body))
    }

    fn advance(&mut self) -> Result<Option<Annotated>> {
        let Some(place) = self.rest.next() else {
            return Ok(None);
        };
        let (header, body) = self.message(place)?;
        let batch = self.decoder.decode(&header, &body);
        batch.map_err(|error| error.context(format_args!("block at offset {}", place.start)))
    }
}

/// Reads the headers that the footer of a file of `len` bytes names. Larger batches than `most`
/// rows count as several.
///
/// # Errors
///
/// `InvalidData`, `Protocol` and `Unsupported`, with a reason.
pub fn figures(file: File, len: u64, most: Option<usize>) -> Result<Figures> {
    let mut input = Input::new(file, len);
    let places = Footer::read(&mut input, len)?.places()?;
    let mut counted = Counted::default();
    for place in places {
        input.seek(place.start, place.body)?;
        if let Some(header) = input.header()? {
            counted.add(&header, most)?;
        }
    }
    Ok(counted.figures())
}

/// The offset of the footer.
fn find_footer(input: &mut Input, len: u64) -> Result<u64> {
    let cut = || {
        Error::invalid_data(
            "it is cut off or was not finished: it does not end with a footer and \"ARROW1\"",
        )
    };
    if len < START + TAIL {
        return Err(cut());
    }
    let mut tail = [0; 10];
    input.seek(len - TAIL, len)?;
    input.read(&mut tail)?;
    let (length, magic) = tail.split_at(4);
    if magic != MAGIC {
        return Err(cut());
    }
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    (len - TAIL)
        .checked_sub(length.into())
        .filter(|start| *start >= START && length > 0)
        .ok_or_else(|| Error::invalid_data(format!("it cannot have a footer of {length} bytes")))
}

/// The first message of the stream. Some writers pad the magic bytes to 64.
fn first_message(input: &mut Input, end: u64) -> Result<Header> {
    let mut at = START;
    while at < end && at <= 64 {
        input.seek(at, end)?;
        if let Some(header) = input.header()? {
            return Ok(header);
        }
        at += 8;
    }
    Err(Error::invalid_data("the file holds no schema"))
}

/// The footer.
struct Footer {
    /// Its offset in the file.
    start: u64,
    bytes: MutableBuffer,
}

impl Footer {
    /// Reads the footer of a file of `len` bytes.
    fn read(input: &mut Input, len: u64) -> Result<Self> {
        let start = find_footer(input, len)?;
        // A flatbuffer is read where it is aligned.
        let rest = usize::try_from(len - TAIL - start).unwrap_or(0);
        let mut bytes = MutableBuffer::from_len_zeroed(rest);
        input.seek(start, len)?;
        input.read(&mut bytes)?;
        Ok(Self { start, bytes })
    }

    /// Whether the schema of `message` has the fields of the footer's.
    fn has_fields_of(&self, message: &Header) -> Result<bool> {
        let compared = footer(&self.bytes).and_then(|footer| {
            let schema = footer.schema();
            let schema = schema.ok_or_else(|| Error::invalid_data("it has no schema"))?;
            message.has_fields_of(&schema)
        });
        compared.map_err(|error| error.context("footer"))
    }

    /// Dictionaries, then batches, each in the footer's order.
    fn places(&self) -> Result<Vec<Place>> {
        let read = || {
            let footer = footer(&self.bytes)?;
            // Java left the version out for long, so it reads as V1. Each message has its own
            // version too.
            if footer.version() > MetadataVersion::V5 {
                return Err(Error::unsupported(format!(
                    "metadata version V{} of the Arrow format cannot be read: V4 and V5 can",
                    i32::from(footer.version().0) + 1
                )));
            }
            let dictionaries = footer.dictionaries().into_iter().flatten();
            let batches = footer.recordBatches().into_iter().flatten();
            (dictionaries.map(|block| (HeaderKind::Dictionary, block)))
                .chain(batches.map(|block| (HeaderKind::RecordBatch, block)))
                .map(|(kind, block)| place(kind, block, self.start))
                .collect()
        };
        read().map_err(|error: Error| error.context("footer"))
    }
}

fn place(kind: HeaderKind, block: &Block, footer_start: u64) -> Result<Place> {
    let number = |number: i64| u64::try_from(number).ok();
    let ends = || {
        let start = number(block.offset()).filter(|start| *start >= START)?;
        let body = start.checked_add(number(block.metaDataLength().into())?)?;
        let end = body.checked_add(number(block.bodyLength())?)?;
        (body > start && end <= footer_start).then_some(Place {
            kind,
            start,
            body,
            end,
        })
    };
    ends().ok_or_else(|| {
        Error::invalid_data(format!(
            "a block at offset {} with {} bytes of metadata and {} of body lies outside the {} \
             bytes before the footer",
            block.offset(),
            block.metaDataLength(),
            block.bodyLength(),
            footer_start
        ))
    })
}

/// Checks that the blocks do not overlap, with only padding and the stream's end between them.
fn ensure_tiled(input: &mut Input, places: &[Place], start: u64, end: u64) -> Result<()> {
    let mut sorted: Vec<_> = places
        .iter()
        .map(|place| (place.start, place.end))
        .collect();
    sorted.sort_unstable();
    sorted.push((end, end));
    let mut at = start;
    for (start, end) in sorted {
        if start < at {
            return Err(Error::invalid_data(format!(
                "the footer has a block at offset {start}, which lies over what is before it"
            )));
        }
        ensure_padding(input, at, start)?;
        at = end;
    }
    Ok(())
}

/// Checks for zeros only, or a stream's end: the marker and zeros.
fn ensure_padding(input: &mut Input, start: u64, end: u64) -> Result<()> {
    if start == end {
        return Ok(());
    }
    input.seek(start, end)?;
    let mut chunk = [0; 1 << 12];
    while input.at() < end {
        let rest = usize::try_from(end - input.at()).unwrap_or(chunk.len());
        let len = rest.min(chunk.len());
        input.read(&mut chunk[..len])?;
        if chunk[..len].iter().any(|byte| !matches!(byte, 0 | 0xff)) {
            return Err(Error::invalid_data(format!(
                "what lies from offset {start} to {end} is in no block of the footer"
            )));
        }
    }
    Ok(())
}
