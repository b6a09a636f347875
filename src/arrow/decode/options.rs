//! The options and the result of a decoder.

use crate::arrow::OwnedDeviceArray;

/// The amount of checks of a peer's data (rule A8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// All checks that need no time per row: counts, lengths, buffer sizes, first and last offsets.
    /// For peers of the same user.
    Structure,
    /// Also the values: offsets, views, sizes, type ids, run ends, dictionary indices, UTF-8 and
    /// null counts. Shared memory is copied before the check.
    Full,
}

/// The options of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// The level of checks.
    pub level: Level,
    /// Most bytes of host memory that one message may take besides its body; if the body is longer,
    /// as many bytes as the body has. The memory is for unpacked buffers, copies of lent memory,
    /// and the structs of arrays and of the schema. The same limit holds for all dictionaries of a
    /// stream together, and for all messages of dictionaries between two batches together.
    /// [`u64::MAX`]: no limit.
    pub message_limit: u64,
}

/// Most memory that a message from a peer of the same user may take besides its body.
const SAME_USER_LIMIT: u64 = 16 << 30;

/// A body may have this many times the bytes of the message limit. So may the bodies of all
/// dictionaries of a stream together.
pub(super) const TIMES_OF_BODIES: u64 = 32;

impl DecodeOptions {
    /// Most bytes of a body, packed or lent.
    pub fn body_limit(&self) -> u64 {
        self.message_limit.saturating_mul(TIMES_OF_BODIES)
    }

    /// Options for a peer of the same or another user (rule A8). An option that is `None` gets the
    /// default for that peer.
    pub fn of_peer(same_user: bool, level: Option<Level>, message_limit: Option<u64>) -> Self {
        let careful = Self::default();
        let own = Self {
            level: Level::Structure,
            message_limit: SAME_USER_LIMIT,
        };
        let default = if same_user { own } else { careful };
        Self {
            level: level.unwrap_or(default.level),
            message_limit: message_limit.unwrap_or(default.message_limit),
        }
    }
}

impl Default for DecodeOptions {
    /// The safe choice: level full, and 512 MiB for each message.
    fn default() -> Self {
        Self {
            level: Level::Full,
            message_limit: 512 << 20,
        }
    }
}

/// A decoded record batch.
#[derive(Debug)]
pub struct DecodedBatch {
    /// The batch as a struct array, at the decoder's target.
    pub array: OwnedDeviceArray,
    /// The number of rows.
    pub rows: u64,
    /// The metadata of this batch.
    pub custom_metadata: Vec<(String, String)>,
    /// Bytes of its buffers that were copied or unpacked on the host.
    pub copied: u64,
    /// Bytes that were copied within a GPU or between GPUs, for this batch and for the dictionaries
    /// since the last batch.
    pub copied_on_device: u64,
    /// Bytes that were copied between the host and a GPU, for the same messages.
    pub staged: u64,
}
