//! The server at the other end of one connection.

use super::types::SideConfig;
use crate::proto::StreamInfo;

/// Knowledge about the server of one connection.
#[derive(Debug)]
pub(super) struct StreamEnd {
    pub(super) config: SideConfig,
    pub(super) info: Option<StreamInfo>,
    /// Whether the client has sent CANCEL to the server.
    pub(super) cancelled: bool,
    /// Whether the server has sent ERROR.
    pub(super) failed: bool,
    /// Whether the server has sent PENDING.
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

    /// Whether the server has yet to send STREAM (rule E2).
    pub(super) fn is_unanswered(&self) -> bool {
        self.config.extension && self.info.is_none() && !self.failed
    }

    /// Whether nothing shows that the server has read the request.
    pub(super) fn is_unheard(&self) -> bool {
        self.is_unanswered() && !self.pending
    }
}
