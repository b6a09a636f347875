//! What a decoder is asked for, and what it hands out.

use crate::arrow::OwnedDeviceArray;

/// How far what a peer sent is checked before it is handed out (rule A8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Everything that costs nothing per row: counts, lengths, buffer sizes, first and last
    /// offsets. For peers of the same user.
    Structure,
    /// The values too: offsets, views, sizes, type ids, run ends, dictionary indices, UTF-8 and
    /// null counts; in shared memory on a private copy of them.
    Full,
}

/// What a decoder is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// How far to check.
    pub level: Level,
    /// Most bytes of the host that one message may take beside its body, or as many as its body
    /// has, where those are more: for compressed buffers unpacked, for copies of what its sender
    /// could still write to, and for the structs of arrays and of the schema. All dictionaries of a
    /// stream share it. [`u64::MAX`]: no limit.
    pub message_limit: u64,
}

impl Default for DecodeOptions {
    /// The careful choice: level full, and 512 MiB for each message.
    fn default() -> Self {
        Self {
            level: Level::Full,
            message_limit: 512 << 20,
        }
    }
}

/// A record batch, decoded.
#[derive(Debug)]
pub struct DecodedBatch {
    /// The batch as a struct array, where the decoder's target says.
    pub array: OwnedDeviceArray,
    /// Its rows.
    pub rows: u64,
    /// Metadata of this batch alone.
    pub custom_metadata: Vec<(String, String)>,
    /// Bytes of its buffers that were copied or unpacked on the host rather than used where they
    /// were received.
    pub copied: u64,
    /// Bytes copied within a GPU or from one to another: for this batch, and for the dictionaries
    /// that came since the one before.
    pub copied_on_device: u64,
    /// Bytes copied between the host and a GPU, for the same.
    pub staged: u64,
}
