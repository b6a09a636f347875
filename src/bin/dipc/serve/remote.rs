//! What other machines may use without encryption.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

/// What `--allow-remote` allows.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Remote {
    Tcp,
    Flight,
    Metrics,
}

/// Warns where other machines can connect to `uri`, as `tcp://HOST:PORT?…`, in plain text.
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
