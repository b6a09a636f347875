//! What the machines need to know of an IPC header.

/// Which IPC message a header is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderKind {
    /// The schema, first in its stream.
    Schema,
    /// A dictionary: whole, a replacement or a delta.
    Dictionary,
    /// A record batch.
    RecordBatch,
}

/// Where a buffer lies in a packed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodySpan {
    /// First byte, counted from the start of the body.
    pub offset: u64,
    /// Length in bytes, without padding.
    pub length: u64,
}
