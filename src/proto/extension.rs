//! Versions, features and credit of our extension (section E).

use crate::proto::wire::wire_struct;

/// The highest version of the extension that this build speaks. This build also speaks each lower
/// version. Version 2 adds verbs and headers to the request, version 3 a selection.
pub const VERSION: u16 = 3;

/// Bit of [`Request::features`](crate::proto::Request::features) and
/// [`StreamInfo::features`](crate::proto::StreamInfo::features): a body lent in the producer's own
/// memory uses no credit of bytes, since it takes no memory at either end.
pub const FEATURE_IN_PLACE: u64 = 1;

/// Bit of the features, as [`FEATURE_IN_PLACE`]: the client returns a lent body by its number
/// ([`Control::Return`](crate::proto::Control::Return)), not by its addresses.
pub const FEATURE_RETURN: u64 = 2;

/// Bit of the features, as [`FEATURE_IN_PLACE`]: the server does not send an equal header twice in
/// a row ([`PrefixKind::Repeat`](crate::proto::PrefixKind)). Only for a client whose connection
/// keeps the order of messages.
pub const FEATURE_REPEAT: u64 = 4;

/// Bit of the features, as [`FEATURE_IN_PLACE`]: the server sends PENDING if its answer to the
/// request takes long. Only for a client that limits its wait for an answer.
pub const FEATURE_PENDING: u64 = 8;

/// Bit of the features, as [`FEATURE_IN_PLACE`]: answers may carry headers (rule Q1).
pub const FEATURE_HEADERS: u64 = 16;

/// Bit of [`Request::features`](crate::proto::Request::features) alone: the client can have many
/// streams on one connection (rule S1).
pub const FEATURE_STREAMS: u64 = 32;

/// The features of a stream that this build knows.
pub(crate) const FEATURES: u64 =
    FEATURE_IN_PLACE | FEATURE_RETURN | FEATURE_REPEAT | FEATURE_PENDING | FEATURE_HEADERS;

/// Bytes of a GPU's UUID.
pub const UUID_BYTES: usize = 16;

/// How much the peer may send: totals since the start of the stream (rule E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Credit {
    /// Record batches.
    pub batches: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

wire_struct!(Credit { batches, bytes });
