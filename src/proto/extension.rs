//! What both ends of our extension agree on (section E).

/// The highest version of the extension that this build speaks. It also speaks each lower one:
/// version 2 adds verbs and headers to the request.
pub const VERSION: u16 = 2;

/// Bit of [`Request::features`](crate::proto::Request::features) and
/// [`StreamInfo::features`](crate::proto::StreamInfo::features): bodies that are lent where the
/// producer has them use no credit of bytes, since they take memory at neither end.
pub const FEATURE_IN_PLACE: u64 = 1;

/// Bit of the same: lent bodies go back by their number
/// ([`Control::Return`](crate::proto::Control::Return)), not by their addresses.
pub const FEATURE_RETURN: u64 = 2;

/// Bit of the same: a header like that of the message before is not sent again
/// ([`PrefixKind::Repeat`](crate::proto::PrefixKind)). Only for a client whose connection keeps the
/// order of messages.
pub const FEATURE_REPEAT: u64 = 4;

/// Bit of the same: the server says PENDING where the answer to the request takes its time. Only
/// for a client that waits for an answer for a limited time.
pub const FEATURE_PENDING: u64 = 8;

/// Bit of the same: answers may carry headers (rule Q1).
pub const FEATURE_HEADERS: u64 = 16;

/// The features that this build knows.
pub(crate) const FEATURES: u64 =
    FEATURE_IN_PLACE | FEATURE_RETURN | FEATURE_REPEAT | FEATURE_PENDING | FEATURE_HEADERS;

/// Bytes of a GPU's UUID.
pub const UUID_BYTES: usize = 16;

/// How far the peer may send: totals since the start of the stream (rule E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Credit {
    /// Record batches.
    pub batches: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}
