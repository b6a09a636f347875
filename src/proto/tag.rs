//! The 64-bit tags of tagged messages.

/// The tags that a URI names for requests and frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Tag of a baseline request (rule M1).
    pub want_data: u64,
    /// Tag of a free list, where address lists may come (rule U2).
    pub free_data: Option<u64>,
    /// Tag of an extension request (rule E1).
    pub dipc_want: u64,
}
