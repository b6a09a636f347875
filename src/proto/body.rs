//! Address lists and free lists.

/// A run of lent memory as the wire names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Address or offset, as the transport defines it; 0 when `length` is 0.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}
