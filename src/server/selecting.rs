//! What a client has selected of a table (rule Q12), as the server's host sees it, and selections
//! of published tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::request::Request;
use super::tickets::{Entry, Provider, provided};
use crate::arrow::OwnedDeviceStream;
use crate::arrow::stream::export_device_stream;
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::produce::Published;
use crate::error::{Error, Result, Status};
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
}

impl Request {
    /// The columns and rows that the client wants of the table. Unless the host
    /// [takes it](Self::take_selection), the host gives the whole table.
    pub fn selection(&self) -> &Selection {
        &self.selected().selection
    }

    /// Takes it upon the host to select: the stream that it gives has the wanted columns and rows
    /// alone. Otherwise the library selects of the whole table, without a copy.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun.
    pub fn take_selection(&self) -> Result<()> {
        let by = &self.selected().by;
        match by.compare_exchange(LIBRARY, HOST, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(HOST) => Ok(()),
            Err(_) => Err(Error::invalid_argument(
                "the stream has begun, and the library selects of it",
            )),
        }
    }

    /// What is left to the library to select of a stream that begins now.
    pub(super) fn selection_left(&self) -> Selection {
        let by = &self.selected().by;
        match by.compare_exchange(LIBRARY, BEGUN, Ordering::AcqRel, Ordering::Acquire) {
            Err(HOST) => Selection::new(),
            _ => self.selection().clone(),
        }
    }
}

/// The arrays of a published table.
pub(super) struct PublishedTable(pub(super) Arc<Deferred<Published>>);

/// An entry that gives the arrays of a published table.
pub(super) fn selected(table: Arc<Deferred<Published>>, callbacks: Callbacks) -> Entry {
    provided(Box::new(PublishedTable(table)), callbacks)
}

impl Provider for PublishedTable {
    fn open(&self, _: &Request) -> Result<OwnedDeviceStream> {
        let table = Arc::clone(&self.0);
        let reader = Published::read(table);
        let gone = || Error::new(Status::Stopped, "the table is published no more");
        reader.map(export_device_stream).ok_or_else(gone)
    }

    fn is_deterministic(&self) -> bool {
        true
    }
}
