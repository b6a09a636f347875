//! Figures of a stream on its way in.

use std::ops::Add;

/// What a stream has brought so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Rows handed out.
    pub rows: u64,
    /// Record batches handed out.
    pub batches: u64,
    /// Body bytes that the server lent and this side mapped.
    pub bytes_lent: u64,
    /// Body bytes copied on this side: joined dictionaries, values copied to be checked.
    pub bytes_copied: u64,
    /// Body bytes that came through the connection.
    pub bytes_received: u64,
    /// Body bytes copied on this side from one place of a GPU to another, or between GPUs.
    pub bytes_copied_on_device: u64,
    /// Body bytes copied on this side between the host and a GPU.
    pub bytes_staged: u64,
}

impl Add for StreamStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            batches: self.batches + other.batches,
            bytes_lent: self.bytes_lent + other.bytes_lent,
            bytes_copied: self.bytes_copied + other.bytes_copied,
            bytes_received: self.bytes_received + other.bytes_received,
            bytes_copied_on_device: self.bytes_copied_on_device + other.bytes_copied_on_device,
            bytes_staged: self.bytes_staged + other.bytes_staged,
        }
    }
}
