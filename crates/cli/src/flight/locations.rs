//! The locations of an endpoint: a client's choice among them, and those that a server gives.

use std::net::SocketAddr;

use dipc::{Error, Result, Role, Status, Uri};

use crate::listening::SCHEMES;

/// The location for: the connection of the Flight server that gave the endpoint.
pub const REUSE_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// One route to fetch the data of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// By libdipc, from one URI or from a pair.
    Dissociated(Vec<String>),
    /// By `DoGet` of the Flight server there.
    DoGet(String),
    /// By `DoGet` of the Flight server that gave the endpoint.
    Here,
}

/// A location that this client cannot use.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The server's text.
    pub location: String,
    /// Why it cannot be used.
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

/// The routes to the data, in the order of the locations. Without locations the Flight server
/// itself has the data.
///
/// Peers on ucx can read and write this process's memory. A user who names a ucx address trusts it.
/// A Flight server's address is not trusted without `trusted_network`.
pub fn routes(locations: &[String], trusted_network: bool) -> Vec<Result<Route, Unusable>> {
    if locations.is_empty() {
        return vec![Ok(Route::Here)];
    }
    let mut routes = Vec::new();
    let mut rest = locations;
    while let [location, after @ ..] = rest {
        let (route, taken) = route_at(location, after.first());
        let route = route.and_then(|route| match route {
            Route::Dissociated(uris)
                if !trusted_network && uris.iter().any(|uri| scheme(uri) == "ucx") =>
            {
                Err(Error::new(
                    Status::Permission,
                    "a peer on ucx can read and write this process's memory; --trusted-network \
                     allows those that the Flight server names",
                ))
            }
            route => Ok(route),
        });
        routes.push(route.map_err(|error| Unusable {
            location: location.clone(),
            reason: error.text().to_owned(),
        }));
        rest = rest.get(taken..).unwrap_or_default();
    }
    routes
}

/// The route of a location, and the number of locations that it uses: two if `next` is its partner.
fn route_at(location: &str, next: Option<&String>) -> (Result<Route>, usize) {
    let scheme = scheme(location);
    if format!("{scheme}://?") == REUSE_CONNECTION {
        return (Ok(Route::Here), 1);
    }
    if is_flight(location) {
        return (Ok(Route::DoGet(location.to_owned())), 1);
    }
    if !SCHEMES.contains(&scheme) {
        let text = format!("dipc has no route to fetch from `{scheme}:`");
        return (Err(Error::unsupported(text)), 1);
    }
    let uri = match Uri::parse(location) {
        Ok(uri) => uri,
        Err(error) => return (Err(error), 1),
    };
    let works = || uri.ensure_usable();
    // A second URI that cannot be parsed is no partner.
    if let Some(second) = next
        && Uri::parse(second).is_ok_and(|second| are_pair(&uri, &second))
    {
        let route = Route::Dissociated(vec![location.to_owned(), second.clone()]);
        return (works().map(|()| route), 2);
    }
    let route = match uri.role() {
        Some(role @ (Role::Metadata | Role::Data)) => Err(Error::new(
            Status::InvalidUri,
            format!(
                "it serves the {} stream only, and the location after it is not its partner",
                role.as_str()
            ),
        )),
        _ => works().map(|()| Route::Dissociated(vec![location.to_owned()])),
    };
    (route, 1)
}

/// Whether two adjacent URIs serve one stream together (rules U3 and R4).
fn are_pair(first: &Uri, second: &Uri) -> bool {
    match (first.role(), second.role()) {
        (Some(Role::Metadata), Some(Role::Data)) | (Some(Role::Data), Some(Role::Metadata)) => true,
        // The reference peer gives metadata and data as two URIs without a role (rule R4). Two URIs
        // of a libdipc server without a role are two addresses of one table.
        (None, None) => [first, second]
            .into_iter()
            .all(|uri| uri.scheme() == "ucx" && !uri.is_libdipc()),
        _ => false,
    }
}

/// The URIs of a server that a Flight client can use. A client on another machine gets no address
/// of this machine only. An address for "every address" becomes `local`, the address at which the
/// client reached this machine.
pub fn for_peer(
    uris: &[String],
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
) -> Vec<String> {
    let ip = |address: Option<SocketAddr>| address.map(|address| address.ip().to_canonical());
    let (local, remote) = (ip(local), ip(remote));
    let same_machine = remote.is_some_and(|ip| ip.is_loopback() || local == Some(ip));
    let usable = |uri: &String| -> Option<String> {
        let parsed = Uri::parse(uri).ok()?;
        let Ok(address) = parsed.address().parse::<SocketAddr>() else {
            // A host name means the same on each machine; a path or name of shm does not.
            return (parsed.scheme() != "shm" || same_machine).then(|| uri.clone());
        };
        match (address.ip(), local) {
            (ip, _) if ip.is_loopback() && !same_machine => None,
            (ip, Some(local)) if ip.is_unspecified() => {
                let reached = SocketAddr::new(local, address.port());
                Some(parsed.at(reached.to_string()).to_string())
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
