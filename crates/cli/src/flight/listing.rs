//! `dipc ls grpc://…` and `dipc describe grpc://…`: the tables of a Flight server.

use arrow_flight::FlightInfo;
use arrow_flight::flight_descriptor::DescriptorType;
use dipc::{Cancel, Description, Endpoint, Result};
use tonic::codegen::Bytes;

use crate::flight::caller::{Caller, Peer, Times};
use crate::flight::fetch::{ask, schema_of};
use crate::flight::locations::REUSE_CONNECTION;
use crate::trust::ClientTrust;

/// The Flight server that is asked.
pub struct Listing(Peer);

impl Listing {
    /// Connects to the server at `uri`.
    ///
    /// # Errors
    ///
    /// `Unreachable` and the like.
    pub fn of(uri: &str, times: Times, trust: &ClientTrust, cancel: &Cancel) -> Result<Self> {
        let caller = Caller::new(cancel, times, trust)?;
        Ok(Self(Peer::connect(&caller, uri)?))
    }

    /// The tables whose names begin with `prefix`. A server may interpret criteria as it likes, so
    /// a server that leaves nothing out is right too.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn list(&self, prefix: &str) -> Result<Vec<Endpoint>> {
        let infos = self.0.list(prefix.as_bytes())?;
        let named = infos.into_iter().map(|info| (name_of(&info), info));
        let listed = named.filter(|(name, _)| name.starts_with(prefix));
        let endpoint = |(name, info): (String, FlightInfo)| {
            let mut endpoint = Endpoint::new(name);
            let (rows, bytes) = size_of(&info);
            endpoint = rows.into_iter().fold(endpoint, Endpoint::rows);
            bytes.into_iter().fold(endpoint, Endpoint::bytes)
        };
        Ok(listed.map(endpoint).collect())
    }

    /// A table, by its name as a path of one part or as a command.
    ///
    /// # Errors
    ///
    /// Those of the server.
    pub fn describe(&self, name: &str, is_command: bool) -> Result<Description> {
        let info = ask(&self.0, name, is_command)?;
        let mut described = Description::new().ordered(info.ordered);
        if let Ok(schema) = schema_of(&info, None) {
            described = described.schema(&schema)?;
        }
        let (rows, bytes) = size_of(&info);
        described = rows.into_iter().fold(described, Description::rows);
        described = bytes.into_iter().fold(described, Description::bytes);
        let endpoints = info.endpoint.into_iter().map(|endpoint| {
            let ticket = endpoint.ticket.map_or(Bytes::new(), |it| it.ticket);
            let uris = endpoint.location.into_iter().map(|location| location.uri);
            let elsewhere = uris.filter(|uri| uri != REUSE_CONNECTION);
            elsewhere.fold(Endpoint::new(ticket), Endpoint::uri)
        });
        Ok(endpoints.fold(described, Description::endpoint))
    }
}

/// Rows and bytes, if the server knows them. Otherwise it says -1.
fn size_of(info: &FlightInfo) -> (Option<u64>, Option<u64>) {
    let known = |number: i64| u64::try_from(number).ok();
    (known(info.total_records), known(info.total_bytes))
}

/// The path, with `/` between its parts, or the command.
fn name_of(info: &FlightInfo) -> String {
    let Some(descriptor) = &info.flight_descriptor else {
        return String::new();
    };
    match DescriptorType::try_from(descriptor.r#type) {
        Ok(DescriptorType::Path) => descriptor.path.join("/"),
        _ => String::from_utf8_lossy(&descriptor.cmd).into_owned(),
    }
}
