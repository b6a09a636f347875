//! Requests to the server of a connection.

use std::sync::Arc;

use adbc_core::error::Result;
use arrow::datatypes::SchemaRef;
use dipc::{Cancel, Client, Description, Endpoint, Status};

use crate::error::{OrAdbc as _, guarded};
use crate::partition::Partition;
use crate::results::{self, ResultSet};
use crate::selection::Selection;
use crate::settings::Settings;

/// A server, how to ask it, and what the connection may do.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) uri: String,
    pub(crate) settings: Settings,
    pub(crate) is_read_only: bool,
}

impl Session {
    /// The selected part of the result set that `descriptor` stands for.
    pub(crate) fn get(
        &self,
        descriptor: &[u8],
        selection: &Selection,
        token: Arc<Cancel>,
    ) -> Result<ResultSet> {
        let (options, is_left) = selection.of(self.settings.get_until(&token)?)?;
        let in_parts = self.settings.in_parts()?;
        let reader = guarded(|| match in_parts {
            true => self.client.get_parts(&self.uri, descriptor, &options),
            false => self.client.get_with(&self.uri, descriptor, &options),
        });
        let reader = reader.or_adbc()?;
        let places = match is_left {
            true => selection.places(&reader.schema())?,
            false => None,
        };
        match places {
            Some(places) => results::columns_of(reader, places, token),
            None => Ok(results::of(reader, token)),
        }
    }

    /// The result set of one partition.
    pub(crate) fn read(&self, partition: &Partition, token: Arc<Cancel>) -> Result<ResultSet> {
        let options = self.settings.get_until(&token)?;
        let mut endpoint = Endpoint::new(&partition.ticket);
        for uri in &partition.uris {
            endpoint = endpoint.uri(uri);
        }
        // A partition may come from anybody. So a server that only the partition names, and not
        // this connection, is not trusted.
        if partition.uris.is_empty() && partition.asked != self.uri {
            endpoint = endpoint.uri(&partition.asked);
        }
        let reader = guarded(|| self.client.get_part(&self.uri, &endpoint, &options));
        Ok(results::of(reader.or_adbc()?, token))
    }

    /// What the server says about `descriptor`; `None` if it does not describe such tables.
    pub(crate) fn describe(
        &self,
        descriptor: &[u8],
        token: &Cancel,
    ) -> Result<Option<Description>> {
        let options = self.settings.get_until(token)?;
        match guarded(|| self.client.describe_with(&self.uri, descriptor, &options)) {
            // A table that a provider makes on request has no description of its own.
            Err(error) if matches!(error.status(), Status::Unsupported | Status::NotFound) => {
                Ok(None)
            }
            described => described.or_adbc().map(Some),
        }
    }

    /// The schema of `descriptor`: from its description, or otherwise from the start of the table
    /// itself.
    pub(crate) fn schema(
        &self,
        descriptor: &[u8],
        description: Option<&Description>,
        token: &Cancel,
    ) -> Result<SchemaRef> {
        let described = description.map(Description::table_schema).transpose();
        if let Some(schema) = described.or_adbc()?.flatten() {
            return Ok(schema);
        }
        // Dropping the reader cancels the stream, so the server sends little in vain.
        let options = self.settings.get_until(token)?.window(1, 1);
        let reader = guarded(|| self.client.get_with(&self.uri, descriptor, &options));
        Ok(reader.or_adbc()?.schema())
    }

    /// The tables whose tickets begin with `prefix`.
    pub(crate) fn list(&self, prefix: &str, token: &Cancel) -> Result<Vec<Endpoint>> {
        let options = self.settings.get_until(token)?;
        guarded(|| self.client.list_with(&self.uri, prefix, &options)).or_adbc()
    }
}
