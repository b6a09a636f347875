//! Compressed bodies (rule A4): each buffer is compressed alone, after its length.

use std::io::Write;

use arrow::ipc::CompressionType;

use super::plan::Plan;
use crate::device::BufferRef;
use crate::error::{Error, Result};

/// The codec of compressed bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// LZ4 in its frame format.
    Lz4Frame,
    /// Zstandard, at its default level.
    Zstd,
}

/// Replaces the length of a buffer that is not compressed, because compression would not make it
/// smaller.
const PLAIN: i64 = -1;

impl Compression {
    /// The IPC format's number.
    pub(super) fn codec(self) -> CompressionType {
        match self {
            Self::Lz4Frame => CompressionType::LZ4_FRAME,
            Self::Zstd => CompressionType::ZSTD,
        }
    }

    /// Compresses the buffers of a plan into its scratch. Empty buffers stay empty.
    ///
    /// # Safety
    ///
    /// The buffers are alive on the host, and nobody writes to them.
    pub(super) unsafe fn compress(self, plan: &mut Plan) -> Result<()> {
        for index in 0..plan.buffers.len() {
            let buffer = plan.buffers[index];
            if buffer.len == 0 {
                continue;
            }
            // SAFETY: the caller promises the same.
            let bytes = unsafe { buffer.as_slice() };
            plan.buffers[index] = self.pack(bytes, plan)?;
        }
        Ok(())
    }

    fn pack(self, bytes: &[u8], plan: &mut Plan) -> Result<BufferRef> {
        let prefix = i64::try_from(bytes.len()).unwrap_or(i64::MAX).to_le_bytes();
        let failed = |error: std::io::Error| Error::io("cannot compress a buffer", &error);
        let mut packed = prefix.to_vec();
        match self {
            Self::Lz4Frame => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(packed);
                encoder.write_all(bytes).map_err(failed)?;
                packed = encoder.finish().map_err(|error| failed(error.into()))?;
            }
            Self::Zstd => {
                zstd::stream::copy_encode(bytes, &mut packed, 0).map_err(failed)?;
            }
        }
        if packed.len() >= prefix.len() + bytes.len() {
            packed.clear();
            packed.extend(PLAIN.to_le_bytes());
            packed.extend(bytes);
        }
        Ok(plan.scratch.keep(packed))
    }
}
