//! Encodes record batches as messages of `DoGet` and `DoPut`, by the writer of the `arrow` crate.

use std::ops::ControlFlow;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
};
use arrow::record_batch::RecordBatch;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use dipc::{Error, Result};

use crate::flight::annotated::with_metadata;
use crate::lend::compact;
use crate::rebuild::rebuilt;

/// Largest body of a message with more than one row, in bytes. Many clients of gRPC refuse messages
/// of more than 4 MiB.
const MAX_BODY: usize = 2 << 20;

/// Encodes one table.
pub struct FlightEncoder {
    generator: IpcDataGenerator,
    options: IpcWriteOptions,
    /// Numbers the dictionaries, and knows which the client has.
    dictionaries: DictionaryTracker,
    context: IpcWriteContext,
    schema: SchemaRef,
}

impl FlightEncoder {
    /// Makes an encoder for batches of this schema.
    pub fn new(schema: &SchemaRef) -> Self {
        Self {
            generator: IpcDataGenerator::default(),
            options: IpcWriteOptions::default(),
            dictionaries: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
            schema: SchemaRef::clone(schema),
        }
    }

    /// The schema message. It comes first, for it numbers the dictionaries.
    pub fn schema(&mut self) -> FlightData {
        (self.generator)
            .schema_to_bytes_with_dictionary_tracker(
                &self.schema,
                &mut self.dictionaries,
                &self.options,
            )
            .into()
    }

    /// Passes the messages of a batch to `send` in order, until `send` breaks. A large batch is
    /// split; each part has the custom metadata.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a batch with another schema; what the writer refuses.
    pub fn encode(
        &mut self,
        batch: &RecordBatch,
        metadata: &[(String, String)],
        send: &mut dyn FnMut(FlightData) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let given = batch.columns().iter().map(|column| column.data_type());
        let said = self.schema.fields().iter().map(|field| field.data_type());
        if given.len() != said.len() || !given.zip(said).all(|(a, b)| a.equals_datatype(b)) {
            return Err(Error::invalid_data(
                "a batch does not have the columns of its table's schema",
            ));
        }
        let batch = &compact_views(batch)?;
        let (dictionaries, message) = self.messages(batch)?;
        // Parts of the batch share its dictionaries, which are sent once.
        for dictionary in dictionaries {
            if send(dictionary.into()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let rows = batch.num_rows();
        let step = self.rows_of_a_part(batch, message.arrow_data.len())?;
        if step >= rows {
            return Ok(send(with_metadata(message, metadata)?.into()));
        }
        for start in (0..rows).step_by(step) {
            let part = batch.slice(start, step.min(rows - start));
            if self.encode(&part, metadata, send)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The dictionaries that the client lacks, and the batch.
    fn messages(&mut self, batch: &RecordBatch) -> Result<(Vec<EncodedData>, EncodedData)> {
        self.generator
            .encode(
                batch,
                &mut self.dictionaries,
                &self.options,
                &mut self.context,
            )
            .map_err(invalid)
    }

    /// The rows of each part of a batch with a body of `size` bytes. A batch is not split if it is
    /// small enough, or if its parts would share the memory that makes it large.
    fn rows_of_a_part(&mut self, batch: &RecordBatch, size: usize) -> Result<usize> {
        let rows = batch.num_rows();
        if size <= MAX_BODY || rows < 2 {
            return Ok(rows.max(1));
        }
        let parts = size.div_ceil(MAX_BODY);
        let step = rows.div_ceil(parts.min(rows));
        let first = compact_views(&batch.slice(0, step))?;
        let part = self.messages(&first)?.1.arrow_data.len();
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
    rebuilt(batch.schema(), columns, batch).map_err(invalid)
}

/// The schema for `GetFlightInfo` and `GetSchema`: a message after its marker and length.
pub fn schema_message(schema: &Schema) -> Result<Vec<u8>> {
    let message = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    let IpcMessage(message) = message.map_err(invalid)?;
    Ok(message.into())
}

fn invalid(error: ArrowError) -> Error {
    Error::invalid_data(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, StringArray, StringViewArray,
    };
    use arrow::datatypes::{DataType, Field, Int8Type};
    use dipc::ipc::{Header, HeaderKind};

    use super::*;

    fn encode(batch: &RecordBatch) -> Vec<FlightData> {
        let mut encoder = FlightEncoder::new(&batch.schema());
        encoder.schema();
        let mut messages = Vec::new();
        let flow = encoder.encode(batch, &[], &mut |message| {
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
            assert!(message.data_body.len() <= MAX_BODY);
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
        let mut encoder = FlightEncoder::new(&large().schema());
        encoder.schema();
        let mut sent = 0;
        let flow = encoder.encode(&large(), &[], &mut |_| {
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

    /// Custom metadata of a batch stand in each message of it, in their order and with keys that
    /// come twice.
    #[test]
    fn metadata_of_batches_are_sent() {
        let pairs = [("k", "1"), ("k", "2"), ("", "x")];
        let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut encoder = FlightEncoder::new(&large().schema());
        encoder.schema();
        let mut messages = Vec::new();
        let flow = encoder.encode(&large(), &owned, &mut |message| {
            messages.push(message);
            ControlFlow::Continue(())
        });
        assert!(flow.unwrap().is_continue());
        let mut rows = 0;
        for message in &messages {
            let header = Header::parse(&message.data_header).unwrap();
            if header.kind() != HeaderKind::RecordBatch {
                continue;
            }
            assert_eq!(header.body_len(), message.data_body.len() as u64);
            let root = arrow::ipc::root_as_message(header.bytes()).unwrap();
            rows += root.header_as_record_batch().unwrap().length();
            let sent = root.custom_metadata().unwrap();
            let sent: Vec<_> = (sent.iter())
                .map(|pair| (pair.key().unwrap(), pair.value().unwrap()))
                .collect();
            assert_eq!(sent, pairs);
        }
        assert_eq!(rows, 1 << 20);
    }

    /// A batch with another schema is refused: its arrays would be read with a wrong type.
    #[test]
    fn batches_of_other_columns_are_refused() {
        let batch = large();
        let mut encoder = FlightEncoder::new(&batch.schema());
        encoder.schema();
        let word: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let other = RecordBatch::try_from_iter([("n", Arc::clone(&word)), ("kind", word)]).unwrap();
        for wrong in [other, batch.project(&[0]).unwrap()] {
            let outcome = encoder.encode(&wrong, &[], &mut |_| ControlFlow::Continue(()));
            assert!(outcome.unwrap_err().text().contains("columns"));
        }
    }

    /// The reader of the `arrow` crate reads the schema message.
    #[test]
    fn schemas_are_encapsulated_messages() {
        let schema = large().schema();
        let message = schema_message(&schema).unwrap();
        let bytes = arrow_flight::IpcMessage(message.into());
        assert_eq!(Schema::try_from(bytes).unwrap().fields(), schema.fields());
    }
}
