//! What other machines may use without encryption.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

use super::args::{Args, Remote};

/// Why other machines may not ask the Flight server; `None`: they may.
pub fn of_flight(args: &Args) -> Option<&'static str> {
    let allowed = args.tls.tls_cert.is_some() || args.allow_remote.contains(&Remote::Flight);
    (!allowed).then_some(
        "and nothing is encrypted: give a certificate (--tls-cert, --tls-key), or allow it \
         (--allow-remote)",
    )
}

/// Why other machines may not read the figures; `None`: they may.
pub fn of_metrics(args: &Args) -> Option<&'static str> {
    let allowed = args.allow_remote.contains(&Remote::Metrics);
    (!allowed).then_some(
        "and see the tickets and figures of this server: allow it (--allow-remote=metrics)",
    )
}

/// Warns if other machines can connect to `uri`, such as `tcp://HOST:PORT?…`, in plain text.
pub fn warn_if_open(uri: &str) {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return;
    };
    let target = rest.split(['?', '/']).next().unwrap_or(rest);
    let ip = target.parse::<SocketAddr>().map(|address| address.ip());
    // A name stands for some address beyond this machine, unless it is the usual one.
    if ip.map_or(!target.starts_with("localhost:"), |ip| !is_here(ip)) {
        warn!(
            "other machines can connect to {scheme}://{target}, and whoever is on the way can read \
             and change what passes: use it in a network that you trust{}",
            match scheme {
                "http" => "",
                _ => ", or use TLS (--tls-cert)",
            }
        );
    }
}

fn is_here(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
