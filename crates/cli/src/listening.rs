//! Listening, and the checks before a server reports that it is ready.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use dipc::{Server, Uri};
use tokio::runtime::{Builder, Runtime};

use crate::parse::UsageError;

/// Schemes of Dissociated IPC, also those without a transport in this build.
pub const SCHEMES: [&str; 4] = ["shm", "tls", "tcp", "ucx"];
/// Most servers that a draining server may name.
const MOST_REDIRECTS: usize = 16;
/// Most bytes of the URI of one.
const MOST_REDIRECT_BYTES: usize = 1024;
/// Descriptors that must be free: for the connections of one client, for regions lent to it, and
/// for the file of its table.
const DESCRIPTORS: usize = 16;

/// A runtime with threads of this name.
pub fn runtime(name: &str, threads: usize) -> io::Result<Runtime> {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).thread_name(name);
    runtime.enable_all().build()
}

/// The address of one of the server's listeners.
#[derive(Debug, PartialEq)]
enum Endpoint<'a> {
    Name(&'a str),
    Path(PathBuf),
    Port { at: SocketAddr, is_ucx: bool },
}

impl<'a> Endpoint<'a> {
    /// The address of a URI; `None` for port 0, and for a URI that listening refuses.
    fn of(uri: &'a str) -> Option<Self> {
        let (scheme, rest) = uri.split_once(':')?;
        let rest = rest.split('?').next().unwrap_or(rest);
        match scheme {
            "shm" if rest.starts_with('@') => Some(Self::Name(rest)),
            "shm" => {
                let path = Path::new(rest.strip_prefix("//").unwrap_or(rest));
                let folder = fs::canonicalize(path.parent()?).ok()?;
                Some(Self::Path(folder.join(path.file_name()?)))
            }
            "tcp" | "tls" | "ucx" => Self::port(rest.strip_prefix("//")?, scheme == "ucx"),
            _ => None,
        }
    }

    fn port(address: &str, is_ucx: bool) -> Option<Self> {
        let at = address.to_socket_addrs().ok()?.next()?;
        (at.port() > 0).then_some(Self::Port { at, is_ucx })
    }

    /// Whether the two addresses conflict.
    fn is_taken_by(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Port { at, is_ucx },
                Self::Port {
                    at: to,
                    is_ucx: to_ucx,
                },
            ) => {
                let every = at.ip().is_unspecified() || to.ip().is_unspecified();
                // UCX allows a listener with the same port at another address of the machine.
                let is_wide = every && at.is_ipv4() == to.is_ipv4() && !is_ucx && !to_ucx;
                at.port() == to.port() && (at.ip() == to.ip() || is_wide)
            }
            _ => self == other,
        }
    }
}

/// Checks that the addresses of `--listen` and `--flight` differ.
///
/// # Errors
///
/// Names the two addresses.
pub fn ensure_distinct(listen: &[String], flight: Option<&str>) -> Result<()> {
    let listen = listen.iter().map(|uri| (uri.as_str(), Endpoint::of(uri)));
    let flight = flight.map(|address| (address, Endpoint::port(address, false)));
    let mut before: Vec<(&str, Endpoint<'_>)> = Vec::new();
    for (text, place) in listen.chain(flight) {
        let Some(place) = place else {
            continue;
        };
        if let Some((first, _)) = before.iter().find(|(_, first)| place.is_taken_by(first)) {
            let text = match *first == text {
                true => format!("the address {text} is given twice; give it once"),
                false => format!("{first} and {text} are one address; give one of them"),
            };
            return Err(UsageError(text).into());
        }
        before.push((text, place));
    }
    Ok(())
}

/// Checks the URIs of other servers.
///
/// # Errors
///
/// Names the one at fault.
pub fn ensure_uris(uris: &[String]) -> Result<()> {
    if uris.len() > MOST_REDIRECTS {
        let text = format!(
            "--redirect names {} servers; clients hear of {MOST_REDIRECTS}",
            uris.len()
        );
        return Err(UsageError(text).into());
    }
    for uri in uris {
        if uri.len() > MOST_REDIRECT_BYTES {
            let text = format!("--redirect {uri:.40}...: clients read {MOST_REDIRECT_BYTES} bytes");
            return Err(UsageError(text).into());
        }
        let fault = match Uri::parse(uri) {
            Ok(uri) if SCHEMES.contains(&uri.scheme()) => continue,
            Ok(_) => format!("its scheme is none of {}", SCHEMES.join(", ")),
            Err(error) => error.to_string(),
        };
        return Err(UsageError(format!("--redirect {uri}: {fault}")).into());
    }
    Ok(())
}

/// Listens at `address` (`HOST:PORT`, port 0: any) for `whom`, without answering yet. `refusal`
/// says why other machines may not connect; `None`: they may.
pub fn bind(address: &str, whom: &str, refusal: Option<&str>) -> Result<TcpListener> {
    let doing = || format!("cannot listen for {whom} at {address}");
    if let Some((scheme, rest)) = address.split_once(':')
        && ["shm", "tcp", "tls", "ucx", "grpc"].contains(&scheme.split('+').next().unwrap_or(""))
    {
        bail!(
            "{}: it is not HOST:PORT{}",
            doing(),
            match scheme.starts_with("grpc") {
                true => format!(" ({})", rest.trim_start_matches('/')),
                false => "; addresses of libdipc go to --listen".to_owned(),
            }
        );
    }
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .context("it is not HOST:PORT, or there is no such host")
        .with_context(doing)?
        .collect();
    if let Some(refusal) = refusal
        && let Some(open) = found.iter().find(|found| !found.ip().is_loopback())
    {
        let ip = open.ip();
        bail!("{}: other machines can connect to {ip}, {refusal}", doing());
    }
    TcpListener::bind(found.as_slice()).with_context(doing)
}

/// Listens at `uri`; gives the whole URI. A failure names the address.
pub fn listen(server: &Server, uri: &str) -> Result<String> {
    if uri.starts_with("grpc") {
        bail!("{uri} is an address of Arrow Flight: give HOST:PORT to --flight");
    }
    let address = uri.split('?').next().unwrap_or(uri);
    server.listen(uri).map_err(|error| {
        let names = error.text().contains(address);
        let error = anyhow::Error::from(error);
        match names {
            true => error,
            false => error.context(format!("cannot listen at {address}")),
        }
    })
}

/// Checks that a client can be served: without descriptors, connections would wait in the listener
/// for ever.
///
/// # Errors
///
/// Names the limit.
pub fn ensure_descriptors() -> Result<()> {
    let mut open = Vec::new();
    while open.len() < DESCRIPTORS {
        match File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(error)
                if [libc::EMFILE, libc::ENFILE]
                    .map(Some)
                    .contains(&error.raw_os_error()) =>
            {
                bail!(
                    "{} file descriptors are left, and a client may need {DESCRIPTORS}: raise the \
                     limit of open files (ulimit -n)",
                    open.len()
                );
            }
            Err(error) => return Err(error).context("cannot open /dev/null"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(listen: &[&str], flight: Option<&str>) -> Result<()> {
        let listen: Vec<_> = listen.iter().map(|&uri| uri.to_owned()).collect();
        ensure_distinct(&listen, flight)
    }

    /// Promise of `serve`: an address that is given twice is an error, in any spelling.
    #[test]
    fn one_address_is_not_taken_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("shm:{}/s", folder.path().display());
        let same = format!("shm:{}/../{}/s?x=1", folder.path().display(), {
            folder.path().file_name().unwrap().to_str().unwrap()
        });
        for pair in [
            ["shm:@a", "shm:@a"],
            ["shm:@a", "shm:@a?x=1"],
            [&path, &same],
            ["tcp://127.0.0.1:4000", "tcp://127.0.0.1:4000"],
            ["tcp://127.0.0.1:4000", "ucx://127.0.0.1:4000"],
            ["tcp://0.0.0.0:4000", "tcp://127.0.0.1:4000"],
            ["tcp://[::1]:4000", "tcp://[0:0::1]:4000"],
        ] {
            let error = outcome(&pair, None).unwrap_err();
            assert!(error.is::<UsageError>(), "{pair:?}");
            assert!(error.to_string().contains(pair[0]), "{error}");
        }
        let error = outcome(&["tcp://127.0.0.1:4000"], Some("127.0.0.1:4000"));
        assert!(error.unwrap_err().to_string().contains("one address"));
        for pair in [
            ["shm:@a", "shm:@b"],
            ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"],
            ["tcp://127.0.0.1:4000", "tcp://127.0.0.1:4001"],
            ["tcp://127.0.0.1:4000", "tcp://127.0.0.2:4000"],
            ["tcp://127.0.0.1:4000", "tcp://[::1]:4000"],
            ["nothing", "nothing"],
        ] {
            outcome(&pair, Some("127.0.0.1:5000")).unwrap();
        }
    }
}
