//! Options for streams that clients send.

use std::time::Duration;

use crate::arrow::decode::Level;
use crate::proto::Credit;

/// Options for streams that clients send.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// How many batches and bytes a client may send before the host takes them.
    pub window: Credit,
    /// Most bytes of copies that a client may lend at once. Beyond it bodies travel as bytes.
    pub lent_limit: u64,
    /// Level of validation; `None`: `Structure` for a client of the same user, `Full` for others
    /// (rule A8).
    pub level: Option<Level>,
    /// Most memory that one message may need here in addition to its body; `None`: 16 GiB from a
    /// client of the same user, [`DecodeOptions`](crate::arrow::decode::DecodeOptions)' default from
    /// others.
    pub message_limit: Option<u64>,
    /// How long a client may be silent while the host waits for it; `None`: for ever.
    pub stall_timeout: Option<Duration>,
}

impl Default for TakeOptions {
    fn default() -> Self {
        Self {
            window: Credit {
                batches: 16,
                bytes: 256 << 20,
            },
            lent_limit: 1 << 30,
            level: None,
            message_limit: None,
            stall_timeout: None,
        }
    }
}
