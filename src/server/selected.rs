//! What a client has selected of a table (rule Q12), and who selects.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{Error, Result};
use crate::proto::Selection;

/// The library selects.
const LIBRARY: u8 = 0;
/// The host selects by itself.
const HOST: u8 = 1;
/// The library selects of a stream that has begun.
const BEGUN: u8 = 2;

/// The selection of a request, and who selects.
#[derive(Debug)]
pub(super) struct Selected {
    selection: Selection,
    by: AtomicU8,
}

impl Selected {
    pub(super) fn new(selection: &Selection) -> Self {
        Self {
            selection: selection.clone(),
            by: AtomicU8::new(LIBRARY),
        }
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// From now on the host selects.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun.
    pub(super) fn leave_to_host(&self) -> Result<()> {
        match self.decide(HOST) {
            Ok(_) | Err(HOST) => Ok(()),
            Err(_) => Err(Error::invalid_argument(
                "the stream has begun, and the library selects of it",
            )),
        }
    }

    /// What is left to the library to select of a stream that begins now.
    pub(super) fn left(&self) -> Selection {
        match self.decide(BEGUN) {
            Err(HOST) => Selection::new(),
            _ => self.selection.clone(),
        }
    }

    fn decide(&self, next: u8) -> Result<u8, u8> {
        self.by
            .compare_exchange(LIBRARY, next, Ordering::AcqRel, Ordering::Acquire)
    }
}
