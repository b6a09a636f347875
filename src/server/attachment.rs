//! The table that comes with a request.

use std::sync::Arc;

use super::client_stream::ClientStream;
use super::forwarded::Forwarded;
use crate::arrow::OwnedSchema;
use crate::arrow::stream::DeviceStreamReader;
use crate::driver::fetch::Stream;
use crate::error::{Error, Result};

/// The table that comes with a request.
pub(super) enum Attachment {
    Nothing,
    /// The client's.
    Client(Arc<ClientStream>),
    /// What the middleware sends in its place.
    Forwarded(Forwarded),
}

/// A table on its way to the host.
pub enum SentTable {
    /// Of the client.
    Client(Box<Stream>),
    /// Of the middleware before the host.
    Forwarded(DeviceStreamReader),
}

impl Attachment {
    /// Fails if the host has left something of the table that a middleware sends.
    pub(super) fn ensure_read(&self) -> Result<()> {
        match self {
            Self::Forwarded(forwarded) => forwarded.ensure_read(),
            Self::Nothing | Self::Client(_) => Ok(()),
        }
    }

    /// The stream of the client, also where the middleware has taken it.
    pub(super) fn of_client(&self) -> Option<&Arc<ClientStream>> {
        match self {
            Self::Nothing => None,
            Self::Client(source) => Some(source),
            Self::Forwarded(forwarded) => forwarded.source.as_ref(),
        }
    }

    /// [`of_client`](Self::of_client), for a host that wants one.
    pub(super) fn client_stream(&self) -> Result<&Arc<ClientStream>> {
        (self.of_client())
            .ok_or_else(|| Error::invalid_argument("the client of this request sends no stream"))
    }

    pub(super) fn schema(&self) -> Result<OwnedSchema> {
        match self {
            Self::Forwarded(forwarded) => forwarded.schema(),
            Self::Client(_) | Self::Nothing => self.client_stream()?.schema(),
        }
    }

    pub(super) fn take(&self) -> Result<SentTable> {
        match self {
            Self::Forwarded(forwarded) => forwarded.take().map(SentTable::Forwarded),
            Self::Client(_) | Self::Nothing => {
                let stream = self.client_stream()?.take()?;
                Ok(SentTable::Client(Box::new(stream)))
            }
        }
    }

    /// Tells the client that the first `batches` of its stream are safe.
    pub(super) fn send_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        // The batches of a middleware are not those that the client counts.
        let batches = match self {
            Self::Forwarded(_) => 0,
            Self::Client(_) | Self::Nothing => batches,
        };
        self.client_stream()?.send_result(batches, bytes)
    }
}
