//! New connections without libdipc: by TCP alone, and with rustls on top, between two processes.
//!
//! What TLS adds to a connection here, any two programs pay: the handshake, its messages through
//! the sockets, and the time to wake the threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection, StreamOwned};

use super::ciphers::{ClientConfigs, server_config};
use super::sockets::{CONNECTIONS, TLS_CONNECTIONS, open};
use crate::bench::base::case::{Case, What};
use crate::bench::base::certificate;
use crate::bench::base::message::Parent;
use crate::bench::base::timing::{WARM_UP_STEPS, measure_times, nanoseconds};

/// Sends one message of `size` bytes back on each connection, within TLS if there is a
/// certificate. The port goes to `asked` first.
pub fn answer(mut asked: UnixStream, size: usize, folder: Option<&Path>) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen by tcp")?;
    let config = folder.map(|folder| server_config(Some(folder)));
    let config = config.transpose()?;
    asked.write_all(&listener.local_addr()?.port().to_be_bytes())?;
    for socket in listener.incoming() {
        let socket = socket.context("cannot accept a connection")?;
        socket.set_nodelay(true)?;
        // The client reports the early end of a connection.
        let _ = match &config {
            None => echo(socket, size),
            Some(config) => {
                let tls = ServerConnection::new(Arc::clone(config))?;
                echo(StreamOwned::new(tls, socket), size)
            }
        };
    }
    Ok(())
}

fn echo(mut stream: impl Read + Write, size: usize) -> Result<()> {
    let mut memory = vec![0; size];
    stream.read_exact(&mut memory)?;
    stream.write_all(&memory)?;
    stream.flush()?;
    // The client ends the connection.
    let _ = stream.read(&mut [0]);
    Ok(())
}

/// Measures connections, each from the first call up to the message's return.
pub fn run(case: &Case, size: usize, name: &str, parent: &Parent) -> Result<()> {
    let is_tls = case.what != What::TcpConnection;
    let mut asked = open(name, if is_tls { TLS_CONNECTIONS } else { CONNECTIONS })?;
    let mut port = [0; 2];
    asked.read_exact(&mut port)?;
    let mut connector = Connector {
        what: case.what,
        address: (Ipv4Addr::LOCALHOST, u16::from_be_bytes(port)).into(),
        configs: is_tls
            .then(|| ClientConfigs::new(case.certificate.as_deref()))
            .transpose()?,
        known: None,
        memory: vec![1; size],
    };
    for _ in 0..WARM_UP_STEPS {
        connector.time(case.interval)?;
    }
    measure_times(case, parent, || connector.time(case.interval))
}

struct Connector {
    what: What,
    address: SocketAddr,
    configs: Option<ClientConfigs>,
    /// The client settings that remember the earlier session.
    known: Option<Arc<ClientConfig>>,
    memory: Vec<u8>,
}

impl Connector {
    /// The time of one connection, in nanoseconds. Both processes sleep before.
    fn time(&mut self, interval: Duration) -> Result<u64> {
        let Some(configs) = &self.configs else {
            thread::sleep(interval);
            let start = Instant::now();
            self.ask(connect(self.address)?)?;
            return Ok(nanoseconds(start.elapsed()));
        };
        let known = self.known.take();
        let is_first = known.is_none();
        let config = known.map_or_else(|| configs.next(), Ok)?;
        let name = ServerName::try_from(certificate::NAME)?;
        thread::sleep(interval);
        let start = Instant::now();
        let socket = connect(self.address)?;
        let tls = ClientConnection::new(Arc::clone(&config), name)?;
        let stream = self.ask(StreamOwned::new(tls, socket))?;
        let took = nanoseconds(start.elapsed());
        let kind = stream.conn.handshake_kind();
        let wanted = match self.what {
            What::TlsResumption if !is_first => HandshakeKind::Resumed,
            _ => HandshakeKind::Full,
        };
        ensure!(kind == Some(wanted), "a handshake was {kind:?}");
        self.known = (self.what == What::TlsResumption).then_some(config);
        Ok(took)
    }

    /// Sends the message, and reads it again.
    fn ask<S: Read + Write>(&mut self, mut stream: S) -> Result<S> {
        stream.write_all(&self.memory)?;
        stream.flush()?;
        stream.read_exact(&mut self.memory)?;
        Ok(stream)
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}
