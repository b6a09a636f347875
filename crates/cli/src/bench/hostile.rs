//! Hostile connections during a measurement: what they cost an honest client of the same server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dipc::Uri;

use super::base::streams::TABLE;

/// How often each connection is looked at: it is made again if the server has closed it, and
/// sends its next byte where it sends slowly.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest message before a request is known (docs/wire.md).
const LONGEST: usize = 1 << 20;

/// What a hostile connection does.
#[derive(Clone, Copy)]
enum Kind {
    /// Says nothing.
    Silent,
    /// Sends a frame byte by byte.
    Slow,
    /// Sends half of the longest message.
    Half,
    /// Asks for a table without credit.
    NoCredit,
    /// Brings one socket of a group that never comes together.
    Join,
}

const KINDS: [Kind; 5] = [
    Kind::Silent,
    Kind::Slow,
    Kind::Half,
    Kind::NoCredit,
    Kind::Join,
];

/// Hostile connections, until the drop.
pub struct Hostile {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hostile {
    /// Makes `count` connections to the server of `uri`, as many of each kind, and keeps them up.
    pub fn start(uri: &str, count: u32) -> Result<Self> {
        let server = Server::of(uri)?;
        let mut connections = Vec::new();
        for (number, kind) in (0..count).zip(KINDS.into_iter().cycle()) {
            connections.push(Connection::new(&server, kind, number)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("hostile".to_owned())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    for connection in &mut connections {
                        connection.look(&server);
                    }
                    thread::sleep(PAUSE);
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

struct Server {
    address: String,
    /// The tag of requests.
    want: u64,
}

impl Server {
    fn of(text: &str) -> Result<Self> {
        let uri = Uri::parse(text)?;
        if uri.scheme() != "tcp" {
            bail!("--hostile is for tcp");
        }
        let mut parts = text.split(['?', '&']);
        let want = parts.find_map(|part| part.strip_prefix("dipc_want="));
        let want = want.context("the server's URI has no tag of requests")?;
        Ok(Self {
            address: uri.address().to_owned(),
            want: want.parse()?,
        })
    }
}

struct Connection {
    socket: TcpStream,
    kind: Kind,
    number: u32,
}

impl Connection {
    fn new(server: &Server, kind: Kind, number: u32) -> Result<Self> {
        let socket = TcpStream::connect(&server.address)
            .with_context(|| format!("hostile connection {number} is refused"))?;
        let mut made = Self {
            socket,
            kind,
            number,
        };
        let begins = made.first_words(server.want);
        made.socket.write_all(&begins)?;
        made.socket.set_nonblocking(true)?;
        Ok(made)
    }

    fn first_words(&self, want: u64) -> Vec<u8> {
        match self.kind {
            Kind::Silent => Vec::new(),
            Kind::Slow => header(0, LONGEST, 0)[..20].to_vec(),
            Kind::Half => {
                let mut words = header(0, LONGEST, 0);
                words.resize(LONGEST / 2, 1);
                words
            }
            Kind::NoCredit => {
                let request = request(self.number);
                [header(1, request.len(), want), request].concat()
            }
            Kind::Join => {
                let mut words = header(2, 21, 0);
                words.push(8);
                words.extend_from_slice(&u128::from(self.number).to_le_bytes());
                words.extend_from_slice(&[0, 0, 2, 0]);
                words
            }
        }
    }

    /// Reads what the server has said, goes on, and comes again after the end.
    fn look(&mut self, server: &Server) {
        let over = match self.socket.read(&mut [0; 4096]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let sent = match self.kind {
            Kind::Slow if !over => self.socket.write(&[0]).map(drop),
            _ => Ok(()),
        };
        if (over || sent.is_err())
            && let Ok(next) = Self::new(server, self.kind, self.number)
        {
            *self = next;
        }
    }
}

/// A request for the table without credit (docs/wire.md).
fn request(stream: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The length of the fields before the ticket, and the versions from 1 to 3.
    for short in [54_u16, 1, 3] {
        bytes.extend_from_slice(&short.to_le_bytes());
    }
    // The features in-place, return and headers; no batches, no bytes; no limit of lent copies.
    for long in [19, 0, 0, u64::MAX] {
        bytes.extend_from_slice(&long.to_le_bytes());
    }
    bytes.extend_from_slice(&u128::from(stream).to_le_bytes());
    bytes.extend_from_slice(TABLE);
    bytes
}

/// The header of a frame (docs/wire.md).
fn header(class: u8, length: usize, tag: u64) -> Vec<u8> {
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&[class, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}
