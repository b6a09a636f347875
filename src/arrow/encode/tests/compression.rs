//! Rule A4: compressed bodies.

use std::sync::Arc;

use arrow::array::Int64Array;

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{assert_same, batch_of, bytes_of, cross_arrays, encoder, export, named};

const BOTH: [Compression; 2] = [Compression::Lz4Frame, Compression::Zstd];

/// Every type arrives equal in compressed bodies, also from slices.
#[test]
fn compressed_bodies_cross() {
    let batch = every_type();
    let batches = [batch.clone(), batch.slice(13, 9), batch.slice(ROWS, 0)];
    for compression in BOTH {
        let options = EncodeOptions {
            compression: Some(compression),
        };
        let (_, read) = cross_arrays(&batch.schema(), batches.iter().map(export), options);
        assert_same(&read, &batches);
    }
}

/// The layout of the format: the length before the bytes, -1 if compression makes the buffer
/// larger, no bytes for an empty buffer. Messages report the compression.
#[test]
fn buffers_that_do_not_shrink_stay_plain() {
    let noise = (1..=64_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as i64);
    let batch = batch_of(vec![
        named("zeros", Arc::new(Int64Array::from(vec![0; 64]))),
        named("noise", Arc::new(Int64Array::from_iter_values(noise))),
    ]);
    for compression in BOTH {
        let mut encoder = encoder(
            &batch.schema(),
            EncodeOptions {
                compression: Some(compression),
            },
        );
        let message = encoder.encode(export(&batch), None).unwrap().remove(0);
        assert!(message.compressed);
        let buffers: Vec<&[u8]> = message
            .buffers
            .iter()
            .map(|buffer| bytes_of(*buffer, &message.owner))
            .collect();
        let [no_validity, zeros, no_nulls, noise] = buffers.as_slice() else {
            panic!()
        };
        assert!(no_validity.is_empty() && no_nulls.is_empty());
        assert!(zeros.len() < 100 && zeros[..8] == 512_i64.to_le_bytes());
        assert!(noise.len() == 520 && noise[..8] == (-1_i64).to_le_bytes());
        assert!(
            message
                .buffers
                .iter()
                .all(|buffer| { buffer.len == 0 || message.owner.wrote(*buffer) })
        );
    }
}
