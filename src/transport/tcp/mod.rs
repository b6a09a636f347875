//! TCP between machines: frames as over shm, and bodies always as bytes; with or without TLS below.
//!
//! `tcp:` has neither encryption nor authentication, so a listener that other machines can reach
//! must be allowed by an option. `docs/wire.md` has the bytes. Nothing here waits.

mod connection;
mod group;
mod listener;
mod scheme;
mod socket;
#[cfg(feature = "tls")]
pub(super) mod tls;
mod watched;

use std::os::fd::OwnedFd;
use std::time::Instant;

pub use scheme::Tcp;

use crate::error::{Error, Result};
use crate::proto::Uri;
use crate::transport::address::Address;
use crate::transport::connection::ConnectionEnd;
use crate::transport::features::{Join, MAX_SOCKETS};
use crate::transport::patience::{PATIENCE_SETTING, Patience};
use crate::transport::tcp::connection::TcpConnection;
use crate::transport::tcp::listener::TcpListener;
use crate::transport::tcp::socket::set_up;
use crate::transport::tcp::watched::{Connected, WatchedSocket};
use crate::transport::{
    Attempt, Connecting, Connection, LinkOptions, Listener, Outgoing, Transport, Trust,
};

impl Transport for Tcp {
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn takes_setting(&self, name: &str, value: &str) -> Result<bool> {
        let is_patience = name.strip_prefix("tcp.") == Some(PATIENCE_SETTING);
        if is_patience {
            Patience::parse(value, "tcp")?;
        }
        Ok(is_patience)
    }

    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        let address = Address::of(uri)?;
        Ok(Box::new(TcpListener::new(&address, self.trust, options)?))
    }

    fn listen_by(&self, socket: OwnedFd, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        Ok(Box::new(TcpListener::by(socket, *self, options)?))
    }

    fn connecting<'a>(
        &'a self,
        uri: &'a Uri,
        options: &'a LinkOptions,
        attempt: &'a Attempt,
    ) -> Connecting<'a> {
        Box::pin(connect(uri, self.trust, options, attempt))
    }
}

async fn connect(
    uri: &Uri,
    trust: Trust,
    options: &LinkOptions,
    attempt: &Attempt,
) -> Result<Box<dyn Connection>> {
    if options.connect.connections > MAX_SOCKETS {
        return Err(Error::invalid_argument(format!(
            "{} connections for one stream over {}: there can be {MAX_SOCKETS}",
            options.connect.connections, uri.scheme
        )));
    }
    // Rule E1: a baseline server does not know the message that joins sockets.
    let count = if uri.extension {
        options.connect.connections
    } else {
        1
    };
    let address = Address::of(uri)?;
    let mut sockets = connect_sockets(&address, trust, count.max(1), (options, attempt)).await?;
    if sockets.len() > 1 {
        join(&mut sockets)?;
        let joined = TcpConnection::joined(sockets).map_err(|(error, _)| error)?;
        return Ok(Box::new(joined));
    }
    match sockets.pop() {
        Some(socket) => Ok(Box::new(TcpConnection::new(socket, None))),
        None => Err(Error::invalid_argument(
            "a stream has one connection at least",
        )),
    }
}

/// Opens `count` sockets within `options.connect.timeout` in total.
async fn connect_sockets(
    address: &Address,
    trust: Trust,
    count: u16,
    (options, attempt): (&LinkOptions, &Attempt),
) -> Result<Vec<WatchedSocket>> {
    let start = Instant::now();
    let patience = Patience::of(&options.settings, "tcp")?;
    let timeout = options.connect.time();
    let mut candidates = address.resolve(timeout, attempt).await?;
    let mut sockets = Vec::with_capacity(count.into());
    for _ in 0..count {
        let connected = socket::connect(address, &candidates, (start, timeout), attempt);
        let (socket, peer) = connected.await?;
        set_up(&socket, ConnectionEnd::Client, patience)?;
        let connected = match trust.is_encrypted {
            #[cfg(feature = "tls")]
            true => tls::connect((socket, peer), address, start, options, attempt).await?,
            _ => Connected::plainly(socket, peer),
        };
        let unexpected = options.receiving.unexpected_bytes;
        sockets.push(WatchedSocket::new(connected, unexpected, patience));
        // The other sockets go to the same address.
        candidates = vec![peer];
    }
    Ok(sockets)
}

/// Tells the server that the sockets belong together.
fn join(sockets: &mut [WatchedSocket]) -> Result<()> {
    let mut group = [0; 16];
    rustix::rand::getrandom(&mut group[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::os("cannot draw the number of a group", errno))?;
    let count = u16::try_from(sockets.len()).unwrap_or(u16::MAX);
    for (index, socket) in (0..).zip(sockets) {
        let join = Join {
            group: u128::from_le_bytes(group),
            index,
            count,
        };
        let bytes = join.encode();
        let channel = &mut socket.channel;
        channel.queue(0, Outgoing::Control { bytes, fd: None })?;
        channel.flush()?;
    }
    Ok(())
}
