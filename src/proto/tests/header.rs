//! Rules M2, M7, A6, A8 and D1 for headers.

use super::*;
use crate::proto::testing::{Make, batch, dictionary, schema};

fn rule(make: &Make) -> &'static str {
    Header::parse(&make.bytes()).unwrap_err().rule()
}

/// Rule M7: the copy is aligned to 8 for any alignment of the input; so is a clone.
#[test]
fn headers_are_copied_to_alignment() {
    let (bytes, _) = batch(&[5, 0, 100]);
    for shift in 0..8 {
        let message = [&vec![0xAA; shift][..], &bytes].concat();
        let header = Header::parse(&message[shift..]).unwrap();
        for header in [header.clone(), header] {
            assert_eq!(header.bytes().as_ptr().addr() % 8, 0);
            assert_eq!(header.bytes(), bytes);
        }
    }
}

/// Rules A1, D8: kind, body length, buffers and list length are read as written.
#[test]
fn headers_tell_what_the_machines_need() {
    let (bytes, body_len) = batch(&[5, 0, 100]);
    let header = Header::parse(&bytes).unwrap();
    assert_eq!(
        (header.kind(), header.body_len()),
        (HeaderKind::RecordBatch, body_len)
    );
    let spans: Vec<_> = header
        .buffers()
        .map(|span| (span.offset, span.length))
        .collect();
    assert_eq!(spans, [(0, 5), (0, 0), (64, 100)]);
    assert_eq!(header.list_len(), 16 + 16 * 3);
    assert!(!header.compressed());

    let (bytes, body_len) = dictionary(&[7]);
    let header = Header::parse(&bytes).unwrap();
    assert_eq!(
        (header.kind(), header.body_len()),
        (HeaderKind::Dictionary, body_len)
    );

    let header = Header::parse(&schema()).unwrap();
    assert_eq!(
        (header.kind(), header.body_len(), header.list_len()),
        (HeaderKind::Schema, 0, 16)
    );

    let make = Make {
        compressed: true,
        ..Make::body(HeaderKind::RecordBatch, &[9])
    };
    assert!(Header::parse(&make.bytes()).unwrap().compressed());
}

/// Rule A6: V4 and V5 are read, other versions are not; big-endian is refused with a remedy.
#[test]
fn versions_and_byte_order() {
    for kind in [
        HeaderKind::Schema,
        HeaderKind::Dictionary,
        HeaderKind::RecordBatch,
    ] {
        for version in 0..8 {
            let make = Make {
                version: MetadataVersion(version),
                ..Make::new(kind)
            };
            match version {
                3 | 4 => assert_eq!(Header::parse(&make.bytes()).unwrap().kind(), kind),
                _ => assert_eq!(rule(&make), "A6"),
            }
        }
    }
    let big = Make {
        endianness: Endianness::Big,
        ..Make::new(HeaderKind::Schema)
    };
    let error = Header::parse(&big.bytes()).unwrap_err();
    assert_eq!(error.rule(), "A6");
    assert!(error.text().contains("big-endian"));
}

/// Rule A8: negative lengths, and buffers outside the body, by overflow too.
#[test]
fn buffers_outside_the_body_are_rejected() {
    let make = |buffers: &[(i64, i64)], body_len| Make {
        buffers: buffers.to_vec(),
        body_len,
        ..Make::new(HeaderKind::RecordBatch)
    };
    assert!(Header::parse(&make(&[(0, 8), (8, 8)], 16).bytes()).is_ok());
    for buffers in [
        (8, 9),
        (17, 1),
        (i64::MAX, i64::MAX),
        (-1, 4),
        (0, -1),
        (-8, 0),
    ] {
        assert_eq!(rule(&make(&[(0, 8), buffers], 16)), "A8", "{buffers:?}");
    }
    assert_eq!(rule(&make(&[], -1)), "A8");
    // A receiver that copies overlapping buffers would copy more bytes than were sent.
    assert_eq!(rule(&make(&[(0, 8), (0, 8), (0, 8)], 16)), "A8");
    // The offset of an empty buffer is not used.
    let header = Header::parse(&make(&[(99, 0)], 16).bytes()).unwrap();
    assert_eq!(
        header.buffers().collect::<Vec<_>>(),
        [BodySpan {
            offset: 0,
            length: 0
        }]
    );
}

/// Rule D1: a schema has no body. Rule M2: only the three kinds travel.
#[test]
fn schemas_with_bodies_and_other_kinds_are_rejected() {
    assert_eq!(
        rule(&Make {
            body_len: 8,
            ..Make::new(HeaderKind::Schema)
        }),
        "D1"
    );
    let make = Make::new(HeaderKind::Schema);
    let empty = |header_type| {
        let mut builder = flatbuffers::FlatBufferBuilder::new();
        let table = arrow::ipc::Null::create(&mut builder, &Default::default());
        make.finish(builder, header_type, Some(table.as_union_value()))
    };
    for header_type in [MessageHeader::NONE, MessageHeader(6), MessageHeader(255)] {
        let error = Header::parse(&empty(header_type)).unwrap_err();
        assert!(["M2", "M7"].contains(&error.rule()), "{error}");
    }
    // A valid tensor is none of the three kinds.
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let null = arrow::ipc::Null::create(&mut builder, &Default::default()).as_union_value();
    let shape = builder.create_vector::<flatbuffers::WIPOffset<arrow::ipc::TensorDim<'_>>>(&[]);
    let args = arrow::ipc::TensorArgs {
        type_type: arrow::ipc::Type::Null,
        type_: Some(null),
        shape: Some(shape),
        data: Some(&arrow::ipc::Buffer::new(0, 0)),
        ..Default::default()
    };
    let tensor = arrow::ipc::Tensor::create(&mut builder, &args).as_union_value();
    let bytes = make.finish(builder, MessageHeader::Tensor, Some(tensor));
    let error = Header::parse(&bytes).unwrap_err();
    assert_eq!(error.rule(), "M2");
    assert!(error.text().contains("Tensor"), "{error}");
    // A dictionary without its data.
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let dictionary =
        arrow::ipc::DictionaryBatch::create(&mut builder, &Default::default()).as_union_value();
    let bytes = make.finish(builder, MessageHeader::DictionaryBatch, Some(dictionary));
    assert_eq!(Header::parse(&bytes).unwrap_err().rule(), "M2");
}

/// Rule M7: a header cut anywhere, or other bytes, gives an error, never a panic.
#[test]
fn bytes_that_are_no_flatbuffer_are_rejected() {
    let (bytes, _) = batch(&[5, 0, 100]);
    for len in 0..bytes.len() {
        // Only trailing padding may be missing without an error.
        if let Err(error) = Header::parse(&bytes[..len]) {
            assert_eq!(error.rule(), "M7");
        } else {
            assert!(bytes[len..].iter().all(|byte| *byte == 0));
        }
    }
    assert_eq!(Header::parse(&[0xFF; 64]).unwrap_err().rule(), "M7");
    assert_eq!(Header::parse(&[]).unwrap_err().rule(), "M7");
}

/// Rule A8: a change of any single byte gives an error, or a header that keeps its promises.
#[test]
fn a_changed_byte_never_breaks_a_promise() {
    for bytes in [batch(&[5, 0, 100]).0, dictionary(&[7]).0, schema()] {
        for at in 0..bytes.len() {
            for value in [
                0,
                1,
                0x7F,
                0x80,
                0xFF,
                bytes[at] ^ 1,
                bytes[at].wrapping_add(8),
            ] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let Ok(header) = Header::parse(&changed) else {
                    continue;
                };
                for span in header.buffers() {
                    assert!(span.offset + span.length <= header.body_len());
                }
            }
        }
    }
}

/// Rule A8: schemas and batches of tens of thousands of columns pass the limits of the verifier,
/// with a margin for richer fields.
#[test]
fn wide_tables_pass() {
    let wide = Make {
        fields: 50_000,
        ..Make::new(HeaderKind::Schema)
    };
    assert!(Header::parse(&wide.bytes()).is_ok());
    let (bytes, _) = batch(&vec![8; 150_000]);
    assert_eq!(Header::parse(&bytes).unwrap().buffers().len(), 150_000);

    // The densest honest schema: arrow's own writer shares vtables; tables of every type.
    let fields: Vec<_> = (0..30_000)
        .map(|_| arrow::datatypes::Field::new("", arrow::datatypes::DataType::Null, false))
        .collect();
    let schema = arrow::datatypes::Schema::new(fields);
    let mut tracker = arrow::ipc::writer::DictionaryTracker::new(false);
    let encoded = arrow::ipc::writer::IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &Default::default());
    assert!(Header::parse(&encoded.ipc_message).is_ok());
}

/// Rule A8: nesting as deep as Arrow's readers accept passes. Deeper nesting is refused and does
/// not exhaust the stack.
#[test]
fn deep_schemas_are_bounded() {
    use arrow::datatypes::{DataType, Field, Schema};
    let nested = |depth: usize| {
        let field = (0..depth).fold(Field::new("x", DataType::Null, true), |inner, _| {
            Field::new("x", DataType::List(inner.into()), true)
        });
        let mut tracker = arrow::ipc::writer::DictionaryTracker::new(false);
        let encoded = arrow::ipc::writer::IpcDataGenerator::default()
            .schema_to_bytes_with_dictionary_tracker(
                &Schema::new(vec![field]),
                &mut tracker,
                &Default::default(),
            );
        Header::parse(&encoded.ipc_message)
    };
    assert!(nested(64).is_ok());
    assert_eq!(nested(200).unwrap_err().rule(), "M7");
}

/// Rule A8: bytes with many paths to few tables cost no more than the limit.
#[test]
fn shared_tables_do_not_multiply() {
    // Each level names the next level several times: 8^20 paths in a few hundred bytes.
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let null = arrow::ipc::Null::create(&mut builder, &Default::default()).as_union_value();
    let leaf = arrow::ipc::FieldArgs {
        type_type: arrow::ipc::Type::Null,
        type_: Some(null),
        ..Default::default()
    };
    let mut field = arrow::ipc::Field::create(&mut builder, &leaf);
    for _ in 0..20 {
        let children = Some(builder.create_vector(&[field; 8]));
        let args = arrow::ipc::FieldArgs {
            children,
            type_type: leaf.type_type,
            type_: Some(null),
            ..Default::default()
        };
        field = arrow::ipc::Field::create(&mut builder, &args);
    }
    let fields = Some(builder.create_vector(&[field]));
    let args = arrow::ipc::SchemaArgs {
        fields,
        ..Default::default()
    };
    let schema = arrow::ipc::Schema::create(&mut builder, &args).as_union_value();
    let bytes = Make::new(HeaderKind::Schema).finish(builder, MessageHeader::Schema, Some(schema));
    assert!(bytes.len() < 4096);
    assert_eq!(Header::parse(&bytes).unwrap_err().rule(), "M7");
}

/// Rule A8: the parser reuses its last header only for equal bytes, and checks other bytes as
/// before.
#[test]
fn a_header_like_the_one_before_is_that_header() {
    let mut parser = HeaderParser::default();
    let bytes = Make::body(HeaderKind::RecordBatch, &[8, 1, 80]).bytes();
    let first = parser.parse(&bytes).unwrap();
    assert!(Arc::ptr_eq(
        &first.parsed,
        &parser.parse(&bytes).unwrap().parsed
    ));
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1;
        match (parser.parse(&other), Header::parse(&other)) {
            (Ok(header), Ok(_)) => assert_eq!(header.bytes(), other),
            (Err(error), Err(alone)) => assert_eq!(error.to_string(), alone.to_string()),
            (found, alone) => panic!("byte {at}: {found:?}, parsed alone {alone:?}"),
        }
    }
    assert_eq!(parser.parse(&bytes).unwrap().bytes(), bytes);
}
