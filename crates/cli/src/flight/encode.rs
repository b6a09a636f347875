//! Encodes record batches as messages of `DoGet`.

use std::ops::ControlFlow;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow_flight::FlightData;
use dipc::arrow::{EncodeOptions, EncodedMessage, Encoder, batch_to_c, schema_to_c};
use dipc::error::{Error, Result};

use crate::lend::compact;

/// Largest body of a message with more than one row, in bytes. Many clients of gRPC refuse messages
/// of more than 4 MiB.
const MAX_BODY: u64 = 2 << 20;

/// Encodes one table.
pub struct FlightEncoder {
    encoder: Encoder,
    schema: SchemaRef,
}

impl FlightEncoder {
    /// Makes an encoder for batches of this schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` and `Unsupported` for types that Arrow's IPC format lacks.
    pub fn new(schema: &SchemaRef) -> Result<Self> {
        Ok(Self {
            encoder: encoder(schema)?,
            schema: SchemaRef::clone(schema),
        })
    }

    /// The schema message, which comes first.
    pub fn schema(&self) -> FlightData {
        FlightData {
            data_header: self.encoder.schema_header().to_vec().into(),
            ..FlightData::default()
        }
    }

    /// Passes the messages of a batch to `send` in order, until `send` breaks. A large batch is
    /// split.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a batch with another schema; `OutOfMemory`.
    pub fn encode(
        &mut self,
        batch: &RecordBatch,
        send: &mut dyn FnMut(FlightData) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let given = batch.columns().iter().map(|column| column.data_type());
        let said = self.schema.fields().iter().map(|field| field.data_type());
        // The encoder would read an array of another type past its end.
        if given.len() != said.len() || !given.zip(said).all(|(a, b)| a.equals_datatype(b)) {
            return Err(Error::invalid_data(
                "a batch does not have the columns of its table's schema",
            ));
        }
        let batch = &compact_views(batch)?;
        let mut messages = self.encoder.encode(batch_to_c(batch.clone()), None)?;
        let rows = batch.num_rows();
        let size = messages.last().map_or(0, |message| message.body_len);
        let step = self.rows_of_a_part(batch, size)?;
        if step < rows {
            // The dictionaries are sent now, and not again with the parts.
            messages.pop();
        }
        for message in messages {
            if send(flight_data(&message)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if step < rows {
            for start in (0..rows).step_by(step) {
                let part = batch.slice(start, step.min(rows - start));
                if self.encode(&part, send)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The rows of each part of a batch with a body of `size` bytes. A batch is not split if it is
    /// small enough, or if its parts would share the memory that makes it large.
    fn rows_of_a_part(&mut self, batch: &RecordBatch, size: u64) -> Result<usize> {
        let rows = batch.num_rows();
        if size <= MAX_BODY || rows < 2 {
            return Ok(rows.max(1));
        }
        let parts = size.div_ceil(MAX_BODY);
        let step = rows.div_ceil(usize::try_from(parts).unwrap_or(rows).min(rows));
        let first = compact_views(&batch.slice(0, step))?;
        let messages = self.encoder.encode(batch_to_c(first), None)?;
        let part = messages.last().map_or(0, |message| message.body_len);
        Ok(if part.saturating_mul(parts) <= size.saturating_mul(2) {
            step
        } else {
            rows
        })
    }
}

/// Gives views their own buffers if they use little of their buffers.
fn compact_views(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
        .map_err(|error| Error::invalid_data(error.to_string()))
}

fn encoder(schema: &Schema) -> Result<Encoder> {
    Encoder::new(&schema_to_c(schema)?, EncodeOptions::default())
}

/// The schema for `GetFlightInfo` and `GetSchema`: a message after its marker and length.
pub fn schema_message(schema: &Schema) -> Result<Vec<u8>> {
    let encoder = encoder(schema)?;
    let header = encoder.schema_header();
    let padded = header.len().next_multiple_of(8);
    let length = u32::try_from(padded)
        .map_err(|_| Error::invalid_data("the schema is longer than Arrow's formats can say"))?;
    let mut message = Vec::with_capacity(8 + padded);
    message.extend_from_slice(&[0xff; 4]);
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(header);
    message.resize(8 + padded, 0);
    Ok(message)
}

/// A message with a packed body (rule D3). This takes one copy, because gRPC sends contiguous
/// memory.
fn flight_data(message: &EncodedMessage) -> FlightData {
    let len = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
    let mut body = vec![0; len(message.body_len)];
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        // SAFETY: the encoder made the buffer list for the array of `batch_to_c`, which lies on the
        // host and which nobody writes to; `message`, borrowed here, keeps it alive.
        let bytes = unsafe { buffer.as_slice() };
        let start = len(span.offset);
        body[start..start + bytes.len()].copy_from_slice(bytes);
    }
    FlightData {
        data_header: message.header.to_vec().into(),
        data_body: body.into(),
        ..FlightData::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, StringArray, StringViewArray,
    };
    use arrow::datatypes::{DataType, Field, Int8Type};
    use dipc::proto::{Header, HeaderKind};

    use super::*;

    fn encode(batch: &RecordBatch) -> Vec<FlightData> {
        let mut encoder = FlightEncoder::new(&batch.schema()).unwrap();
        let mut messages = Vec::new();
        let flow = encoder.encode(batch, &mut |message| {
            messages.push(message);
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        messages
    }

    fn large() -> RecordBatch {
        const ROWS: i64 = 1 << 20;
        let kinds = ["a", "b"].into_iter().cycle().take(1 << 20);
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..ROWS))),
            (
                "kind",
                Arc::new(kinds.collect::<DictionaryArray<Int8Type>>()),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// Promise of `--flight`: no message of several rows exceeds the limit of gRPC's clients, no
    /// row is lost, and a dictionary is sent once.
    #[test]
    fn large_batches_are_sent_in_parts() {
        let messages = encode(&large());
        let mut rows = 0;
        for (index, message) in messages.iter().enumerate() {
            assert!(message.data_body.len() as u64 <= MAX_BODY);
            let header = Header::parse(&message.data_header).unwrap();
            assert_eq!(header.body_len(), message.data_body.len() as u64);
            assert_eq!(header.kind() == HeaderKind::Dictionary, index == 0);
            if header.kind() == HeaderKind::RecordBatch {
                let root = arrow::ipc::root_as_message(header.bytes()).unwrap();
                rows += root.header_as_record_batch().unwrap().length();
            }
        }
        assert_eq!(rows, 1 << 20);
    }

    /// Batches whose rows share a large buffer, as views do, are split only if that makes the parts
    /// smaller: at most twice the batch is sent.
    #[test]
    fn shared_buffers_are_not_sent_with_every_part() {
        let words: StringViewArray = (0..100_000)
            .map(|row| Some(format!("a word longer than a view holds, the {row}th")))
            .collect();
        let views: ArrayRef = Arc::new(words);
        let nested = Arc::new(Field::new("item", DataType::Utf8View, true));
        let lists = FixedSizeListArray::new(nested, 1, Arc::clone(&views), None);
        for column in [views, Arc::new(lists)] {
            let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
            let messages = encode(&batch);
            let sent: usize = messages.iter().map(|message| message.data_body.len()).sum();
            assert!(sent < 2 * batch.get_array_memory_size(), "{sent}");
        }
    }

    /// The encoder stops after the client has gone.
    #[test]
    fn a_client_that_has_gone_ends_the_encoding() {
        let mut encoder = FlightEncoder::new(&large().schema()).unwrap();
        let mut sent = 0;
        let flow = encoder.encode(&large(), &mut |_| {
            sent += 1;
            if sent < 2 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        assert!(flow.unwrap().is_break());
        assert_eq!(sent, 2);
    }

    /// A batch with another schema is refused: its arrays would be read with a wrong type.
    #[test]
    fn batches_of_other_columns_are_refused() {
        let batch = large();
        let mut encoder = FlightEncoder::new(&batch.schema()).unwrap();
        let word: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let other = RecordBatch::try_from_iter([("n", Arc::clone(&word)), ("kind", word)]).unwrap();
        for wrong in [other, batch.project(&[0]).unwrap()] {
            let outcome = encoder.encode(&wrong, &mut |_| ControlFlow::Continue(()));
            assert!(outcome.unwrap_err().text().contains("columns"));
        }
    }

    /// The reader of the `arrow` crate reads the schema message.
    #[test]
    fn schemas_are_encapsulated_messages() {
        let schema = large().schema();
        let message = schema_message(&schema).unwrap();
        assert_eq!(message.len() % 8, 0);
        let bytes = arrow_flight::IpcMessage(message.into());
        assert_eq!(Schema::try_from(bytes).unwrap().fields(), schema.fields());
    }
}
