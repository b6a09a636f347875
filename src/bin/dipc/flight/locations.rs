//! The locations of an endpoint: what they mean to a client, and which ones a server gives out.

use std::net::SocketAddr;

use dipc::error::{Error, Result, Status};
use dipc::proto::{Role, Uri};
use dipc::transport;

/// The location that means: over the connection on which the endpoint came.
pub const REUSE_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// Schemes of Dissociated IPC, whether or not this build has a transport for them.
const DISSOCIATED: [&str; 3] = ["shm", "tcp", "ucx"];

/// One way to fetch the data of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By libdipc, from one URI, or from two that belong together.
    Dissociated(Vec<String>),
    /// By `DoGet` of the Flight server there.
    DoGet(String),
    /// By `DoGet` over the connection on which the endpoint came.
    Here,
}

/// A location that this client cannot use, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// As the server wrote it.
    pub location: String,
    /// What is in the way.
    pub reason: String,
}

/// Whether a URI names a Flight server.
pub fn is_flight(uri: &str) -> bool {
    let scheme = scheme(uri);
    scheme == "grpc" || scheme.starts_with("grpc+")
}

fn scheme(uri: &str) -> &str {
    uri.trim().split(':').next().unwrap_or_default()
}

/// What the locations mean, in their order. No location at all means the server that was asked.
///
/// Peers on ucx can read and write this process's memory. Who names one on the command line has
/// chosen to trust it; a Flight server's word is not enough without `trusted_network`.
pub fn ways(locations: &[String], trusted_network: bool) -> Vec<Result<Way, Unusable>> {
    if locations.is_empty() {
        return vec![Ok(Way::Here)];
    }
    let mut ways = Vec::new();
    let mut rest = locations;
    while let [location, after @ ..] = rest {
        let (way, taken) = one_way(location, after.first());
        let way = way.and_then(|way| match way {
            Way::Dissociated(uris)
                if !trusted_network && uris.iter().any(|uri| scheme(uri) == "ucx") =>
            {
                Err(Error::new(
                    Status::Permission,
                    "a peer on ucx can read and write this process's memory; --trusted-network \
                     allows those that the Flight server names",
                ))
            }
            way => Ok(way),
        });
        ways.push(way.map_err(|error| Unusable {
            location: location.clone(),
            reason: error.text().to_owned(),
        }));
        rest = rest.get(taken..).unwrap_or_default();
    }
    ways
}

/// What a location means, and how many it takes: two where `next` belongs to it.
fn one_way(location: &str, next: Option<&String>) -> (Result<Way>, usize) {
    let scheme = scheme(location);
    if format!("{scheme}://?") == REUSE_CONNECTION {
        return (Ok(Way::Here), 1);
    }
    if is_flight(location) {
        return (Ok(Way::DoGet(location.to_owned())), 1);
    }
    if !DISSOCIATED.contains(&scheme) {
        let text = format!("dipc has no way to fetch from `{scheme}:`");
        return (Err(Error::unsupported(text)), 1);
    }
    let uri = match Uri::parse(location) {
        Ok(uri) => uri,
        Err(error) => return (Err(error), 1),
    };
    let works = || transport::by_scheme(&uri.scheme)?.available();
    // Parsing the second one tells no more than that it is not a partner.
    if let Some(second) = next
        && Uri::parse(second).is_ok_and(|second| are_pair(&uri, &second))
    {
        let way = Way::Dissociated(vec![location.to_owned(), second.clone()]);
        return (works().map(|()| way), 2);
    }
    let way = match uri.role {
        Some(role @ (Role::Metadata | Role::Data)) => Err(Error::new(
            Status::InvalidUri,
            format!(
                "it serves the {} stream only, and the location after it is not its partner",
                role.as_str()
            ),
        )),
        _ => works().map(|()| Way::Dissociated(vec![location.to_owned()])),
    };
    (way, 1)
}

/// Whether two URIs, one behind the other, serve one stream together (rules U3 and R4).
fn are_pair(first: &Uri, second: &Uri) -> bool {
    match (first.role, second.role) {
        (Some(Role::Metadata), Some(Role::Data)) | (Some(Role::Data), Some(Role::Metadata)) => true,
        // The reference peer gives metadata and data as two URIs that name no role (rule R4). Two
        // URIs of a libdipc server without a role are two addresses of one table.
        (None, None) => [first, second]
            .into_iter()
            .all(|uri| uri.scheme == "ucx" && !uri.extension),
        _ => false,
    }
}

/// Of the URIs at which a server listens those that a Flight client can make use of: one on another
/// machine gets none that ends at this one. Addresses that mean "every address" become the one at
/// which the client reached this machine, `local`.
pub fn for_peer(
    uris: &[String],
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
) -> Vec<String> {
    let ip = |address: Option<SocketAddr>| address.map(|address| address.ip().to_canonical());
    let (local, remote) = (ip(local), ip(remote));
    let same_machine = remote.is_some_and(|ip| ip.is_loopback() || local == Some(ip));
    let usable = |uri: &String| -> Option<String> {
        let mut parsed = Uri::parse(uri).ok()?;
        let Ok(address) = parsed.address.parse::<SocketAddr>() else {
            // A name of a host means the same everywhere; a path or a name of shm does not.
            return (parsed.scheme != "shm" || same_machine).then(|| uri.clone());
        };
        match (address.ip(), local) {
            (ip, _) if ip.is_loopback() && !same_machine => None,
            (ip, Some(local)) if ip.is_unspecified() => {
                parsed.address = SocketAddr::new(local, address.port()).to_string();
                Some(parsed.to_string())
            }
            (ip, None) if ip.is_unspecified() => None,
            _ => Some(uri.clone()),
        }
    };
    uris.iter().filter_map(usable).collect()
}

#[cfg(test)]
#[path = "locations_tests.rs"]
mod tests;
