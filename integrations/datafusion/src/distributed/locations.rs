//! Where a worker serves over libdipc, and which of its addresses a client takes.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;

use prost::Message;
use url::{Host, Url};

/// One address of a worker.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(string, tag = "1")]
    pub(super) uri: String,
    /// Who can reach it, by [`reach`]. Empty: everyone.
    #[prost(string, tag = "2")]
    pub(super) reach: String,
}

impl Location {
    /// The location of a listener of this process; `None` if nobody can reach it.
    pub(super) fn of(uri: String) -> Option<Self> {
        let reach = reach(&uri)?;
        Some(Self { uri, reach })
    }

    /// The address for a client in this process; `None` if it cannot reach the address. The worker
    /// of `url` may listen at all addresses of its machine, and then does not know its name.
    fn usable(&self, url: &Url) -> Option<String> {
        if !self.reach.is_empty() && reach(&self.uri)? != self.reach {
            return None;
        }
        let is_anywhere = |host| {
            matches!(host, Some(IpAddr::V4(ip)) if ip.is_unspecified())
                || matches!(host, Some(IpAddr::V6(ip)) if ip.is_unspecified())
        };
        let Some(mut parsed) = Url::parse(&self.uri).ok().filter(|it| is_anywhere(ip(it))) else {
            return Some(self.uri.clone());
        };
        parsed.set_host(Some(url.host_str()?)).ok()?;
        Some(parsed.into())
    }
}

/// The addresses of a worker that a client in this process can reach, the best way first.
pub(super) fn usable(locations: &[Location], url: &Url, ways: &[String]) -> Vec<String> {
    let of_way = |way: &String| {
        let of = locations.iter().filter(|it| scheme(&it.uri) == way);
        of.filter_map(|it| it.usable(url)).collect::<Vec<_>>()
    };
    ways.iter().flat_map(of_way).collect()
}

/// The scheme of a URI.
pub(super) fn scheme(uri: &str) -> &str {
    uri.split_once(':').map_or("", |(scheme, _)| scheme)
}

/// Who can reach `uri`: a text that is the same in all such processes, and empty for everyone.
/// `None` if this process cannot.
///
/// An abstract socket and the loopback interface belong to a network namespace, a socket file to a
/// file system, which several containers may share. Over shared memory libdipc by default serves
/// one user.
fn reach(uri: &str) -> Option<String> {
    if let Some(place) = uri.strip_prefix("shm:") {
        let place = place.split(['?', '#']).next().unwrap_or(place);
        let user = fs::metadata("/proc/self").ok()?.uid();
        let space = match place.starts_with('@') {
            true => network()?,
            false => {
                let file = fs::metadata(place).ok()?;
                format!("file {}:{}", file.dev(), file.ino())
            }
        };
        return Some(format!("{} user {user} {space}", boot()?));
    }
    let parsed = Url::parse(uri).ok()?;
    let is_local =
        ip(&parsed).is_some_and(|ip| ip.is_loopback()) || parsed.host_str() == Some("localhost");
    match is_local {
        true => Some(format!("{} {}", boot()?, network()?)),
        false => Some(String::new()),
    }
}

/// The IP address of a URI, if its host is one. In schemes that are not the web's, the `url` crate
/// takes such a host for a name.
fn ip(uri: &Url) -> Option<IpAddr> {
    match uri.host()? {
        Host::Domain(name) => name.parse().ok(),
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(ip.into()),
    }
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn network() -> Option<String> {
    let namespace = fs::metadata("/proc/self/ns/net").ok()?;
    Some(format!("net {}:{}", namespace.dev(), namespace.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("http://worker-1:7000").unwrap()
    }

    fn ways() -> Vec<String> {
        ["shm", "tls", "tcp"].map(str::to_owned).into()
    }

    /// Promise of `usable`: the best way first, and what this process cannot reach is left out.
    #[test]
    fn the_best_reachable_way_comes_first() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = format!("shm:{}", file.path().display());
        let uris = [
            "tcp://worker-1:7001",
            "ucx://worker-1:7002",
            "tls://10.0.0.1:7003",
            "shm:@w?want_data=1",
            &path,
            "shm:/no/such/socket",
        ];
        let mut here: Vec<_> = uris
            .iter()
            .filter_map(|uri| Location::of((*uri).to_owned()))
            .collect();
        assert_eq!(here.len(), 5);
        assert_eq!(
            usable(&here, &url(), &ways()),
            [
                "shm:@w?want_data=1",
                &path,
                "tls://10.0.0.1:7003",
                "tcp://worker-1:7001"
            ]
        );
        // Another machine, container or user.
        for location in here.iter_mut().filter(|it| !it.reach.is_empty()) {
            location.reach.push('x');
        }
        assert_eq!(
            usable(&here, &url(), &ways()),
            ["tls://10.0.0.1:7003", "tcp://worker-1:7001"]
        );
        assert_eq!(
            usable(&here, &url(), &["ucx".into()]),
            ["ucx://worker-1:7002"]
        );
    }

    /// Promise of `usable`: loopback is of one network namespace, and a listener at all addresses
    /// is reached by the worker's name.
    #[test]
    fn hosts_are_told_apart() {
        for uri in [
            "tcp://127.0.0.1:7001",
            "tcp://[::1]:7001",
            "tcp://localhost:7001",
        ] {
            let mut location = Location::of(uri.to_owned()).unwrap();
            assert_eq!(location.usable(&url()).unwrap(), uri);
            location.reach.push('x');
            assert_eq!(location.usable(&url()), None);
        }
        let tagged = Location::of("tcp://0.0.0.0:7001?free_data=3".into()).unwrap();
        assert_eq!(
            tagged.usable(&url()).unwrap(),
            "tcp://worker-1:7001?free_data=3"
        );
        let any = Location::of("tls://[::]:7001".into()).unwrap();
        assert_eq!(any.usable(&url()).unwrap(), "tls://worker-1:7001");
    }
}
