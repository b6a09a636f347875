//! Compressed bodies (rule A4).

use std::io::Read;

use arrow::ipc;

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::lz4;
use crate::device::HostBuffer;
use crate::error::{Error, Result};

/// Above this growth a buffer is unpacked step by step, so that a false claim costs no memory.
const TRUSTED_RATIO: u64 = 16;
/// The first step of such a buffer; each later step doubles.
const FIRST_STEP: usize = 1 << 20;

/// The window that a zstd frame may always have. Only the highest levels need more.
const USUAL_WINDOW: u64 = 8 << 20;
/// The default maximum of zstd's own reader, as a power of two.
const MOST_WINDOW_LOG: u32 = 27;

/// The codec of a compressed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Lz4Frame,
    Zstd,
}

impl Codec {
    /// Reads and checks the compression of a record batch.
    pub(super) fn of(batch: &ipc::RecordBatch<'_>) -> Result<Option<Self>> {
        let Some(compression) = batch.compression() else {
            return Ok(None);
        };
        if compression.method() != ipc::BodyCompressionMethod::BUFFER {
            return Err(Error::unsupported(format!(
                "compression method {} is not known here",
                compression.method().0
            )));
        }
        match compression.codec() {
            ipc::CompressionType::LZ4_FRAME => Ok(Some(Self::Lz4Frame)),
            ipc::CompressionType::ZSTD => Ok(Some(Self::Zstd)),
            other => Err(Error::unsupported(format!(
                "codec {} is not known here",
                other.0
            ))),
        }
    }
}

/// The content of a compressed buffer.
#[derive(Debug)]
pub(super) enum Unpacked {
    /// The bytes after the 8-byte length are stored without compression.
    Stored,
    /// The unpacked bytes.
    Memory(HostBuffer),
}

/// Bytes of the length before each compressed buffer.
pub(super) const LENGTH_BYTES: usize = 8;

/// Unpacks one buffer: an 8-byte length, then the compressed bytes. Length -1 means stored. The
/// peer's length is not trusted.
pub(super) fn unpack(codec: Codec, buffer: &[u8], budget: &DecodeBudget<'_>) -> Result<Unpacked> {
    let Some((length, packed)) = buffer.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Error::invalid_data(format!(
            "a compressed buffer of {} bytes has no room for its length",
            buffer.len()
        )));
    };
    let length = i64::from_le_bytes(*length);
    if length == -1 {
        return Ok(Unpacked::Stored);
    }
    let bytes = u64::try_from(length)
        .map_err(|_| Error::invalid_data(format!("a buffer of {length} bytes, compressed")))?;
    budget
        .take(bytes)
        .map_err(|error| error.context("a compressed buffer"))?;
    let length = usize::try_from(bytes)
        .map_err(|_| Error::out_of_memory(format!("a buffer of {bytes} bytes")))?;
    let trusted = (packed.len() as u64).saturating_mul(TRUSTED_RATIO);
    let first = if bytes <= trusted {
        length
    } else {
        length.min(FIRST_STEP)
    };
    let window = bytes.saturating_add(budget.left());
    Ok(Unpacked::Memory(match codec {
        Codec::Lz4Frame => lz4::unpack(packed, length, first)?,
        Codec::Zstd => unpack_zstd(packed, length, first, window)?,
    }))
}

/// Unpacks a frame whose content has `length` bytes. Begins with memory of `first` bytes. The
/// frame's window may have `window` bytes, or [`USUAL_WINDOW`] if that is more.
fn unpack_zstd(packed: &[u8], length: usize, first: usize, window: u64) -> Result<HostBuffer> {
    let failed = |error: std::io::Error| {
        Error::invalid_data(format!("a compressed buffer cannot be unpacked: {error}"))
    };
    let reader = zstd::stream::Decoder::with_buffer(packed).map_err(failed)?;
    let mut reader = reader.single_frame();
    let window = window.max(USUAL_WINDOW).ilog2().min(MOST_WINDOW_LOG);
    reader.window_log_max(window).map_err(failed)?;
    let mut memory = HostBuffer::new(first)?;
    let mut filled = 0;
    loop {
        reader
            .read_exact(&mut memory.as_mut_slice()[filled..])
            .map_err(failed)?;
        filled = memory.len();
        if filled == length {
            break;
        }
        let mut larger = HostBuffer::new(filled.saturating_mul(2).min(length))?;
        larger.as_mut_slice()[..filled].copy_from_slice(memory.as_slice());
        memory = larger;
    }
    // The length must be exact, or a longer content would be cut off without an error.
    if reader.read(&mut [0]).map_err(failed)? != 0 {
        return Err(Error::invalid_data(format!(
            "a compressed buffer holds more than the {length} bytes it claims"
        )));
    }
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(codec: Codec, claimed: i64, bytes: &[u8]) -> Vec<u8> {
        let mut out = claimed.to_le_bytes().to_vec();
        match codec {
            Codec::Zstd => out.extend(zstd::stream::encode_all(bytes, 1).unwrap()),
            Codec::Lz4Frame => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(&mut out);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap();
            }
        }
        out
    }

    /// Rule A4: both codecs work, also for content much larger than its packed size.
    #[test]
    fn both_codecs_unpack_whatever_their_ratio() {
        for codec in [Codec::Lz4Frame, Codec::Zstd] {
            let varied: Vec<u8> = (0..100_000u32)
                .flat_map(|n| n.wrapping_mul(n).to_le_bytes())
                .collect();
            for bytes in [vec![], vec![7], vec![0; 5 << 20], varied] {
                let buffer = packed(codec, bytes.len() as i64, &bytes);
                let budget = DecodeBudget::new(8 << 20, &[]);
                let Unpacked::Memory(memory) = unpack(codec, &buffer, &budget).unwrap() else {
                    panic!("not stored");
                };
                assert_eq!(memory.as_slice(), bytes);
                // The budget was charged for the content, and no more.
                budget.take((8 << 20) - bytes.len() as u64).unwrap();
                budget.take(1).unwrap_err();
            }
        }
    }

    /// Rules A4 and A8: a false length, or a length over the budget, is an error.
    #[test]
    fn lengths_that_lie_are_errors() {
        for codec in [Codec::Lz4Frame, Codec::Zstd] {
            for claimed in [-2, i64::MIN, 0, 99, 101, 1 << 29] {
                let buffer = packed(codec, claimed, &[1; 100]);
                assert!(
                    unpack(codec, &buffer, &DecodeBudget::new(1 << 30, &[])).is_err(),
                    "{claimed}"
                );
            }
            let buffer = packed(codec, 100, &[1; 100]);
            let error = unpack(codec, &buffer, &DecodeBudget::new(99, &[])).unwrap_err();
            assert_eq!(error.status(), crate::error::Status::OutOfMemory);
            assert!(unpack(codec, &buffer[..7], &DecodeBudget::new(1000, &[])).is_err());
            assert!(
                unpack(
                    codec,
                    &buffer[..buffer.len() - 5],
                    &DecodeBudget::new(1000, &[])
                )
                .is_err()
            );
        }
    }

    /// Rule A4: length -1 means stored bytes.
    #[test]
    fn minus_one_is_stored() {
        let mut buffer = (-1i64).to_le_bytes().to_vec();
        buffer.push(42);
        assert!(matches!(
            unpack(Codec::Zstd, &buffer, &DecodeBudget::new(0, &[])),
            Ok(Unpacked::Stored)
        ));
    }
}
