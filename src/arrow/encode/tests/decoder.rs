//! The decoder of this crate reads the encoder's messages, in both forms of a body.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{assert_same, batch_of, encoder, export, named, pack_body};
use crate::arrow::batch_from_c;
use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::device::HostBuffer;
use crate::proto::Header;

/// The body for the peer: packed (rule D3), or lent in place (rule D4).
fn body_of(message: &EncodedMessage, header: &Header, lent: bool) -> ReceivedBody {
    if lent {
        let owner = message.owner.clone().shared();
        // SAFETY: the owner of a message keeps its buffers on the host, and nobody writes to them.
        return unsafe { ReceivedBody::new(message.buffers.to_vec(), owner, true) };
    }
    let packed = pack_body(message);
    let mut memory = HostBuffer::new(packed.len()).unwrap();
    memory.as_mut_slice().copy_from_slice(&packed);
    ReceivedBody::packed(header, memory).unwrap()
}

/// Sends batches from the encoder to the decoder and compares the result.
fn cross(batches: &[RecordBatch], options: EncodeOptions, level: Level, lent: bool) {
    let schema = batches[0].schema();
    let mut encoder = encoder(&schema, options);
    let options = DecodeOptions {
        level,
        ..DecodeOptions::default()
    };
    let header = Header::parse(encoder.schema_header()).unwrap();
    let mut decoder = Decoder::new(&header, options).unwrap();
    let mut read = Vec::new();
    for batch in batches {
        for message in encoder.encode(export(batch), None).unwrap() {
            let header = Header::parse(&message.header).unwrap();
            assert_eq!(header.kind(), message.kind);
            assert_eq!(header.body_len(), message.body_len);
            // The offset of an empty buffer has no meaning.
            let used = |span: &BodySpan| span.length > 0;
            assert_eq!(header.buffers().len(), message.spans().len());
            assert_eq!(
                header.buffers().filter(used).collect::<Vec<_>>(),
                message.spans().filter(used).collect::<Vec<_>>()
            );
            assert_eq!(header.compressed(), message.compressed);
            let body = body_of(&message, &header, lent);
            if message.kind == HeaderKind::Dictionary {
                decoder.add_dictionary(&header, &body).unwrap();
                continue;
            }
            let array = decoder.batch(&header, &body).unwrap().array;
            // SAFETY: the decoder made the array with the schema's columns and valid values: the
            // encoder's values come from arrow-rs.
            read.push(unsafe { batch_from_c(array, &schema) }.unwrap());
        }
    }
    assert_same(&read, batches);
}

/// Every type, whole and sliced, in both forms of a body and at both levels of checks.
#[test]
fn every_type_reaches_the_decoder() {
    let batch = every_type();
    let batches = [
        batch.clone(),
        batch.slice(13, 9),
        batch.slice(8, 16),
        batch.slice(ROWS, 0),
    ];
    for level in [Level::Structure, Level::Full] {
        for lent in [true, false] {
            cross(&batches, EncodeOptions::default(), level, lent);
        }
        for compression in [Compression::Lz4Frame, Compression::Zstd] {
            cross(
                &batches,
                EncodeOptions {
                    compression: Some(compression),
                },
                level,
                false,
            );
        }
    }
}

/// Rule A3, both ends: an unchanged, a grown and a replaced dictionary.
#[test]
fn dictionaries_reach_the_decoder() {
    let batch = |texts: &[&str]| {
        let values: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let last = i32::try_from(texts.len()).unwrap() - 1;
        let keys = Int32Array::from(vec![Some(last), None, Some(0)]);
        batch_of(vec![named(
            "d",
            Arc::new(DictionaryArray::new(keys, values)),
        )])
    };
    let batches = [
        batch(&["a", "b"]),
        batch(&["a", "b"]),
        batch(&["a", "b", "c", "d"]),
        batch(&["x"]),
    ];
    for lent in [true, false] {
        cross(&batches, EncodeOptions::default(), Level::Full, lent);
    }
}
