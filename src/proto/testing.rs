//! Headers for tests, written with Arrow's generated code.

#![allow(missing_docs, reason = "for tests only")]

use arrow::ipc::{
    BodyCompression, BodyCompressionArgs, Buffer, DictionaryBatch, DictionaryBatchArgs, Endianness,
    Field, FieldArgs, FieldNode, Message, MessageArgs, MessageHeader, MetadataVersion, RecordBatch,
    RecordBatchArgs, Schema, SchemaArgs,
};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::proto::HeaderKind;

/// Description of a header. Tests of bad headers change the fields.
#[derive(Debug, Clone)]
pub struct Make {
    pub kind: HeaderKind,
    pub version: MetadataVersion,
    pub endianness: Endianness,
    pub compressed: bool,
    /// Offset and length of each buffer.
    pub buffers: Vec<(i64, i64)>,
    pub body_len: i64,
    pub fields: usize,
}

impl Make {
    pub fn new(kind: HeaderKind) -> Self {
        Self {
            kind,
            version: MetadataVersion::V5,
            endianness: Endianness::Little,
            compressed: false,
            buffers: Vec::new(),
            body_len: 0,
            fields: 1,
        }
    }

    /// A dictionary or batch with buffers of these lengths, each padded to 64 bytes (rule A2).
    pub fn body(kind: HeaderKind, lengths: &[u64]) -> Self {
        let mut make = Self::new(kind);
        for length in lengths {
            let length = i64::try_from(*length).unwrap_or(i64::MAX);
            make.buffers.push((make.body_len, length));
            make.body_len = make.body_len.saturating_add(length).saturating_add(63) & !63;
        }
        make
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let (header_type, header) = match self.kind {
            HeaderKind::Schema => (MessageHeader::Schema, self.schema(&mut builder)),
            HeaderKind::RecordBatch => (
                MessageHeader::RecordBatch,
                self.batch(&mut builder).as_union_value(),
            ),
            HeaderKind::Dictionary => {
                let data = Some(self.batch(&mut builder));
                let args = DictionaryBatchArgs {
                    id: 1,
                    data,
                    isDelta: false,
                };
                let dictionary = DictionaryBatch::create(&mut builder, &args);
                (MessageHeader::DictionaryBatch, dictionary.as_union_value())
            }
        };
        self.finish(builder, header_type, Some(header))
    }

    pub fn finish<'a>(
        &self,
        mut builder: FlatBufferBuilder<'a>,
        header_type: MessageHeader,
        header: Option<WIPOffset<UnionWIPOffset>>,
    ) -> Vec<u8> {
        let args = MessageArgs {
            version: self.version,
            header_type,
            header,
            bodyLength: self.body_len,
            custom_metadata: None,
        };
        let message = Message::create(&mut builder, &args);
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }

    fn schema<'a>(&self, builder: &mut FlatBufferBuilder<'a>) -> WIPOffset<UnionWIPOffset> {
        let fields: Vec<_> = (0..self.fields)
            .map(|_| {
                let name = Some(builder.create_string("x"));
                let null = arrow::ipc::Null::create(builder, &Default::default());
                let args = FieldArgs {
                    name,
                    nullable: true,
                    type_type: arrow::ipc::Type::Null,
                    type_: Some(null.as_union_value()),
                    ..Default::default()
                };
                Field::create(builder, &args)
            })
            .collect();
        let fields = Some(builder.create_vector(&fields));
        let args = SchemaArgs {
            endianness: self.endianness,
            fields,
            ..Default::default()
        };
        Schema::create(builder, &args).as_union_value()
    }

    fn batch<'a>(&self, builder: &mut FlatBufferBuilder<'a>) -> WIPOffset<RecordBatch<'a>> {
        let buffers: Vec<_> = self
            .buffers
            .iter()
            .map(|(offset, length)| Buffer::new(*offset, *length))
            .collect();
        let buffers = Some(builder.create_vector(&buffers));
        let nodes = Some(builder.create_vector(&[FieldNode::new(1, 0)]));
        let compression = self
            .compressed
            .then(|| BodyCompression::create(builder, &BodyCompressionArgs::default()));
        let args = RecordBatchArgs {
            length: 1,
            nodes,
            buffers,
            compression,
            ..Default::default()
        };
        RecordBatch::create(builder, &args)
    }
}

/// The header of a schema.
pub fn schema() -> Vec<u8> {
    Make::new(HeaderKind::Schema).bytes()
}

/// The header of a batch with buffers of these lengths, and the length of its body.
pub fn batch(lengths: &[u64]) -> (Vec<u8>, u64) {
    let make = Make::body(HeaderKind::RecordBatch, lengths);
    (make.bytes(), make.body_len.unsigned_abs())
}

/// The header of a dictionary with buffers of these lengths, and the length of its body.
pub fn dictionary(lengths: &[u64]) -> (Vec<u8>, u64) {
    let make = Make::body(HeaderKind::Dictionary, lengths);
    (make.bytes(), make.body_len.unsigned_abs())
}
