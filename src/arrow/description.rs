//! What a descriptor stands for, as a table that crosses like any other (rule Q6).
//!
//! The table has a row for each endpoint. Its schema's metadata says what holds for the whole: the
//! schema as a base64 Arrow IPC message, and the totals.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryBuilder, Int64Builder, ListBuilder, RecordBatch,
    StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int64Type, Metadata, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::arrow::decode::{DecodeOptions, Decoder};
use crate::arrow::stream::{ArrayReader, export_device_stream};
use crate::arrow::{
    BatchReader, EncodeOptions, Encoder, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema,
    export_batches, schema_to_c,
};
use crate::error::{Error, Result};
use crate::proto::Header;

/// Most endpoints that a client reads (rule Q6), and most batches, which may be empty.
pub const MAX_ENDPOINTS: usize = 1 << 16;

/// Most bytes of descriptors and URIs that a client reads. A URI counts [`URI_BYTES`] at least.
const MAX_TEXT_BYTES: usize = 256 << 20;

/// Bytes that a URI takes besides its text.
const URI_BYTES: usize = 64;

const SCHEMA: &str = "dipc.schema";
const ROWS: &str = "dipc.rows";
const BYTES: &str = "dipc.bytes";
const BATCHES: &str = "dipc.batches";
const ORDERED: &str = "dipc.ordered";

/// The bytes before an Arrow IPC message that stands alone, outside a stream.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The length of such a message is a multiple of this.
const MESSAGE_ALIGNMENT: usize = 8;

/// What a descriptor stands for. `None`: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The schema, as an encapsulated Arrow IPC message.
    pub schema_message: Option<Vec<u8>>,
    /// Rows of the whole table.
    pub rows: Option<u64>,
    /// Bytes of its bodies.
    pub bytes: Option<u64>,
    /// Its record batches.
    pub batches: Option<u64>,
    /// Where its parts are.
    pub endpoints: Vec<Endpoint>,
    /// Whether the order of the parts is that of the table. Otherwise they may be read in any
    /// order.
    pub is_ordered: bool,
}

/// A part of a table, or a descriptor in a list. `None`: unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The ticket to ask for.
    pub descriptor: Vec<u8>,
    /// Servers that have it, best first. None: the server that was asked.
    pub uris: Vec<String>,
    /// Rows of the part.
    pub rows: Option<u64>,
    /// Bytes of its bodies.
    pub bytes: Option<u64>,
}

impl Description {
    /// Sets the schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a schema that cannot be sent.
    pub fn set_schema(&mut self, schema: &OwnedSchema) -> Result<()> {
        let encoder = Encoder::new(schema, EncodeOptions::default())?;
        self.schema_message = Some(schema_message(encoder.schema_header())?);
        Ok(())
    }

    /// The schema; `None`: unknown.
    ///
    /// # Errors
    ///
    /// `InvalidData`, `Unsupported`, `Protocol`: the server's bytes are not a schema.
    pub fn schema(&self) -> Result<Option<OwnedSchema>> {
        let read = |message: &Vec<u8>| {
            let text = "the schema of a description is no Arrow IPC message";
            let header = header(message).ok_or_else(|| Error::invalid_data(text))?;
            let header = Header::parse(header)?;
            Ok(Decoder::new(&header, DecodeOptions::default())?.schema())
        };
        self.schema_message.as_ref().map(read).transpose()
    }

    /// The table of the description: its schema and its only batch.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: a number past 2^63 - 1, or more than 2 GiB of text.
    pub fn table(&self) -> Result<(OwnedSchema, OwnedDeviceArray)> {
        let batch = self.batch()?;
        Ok((
            schema_to_c(&batch.schema())?,
            crate::arrow::batch_to_c(batch),
        ))
    }

    /// The table as a stream.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table).
    pub fn stream(&self) -> Result<OwnedDeviceStream> {
        let batch = self.batch()?;
        let schema = batch.schema();
        let batches = arrow::record_batch::RecordBatchIterator::new([Ok(batch)], schema);
        Ok(export_batches(Box::new(batches)))
    }

    /// Reads the table of a server. The table's stream has checked the values ([`Level::Full`]).
    ///
    /// # Errors
    ///
    /// Those of the stream; `InvalidData` if its table is no description.
    ///
    /// [`Level::Full`]: crate::arrow::decode::Level::Full
    pub fn read(reader: Box<dyn ArrayReader>) -> Result<Self> {
        // SAFETY: the stream is this crate's own, which gives arrays of its schema, with values
        // that it has checked.
        let mut reader = unsafe { BatchReader::new(export_device_stream(reader)) }?;
        let schema = arrow::record_batch::RecordBatchReader::schema(&reader);
        if schema.fields() != &fields() {
            let text = "the server answers with a table that is no description: its handler may \
                        not know the verb";
            return Err(Error::invalid_data(text));
        }
        let metadata = schema.metadata();
        let mut description = Self {
            schema_message: metadata.get(SCHEMA).map(decode).transpose()?,
            rows: total(metadata, ROWS)?,
            bytes: total(metadata, BYTES)?,
            batches: total(metadata, BATCHES)?,
            endpoints: Vec::new(),
            is_ordered: metadata.get(ORDERED).is_some_and(|text| text == "true"),
        };
        let (mut batches, mut text_bytes) = (0_usize, 0_usize);
        while let Some(batch) = reader.next_batch()? {
            batches += 1;
            text_bytes = text_bytes.saturating_add(text_bytes_of(&batch));
            if batches > MAX_ENDPOINTS || text_bytes > MAX_TEXT_BYTES {
                return Err(Error::invalid_data(format!(
                    "the server's description has more than {MAX_ENDPOINTS} batches, or its \
                     descriptors and URIs take more than {MAX_TEXT_BYTES} bytes"
                )));
            }
            if description.endpoints.len() + batch.num_rows() > MAX_ENDPOINTS {
                return Err(Error::invalid_data(format!(
                    "the server's description has more than {MAX_ENDPOINTS} endpoints"
                )));
            }
            description.endpoints.extend(endpoints(&batch)?);
        }
        Ok(description)
    }

    fn batch(&self) -> Result<RecordBatch> {
        let mut metadata = HashMap::new();
        if let Some(message) = &self.schema_message {
            metadata.insert(SCHEMA.to_owned(), STANDARD.encode(message));
        }
        for (key, value) in [
            (ROWS, self.rows),
            (BYTES, self.bytes),
            (BATCHES, self.batches),
        ] {
            metadata.extend(value.map(|value| (key.to_owned(), value.to_string())));
        }
        if self.is_ordered {
            metadata.insert(ORDERED.to_owned(), "true".to_owned());
        }
        let schema = Schema::new_with_metadata(fields(), metadata);
        let columns = columns(&self.endpoints)?;
        RecordBatch::try_new(Arc::new(schema), columns)
            .map_err(|error| Error::invalid_data(error.to_string()))
    }
}

/// The columns of the table.
fn fields() -> arrow::datatypes::Fields {
    let uri = Field::new("item", DataType::Utf8, false);
    [
        Field::new("descriptor", DataType::Binary, false),
        Field::new("uris", DataType::List(Arc::new(uri)), false),
        Field::new("rows", DataType::Int64, true),
        Field::new("bytes", DataType::Int64, true),
    ]
    .into_iter()
    .collect()
}

fn columns(endpoints: &[Endpoint]) -> Result<Vec<ArrayRef>> {
    let text = |endpoint: &Endpoint| {
        let uris = endpoint.uris.iter().map(String::len).sum::<usize>();
        uris.max(endpoint.descriptor.len())
    };
    if endpoints.iter().map(text).sum::<usize>() > i32::MAX as usize {
        let text = "the descriptors or URIs of a description take more than 2 GiB";
        return Err(Error::invalid_argument(text));
    }
    let mut descriptors = BinaryBuilder::new();
    let uri = Field::new("item", DataType::Utf8, false);
    let mut uris = ListBuilder::new(StringBuilder::new()).with_field(uri);
    let (mut rows, mut bytes) = (Int64Builder::new(), Int64Builder::new());
    for endpoint in endpoints {
        descriptors.append_value(&endpoint.descriptor);
        for uri in &endpoint.uris {
            uris.values().append_value(uri);
        }
        uris.append(true);
        rows.append_option(signed(endpoint.rows)?);
        bytes.append_option(signed(endpoint.bytes)?);
    }
    Ok(vec![
        Arc::new(descriptors.finish()),
        Arc::new(uris.finish()),
        Arc::new(rows.finish()),
        Arc::new(bytes.finish()),
    ])
}

fn signed(value: Option<u64>) -> Result<Option<i64>> {
    let text = |_| Error::invalid_argument("an endpoint has more than 2^63 - 1 rows or bytes");
    value
        .map(|value| i64::try_from(value).map_err(text))
        .transpose()
}

/// Bytes of the descriptors and URIs of a batch.
fn text_bytes_of(batch: &RecordBatch) -> usize {
    let ends = |offsets: &[i32]| match offsets {
        [first, .., last] => usize::try_from(last - first).unwrap_or(0),
        _ => 0,
    };
    let descriptor_bytes = ends(batch.column(0).as_binary::<i32>().value_offsets());
    let uris = batch.column(1).as_list::<i32>();
    let uri_bytes = ends(uris.values().as_string::<i32>().value_offsets());
    let count = ends(uris.value_offsets());
    (descriptor_bytes.saturating_add(uri_bytes)).saturating_add(count.saturating_mul(URI_BYTES))
}

fn endpoints(batch: &RecordBatch) -> Result<Vec<Endpoint>> {
    let number = |index, row| {
        let column = batch.column(index).as_primitive::<Int64Type>();
        let value = column.is_valid(row).then(|| column.value(row));
        let text = |_| Error::invalid_data("an endpoint has a negative number of rows or bytes");
        value
            .map(|value| u64::try_from(value).map_err(text))
            .transpose()
    };
    let descriptors = batch.column(0).as_binary::<i32>();
    let uris = batch.column(1).as_list::<i32>();
    (0..batch.num_rows())
        .map(|row| {
            let uris = uris.value(row);
            let uris = uris.as_string::<i32>().iter().flatten();
            Ok(Endpoint {
                descriptor: descriptors.value(row).to_vec(),
                uris: uris.map(str::to_owned).collect(),
                rows: number(2, row)?,
                bytes: number(3, row)?,
            })
        })
        .collect()
}

fn total(metadata: &Metadata, key: &str) -> Result<Option<u64>> {
    let read = |text: &String| {
        let malformed = |_| Error::invalid_data(format!("{key} of a description is no number"));
        text.parse().map_err(malformed)
    };
    metadata.get(key).map(read).transpose()
}

fn decode(text: &String) -> Result<Vec<u8>> {
    let malformed = |_| Error::invalid_data(format!("{SCHEMA} of a description is no base64"));
    STANDARD.decode(text).map_err(malformed)
}

/// The encapsulated Arrow IPC message of a schema's header.
///
/// # Errors
///
/// `InvalidArgument`: a header of 4 GiB.
pub(crate) fn schema_message(header: &[u8]) -> Result<Vec<u8>> {
    let padded = header.len().next_multiple_of(MESSAGE_ALIGNMENT);
    let length = u32::try_from(padded)
        .map_err(|_| Error::invalid_argument("the schema of a description is too long"))?;
    let mut message = CONTINUATION.to_vec();
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(header);
    message.resize(CONTINUATION.len() + size_of_val(&length) + padded, 0);
    Ok(message)
}

/// The header of an encapsulated Arrow IPC message.
fn header(message: &[u8]) -> Option<&[u8]> {
    let rest = message.strip_prefix(&CONTINUATION)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::SchemaRef;
    use arrow::record_batch::RecordBatchIterator;

    use super::*;
    use crate::arrow::schema_from_c;
    use crate::arrow::stream::DeviceStreamReader;

    fn read(stream: OwnedDeviceStream) -> Result<Description> {
        Description::read(Box::new(DeviceStreamReader::new(stream)))
    }

    fn of(schema: Schema, columns: Vec<ArrayRef>) -> Result<Description> {
        let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
        let schema: SchemaRef = batch.schema();
        read(export_batches(Box::new(RecordBatchIterator::new(
            [Ok(batch)],
            schema,
        ))))
    }

    /// Rule Q6: a description comes back whole, and its schema is an Arrow IPC message that
    /// Arrow's own reader reads.
    #[test]
    fn a_description_comes_back_whole() {
        let schema = Schema::new(vec![Field::new("a", DataType::Utf8View, true)]);
        let mut description = Description {
            rows: Some(7),
            bytes: Some(1 << 40),
            endpoints: vec![
                Endpoint {
                    descriptor: vec![0, 255],
                    uris: vec!["shm:/a".into(), "tcp://b:1".into()],
                    rows: Some(3),
                    bytes: None,
                },
                Endpoint::default(),
            ],
            ..Description::default()
        };
        description
            .set_schema(&schema_to_c(&schema).unwrap())
            .unwrap();
        let back = read(description.stream().unwrap()).unwrap();
        assert_eq!(back, description);
        let back = back.schema().unwrap().unwrap();
        assert_eq!(schema_from_c(&back).unwrap(), schema);

        let table = schema_from_c(&description.table().unwrap().0).unwrap();
        let message = STANDARD.decode(&table.metadata()[SCHEMA]).unwrap();
        let read = arrow::ipc::convert::try_schema_from_ipc_buffer(&message).unwrap();
        assert_eq!(read, schema);
    }

    /// Rule Q6: everything may be unknown.
    #[test]
    fn everything_may_be_unknown() {
        let back = read(Description::default().stream().unwrap()).unwrap();
        assert_eq!(back, Description::default());
        assert!(back.schema().unwrap().is_none());
    }

    /// Rule A8: a table of a peer that is no description is an error that says so.
    #[test]
    fn other_tables_are_refused() {
        let other = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let error = of(other, vec![Arc::new(Int64Array::from(vec![1]))]).unwrap_err();
        assert!(error.text().contains("no description"), "{error}");

        let endpoint = Endpoint::default();
        for (key, value) in [
            (ROWS, "-1"),
            (BYTES, "many"),
            (BATCHES, "18446744073709551616"),
            (SCHEMA, "?"),
        ] {
            let metadata = HashMap::from([(key.to_owned(), value.to_owned())]);
            let schema = Schema::new_with_metadata(fields(), metadata);
            let columns = columns(std::slice::from_ref(&endpoint)).unwrap();
            let error = of(schema, columns).unwrap_err();
            assert!(error.text().contains(key), "{key} {value}: {error}");
        }
        for message in [
            &b""[..],
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\x10\0\0\0",
            &[7; 40],
        ] {
            let description = Description {
                schema_message: Some(message.to_vec()),
                ..Description::default()
            };
            let back = read(description.stream().unwrap()).unwrap();
            assert!(back.schema().is_err(), "{message:?}");
        }
        let mut columns = columns(&[endpoint]).unwrap();
        columns[2] = Arc::new(Int64Array::from(vec![-1]));
        let error = of(Schema::new(fields()), columns).unwrap_err();
        assert!(error.text().contains("negative"), "{error}");
    }

    /// Rule Q6: more endpoints than the limit are refused.
    #[test]
    fn too_many_endpoints_are_refused() {
        let description = Description {
            endpoints: vec![Endpoint::default(); MAX_ENDPOINTS + 1],
            ..Description::default()
        };
        let error = read(description.stream().unwrap()).unwrap_err();
        assert!(error.text().contains("65536"), "{error}");
    }

    /// Rule A8: batches without rows, and URIs without bytes, end at the limit too.
    #[test]
    fn endless_descriptions_are_refused() {
        let batch = Description::default().batch().unwrap();
        let schema = batch.schema();
        let endless = std::iter::repeat_with(move || Ok(batch.clone()));
        let endless = RecordBatchIterator::new(endless, schema);
        let error = read(export_batches(Box::new(endless))).unwrap_err();
        assert!(error.text().contains("65536 batches"), "{error}");

        let endpoint = |count| Endpoint {
            uris: vec![String::new(); count],
            ..Endpoint::default()
        };
        let described = |count| {
            let endpoints = vec![endpoint(count)];
            let description = Description {
                endpoints,
                ..Description::default()
            };
            read(description.stream().unwrap())
        };
        let most = MAX_TEXT_BYTES / URI_BYTES;
        assert_eq!(described(1000).unwrap().endpoints[0].uris.len(), 1000);
        let error = described(most + 1).unwrap_err();
        assert!(error.text().contains("URIs take more"), "{error}");
    }
}
