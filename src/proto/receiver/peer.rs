//! The server at the other end of one connection.

use super::types::SideConfig;
use crate::proto::StreamInfo;

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) config: SideConfig,
    pub(super) info: Option<StreamInfo>,
    /// Whether it was told that the stream is not wanted.
    pub(super) cancelled: bool,
    /// Whether it said ERROR.
    pub(super) failed: bool,
    /// Whether it said PENDING.
    pub(super) pending: bool,
}

impl StreamEnd {
    pub(super) fn new(config: SideConfig) -> Self {
        Self {
            config,
            info: None,
            cancelled: false,
            failed: false,
            pending: false,
        }
    }

    /// Whether it has yet to say STREAM (rule E2).
    pub(super) fn is_unanswered(&self) -> bool {
        self.config.extension && self.info.is_none() && !self.failed
    }

    /// Whether nothing shows that it has read the request.
    pub(super) fn is_unheard(&self) -> bool {
        self.is_unanswered() && !self.pending
    }
}
