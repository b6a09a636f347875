//! The pull form: a stream that the host pushes.

use std::sync::Arc;

use super::streams::Slot;
use crate::driver::produce::Production;

/// A stream that the host pushes.
pub(super) struct PullStream {
    pub(super) production: Production,
    /// The host has said its last word, once.
    pub(super) answer: Option<PullAnswer>,
    /// Counts the stream as active. After `production`, so that the stream ends first.
    _slot: Arc<Slot>,
}

impl PullStream {
    pub(super) fn new(production: Production, slot: Arc<Slot>) -> Self {
        Self {
            production,
            answer: None,
            _slot: slot,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PullAnswer {
    Finished,
    Failed,
}
