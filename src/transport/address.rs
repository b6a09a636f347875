//! `host:port`, and the addresses that the host's name stands for.

use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs as _};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFlags, eventfd};

use crate::error::{Error, Result, Status};
use crate::proto::{Uri, escape_zone};
use crate::transport::Attempt;

/// The address of a listener: a name or number of a machine, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    /// As written in the URI, without the brackets of an IPv6 address.
    host: String,
    /// 0 if a listener takes any free port.
    port: u16,
}

impl Address {
    /// The error for a host that has no address.
    pub fn nobody(&self) -> Error {
        Error::new(Status::Unreachable, format!("{self} stands for no address"))
    }

    /// The address of a URI.
    pub fn of(uri: &Uri) -> Result<Self> {
        let text = uri.address.as_str();
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
            Some((bare.unwrap_or(host), port.parse().ok()?))
        });
        match parts {
            Some((host, port)) if !host.is_empty() => Ok(Self {
                scheme: uri.scheme.clone(),
                host: host.to_owned(),
                port,
            }),
            _ => Err(Error::new(
                Status::InvalidUri,
                format!(
                    "{0}://{text}: write {0}://host:port, as in {0}://[::1]:4000",
                    uri.scheme
                ),
            )),
        }
    }

    /// The host, as written in the URI.
    #[cfg(feature = "tls")]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same host with another port.
    pub fn with_port(&self, port: u16) -> Self {
        Self {
            scheme: self.scheme.clone(),
            host: self.host.clone(),
            port,
        }
    }

    /// [`resolve`](Self::resolve) on this thread.
    pub fn resolve_now(&self, timeout: Duration) -> Result<Vec<SocketAddr>> {
        let attempt = Attempt::default();
        attempt.block_on(self.resolve(timeout, &attempt))
    }

    /// The addresses that the host's name stands for: at least one. A thread of its own looks the
    /// name up. The look-up cannot be interrupted, so the thread outlives `timeout` and a cancelled
    /// attempt.
    /// Errors: `Unreachable` when there is no such name or interface, `InvalidUri` for an address
    /// of a link without its interface, `Timeout`, `Cancelled` by the token.
    pub async fn resolve(&self, timeout: Duration, attempt: &Attempt) -> Result<Vec<SocketAddr>> {
        let until = Instant::now() + timeout;
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            if let IpAddr::V6(v6) = ip
                && v6.is_unicast_link_local()
            {
                return Err(Error::new(
                    Status::InvalidUri,
                    format!(
                        "{self} is the address of a link: name the interface too, as in \
                         {}://[{ip}%eth0]:{}",
                        self.scheme, self.port
                    ),
                ));
            }
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        if let Some((ip, zone)) = self.host.split_once('%')
            && let Ok(ip) = ip.parse::<Ipv6Addr>()
        {
            let scope = scope_of(zone).ok_or_else(|| {
                Error::new(
                    Status::Unreachable,
                    format!("this machine has no interface `{zone}`, which {self} names"),
                )
            })?;
            return Ok(vec![SocketAddrV6::new(ip, self.port, 0, scope).into()]);
        }
        let failed = |errno| Error::os("cannot wait for a name to be looked up", errno);
        let done = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let done = Arc::new(done);
        let (sender, found) = mpsc::channel();
        let told = Arc::clone(&done);
        let target = (self.host.clone(), self.port);
        std::thread::Builder::new()
            .name("dipc-resolve".into())
            .spawn(move || {
                // The caller may no longer wait for the result.
                let _ = sender.send(target.to_socket_addrs().map(Vec::from_iter));
                let _ = rustix::io::write(&told, &1_u64.to_ne_bytes());
            })
            .map_err(|error| Error::io("cannot start a thread to look a name up", &error))?;
        let unknown = |why: &str| {
            Error::new(
                Status::Unreachable,
                format!(
                    "the name `{}` of {self} cannot be looked up{why}; is it spelt right, and \
                     known on this machine?",
                    self.host
                ),
            )
        };
        attempt.ready(done, PollFlags::IN, until).await?;
        match found.try_recv() {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(unknown("")),
            Ok(Err(error)) => Err(unknown(&format!(" ({error})"))),
            Err(_) => Err(Error::timeout(format!(
                "the name `{}` of {self} was not looked up within {timeout:?}: the name server \
                 does not answer",
                self.host
            ))),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            let address = format!("[{}]:{}", self.host, self.port);
            write!(f, "{}://{}", self.scheme, escape_zone(&address))
        } else {
            write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
        }
    }
}

/// The number of an interface, given by name or number.
fn scope_of(zone: &str) -> Option<u32> {
    if let Ok(number) = zone.parse::<u32>() {
        return Some(number);
    }
    let name = CString::new(zone).ok()?;
    // SAFETY: `name` is a string with its NUL, which the call only reads.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (number != 0).then_some(number)
}

/// The part of `left`, the remaining time, that the next of so many `candidates` may use. An
/// address that never answers must leave time for the addresses after it.
pub fn share(left: Duration, candidates: usize) -> Duration {
    left / u32::try_from(candidates).unwrap_or(u32::MAX).max(1)
}

/// Whether only processes of this machine can connect to `address`.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Cancel;

    fn of(text: &str) -> Result<Address> {
        Address::of(&Uri::parse(text).unwrap())
    }

    fn resolve(
        address: &Address,
        timeout: Duration,
        cancel: Option<Cancel>,
    ) -> Result<Vec<SocketAddr>> {
        let attempt = Attempt::new(cancel);
        attempt.block_on(address.resolve(timeout, &attempt))
    }

    /// Rule U1: names, IPv4 and IPv6 addresses, each with its port, are read and written back.
    #[test]
    fn hosts_and_ports_are_read_as_written() {
        for text in [
            "tcp://[::1]:4000",
            "tcp://10.0.0.7:0",
            "tcp://example:65535",
            "tcp://[fe80::1%25eth0]:4000",
        ] {
            assert_eq!(of(text).unwrap().to_string(), text);
        }
        let address = of("tcp://[::1]:4000").unwrap();
        let found = resolve(&address, Duration::ZERO, None).unwrap();
        assert_eq!(found, ["[::1]:4000".parse().unwrap()]);
        for text in ["nothing", "host:", ":1", "host:99999"] {
            let uri = Uri::new("tcp", text, crate::proto::Role::Both);
            let error = Address::of(&uri).unwrap_err();
            assert_eq!(error.status(), Status::InvalidUri, "{error}");
        }
    }

    /// The zone of a link-local address is an interface of this machine, by its name or number,
    /// however its `%` is written.
    #[test]
    fn zones_are_interfaces() {
        let found = |text: &str| resolve(&of(text).unwrap(), Duration::ZERO, None);
        let loopback = scope_of("lo").unwrap();
        let expected = format!("[fe80::1%{loopback}]:4000").parse().unwrap();
        for zone in [
            "%lo",
            "%25lo",
            &format!("%{loopback}"),
            &format!("%25{loopback}"),
        ] {
            for scheme in ["tcp", "ucx"] {
                let text = format!("{scheme}://[fe80::1{zone}]:4000");
                assert_eq!(found(&text).unwrap(), [expected], "{text}");
            }
        }
        let error = found("tcp://[fe80::1%nowhere7]:4000").unwrap_err();
        assert_eq!(error.status(), Status::Unreachable);
        assert!(error.text().contains("no interface `nowhere7`"), "{error}");
        // Without one it stands for nothing.
        let error = found("tcp://[fe80::1]:4000").unwrap_err();
        assert_eq!(error.status(), Status::InvalidUri);
        assert!(error.text().contains("[fe80::1%eth0]:4000"), "{error}");
    }

    /// The error for a name that does not exist says so.
    #[test]
    fn an_unknown_name_is_named() {
        // The domain `invalid` is reserved for this use.
        let address = of("tcp://no-such-host.invalid:4000").unwrap();
        let error = resolve(&address, Duration::from_secs(60), None).unwrap_err();
        assert_eq!(error.status(), Status::Unreachable, "{error}");
        assert!(error.text().contains("no-such-host.invalid"), "{error}");
    }

    /// `Attempt`: a look-up cannot be interrupted, so a cancelled attempt does not wait for its
    /// end.
    #[test]
    fn a_token_ends_a_look_up() {
        let address = of("tcp://no-such-host.invalid:4000").unwrap();
        let cancel = Cancel::new().unwrap();
        cancel.cancel();
        let found = resolve(&address, Duration::from_secs(60), Some(cancel));
        assert_eq!(found.unwrap_err().status(), Status::Cancelled);
    }

    /// `ConnectOptions::timeout`: each address gets its share of the time, and the last one gets
    /// the rest.
    #[test]
    fn time_is_shared_among_addresses() {
        let left = Duration::from_secs(9);
        assert_eq!(share(left, 3), Duration::from_secs(3));
        assert_eq!(share(left, 1), left);
        assert_eq!(share(left, 0), left);
        assert_eq!(share(Duration::MAX, 2), Duration::MAX / 2);
    }

    /// What only this machine can reach, IPv4 addresses written as IPv6 included.
    #[test]
    fn loopback_is_told_apart() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(is_loopback(&text.parse().unwrap()), local, "{text}");
        }
    }
}
