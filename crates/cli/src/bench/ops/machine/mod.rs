//! The speed of the machine without libdipc, for comparison.

mod ciphers;
mod connecting;
mod copies;
mod memory;
mod sockets;

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result};

use crate::bench::base::case::{Case, What};
use crate::bench::base::message::{Parent, Ready, Usage};
use sockets::{CONNECTIONS, TLS_CONNECTIONS};

/// Serves the other end of the sockets until the command ends.
pub fn serve(case: &Case, parent: &Parent) -> Result<()> {
    let name = format!("dipc-bench-machine-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address).context("cannot listen at a socket")?;
    let size = size_of(case)?;
    let folder = case.certificate.clone();
    thread::Builder::new()
        .name("bench-peer".to_owned())
        .spawn(move || {
            for socket in listener.incoming() {
                // The client reports an early end of the connection.
                let _ = socket.map(|socket| answer(socket, size, folder.as_deref()));
            }
        })
        .context("cannot start a thread")?;
    parent.say(Ready {
        uri: name,
        ..Ready::default()
    })?;
    while parent.go()? {
        parent.say(Usage::now()?)?;
    }
    Ok(())
}

fn answer(mut socket: UnixStream, size: usize, folder: Option<&Path>) -> Result<()> {
    let mut wanted = [0];
    socket.read_exact(&mut wanted)?;
    if let [CONNECTIONS | TLS_CONNECTIONS] = wanted {
        let folder = folder.filter(|_| wanted == [TLS_CONNECTIONS]);
        return connecting::answer(socket, size, folder);
    }
    sockets::answer(socket, wanted, size)
}

/// Measures the case.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let size = size_of(case)?;
    match case.what {
        What::Memcpy => memory::memcpy(case, size, parent),
        What::ProcessVmReadv => memory::process_vm_readv(case, size, parent),
        What::Sum => memory::sums(case, size, parent),
        What::ArrowStream => memory::stream_sums(case, size, parent),
        What::SocketWrite => sockets::write(case, size, &ready.uri, parent),
        What::SocketRoundTrip => sockets::round_trip(case, size, &ready.uri, parent),
        What::Aes128Gcm => ciphers::seal(case, size, parent),
        What::TlsHandshake => ciphers::handshake(case, parent),
        What::TcpConnection | What::TlsConnection | What::TlsResumption => {
            connecting::run(case, size, &ready.uri, parent)
        }
        What::PinnedToDevice | What::DeviceToPinned | What::DeviceToDevice => {
            copies::run(case, size, parent)
        }
    }
}

fn size_of(case: &Case) -> Result<usize> {
    Ok(usize::try_from(case.batch_bytes())?)
}
