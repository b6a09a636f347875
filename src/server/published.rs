//! The arrays of a published table, as a provider gives them: to a client that selects, and to a
//! middleware.

use std::sync::Arc;

use super::provider::HostProvider;
use super::request::ServerRequest;
use crate::arrow::OwnedDeviceStream;
use crate::arrow::stream::export_device_stream;
use crate::driver::callbacks::Deferred;
use crate::driver::produce::Published;
use crate::error::{Error, Result, Status};

/// The arrays of a published table.
pub(super) struct PublishedTable(pub(super) Arc<Deferred<Published>>);

impl HostProvider for PublishedTable {
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        let table = Arc::clone(&self.0);
        let reader = Published::read(table);
        let gone = || Error::new(Status::Stopped, "the table is published no more");
        reader.map(export_device_stream).ok_or_else(gone)
    }

    fn is_deterministic(&self) -> bool {
        true
    }
}
