//! Figures of a stream on its way in.

/// What a stream has brought so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
