//! Options of a client and of its streams.

use std::sync::Arc;
use std::time::Duration;

use crate::arrow::Compression;
use crate::arrow::decode::{DecodeOptions, Level};
use crate::device::Target;
use crate::proto::{Credit, Headers, Selection};
use crate::transport::{BodyPolicy, Settings, TlsOptions};

/// Options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Accepts servers of every user, not only of this process's user.
    pub any_user: bool,
    /// How long an idle connection is kept for later streams.
    pub idle_timeout: Duration,
    /// How many idle connections are kept for each server.
    pub max_idle: usize,
    /// Most connections to one server, if it takes many streams on one connection; further streams
    /// share. `None`: each stream has a connection of its own, which is also so if no idle
    /// connection is kept.
    pub connections: Option<usize>,
    /// Settings that only one transport knows.
    pub settings: Settings,
    /// Certificates, for tls.
    pub tls: Arc<TlsOptions>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            any_user: false,
            idle_timeout: Duration::from_secs(60),
            max_idle: 8,
            connections: Some(16),
            settings: Settings::default(),
            tls: Arc::default(),
        }
    }
}

impl ClientOptions {
    /// How many connections to one server are kept.
    pub(super) fn most_idle(&self) -> usize {
        match self.idle_timeout {
            Duration::ZERO => 0,
            _ => self.max_idle,
        }
    }
}

/// Options of one stream.
#[derive(Debug, Clone)]
pub struct GetOptions {
    /// Time limit from connecting to the server's first answer: STREAM, ERROR, or PENDING if those
    /// take longer. The first answer of a baseline server is the schema, which has another limit.
    pub connect_timeout: Duration,
    /// How long the server may be silent while the client waits for it; `None`: for ever.
    pub stall_timeout: Option<Duration>,
    /// How long the whole stream may take, from the request on; `None`: for ever. The server's host
    /// sees it.
    pub deadline: Option<Duration>,
    /// Headers for the server's host.
    pub headers: Headers,
    /// The columns and rows that are wanted, of a get (rule Q12).
    pub selection: Selection,
    /// Sends `authorization` also where others can read the connection (rule Q7).
    pub send_secrets: bool,
    /// Follows a description to servers that could read and write this process's memory: those of
    /// ucx.
    pub trusted_network: bool,
    /// How many batches and bytes the server may send before the consumer takes them.
    pub window: Credit,
    /// Most bytes of copies that the server may lend at once. Beyond it bodies travel as bytes.
    pub lent_limit: u64,
    /// The device that the arrays come to.
    pub device: Target,
    /// Level of validation; `None`: `Structure` for a server of the same user, `Full` for others
    /// (rule A8).
    pub level: Option<Level>,
    /// Most memory of this process that one message may take in addition to its body; `None`: 16
    /// GiB from a server of the same user, [`DecodeOptions`]' default from others.
    pub message_limit: Option<u64>,
    /// How long a waiting consumer spins before it sleeps.
    pub spin: Duration,
    /// Connections for the stream, if the transport can split bodies.
    pub connections: u16,
    /// The stream shares a connection from the start: no thread of the caller's waits for it alone.
    pub shares: bool,
    /// Each message has a checksum over the transports where a network could change a message
    /// unseen: tcp and ucx (rule E8). With checksums, bodies travel as bytes from host memory.
    pub checksums: bool,
    /// Number of the schema message: 0, except in tests of the wrap-around (rule M4).
    pub first_seq: u32,
}

impl Default for GetOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            stall_timeout: None,
            deadline: None,
            headers: Headers::new(),
            selection: Selection::new(),
            send_secrets: false,
            trusted_network: false,
            window: Credit {
                batches: 16,
                bytes: 256 << 20,
            },
            lent_limit: 1 << 30,
            device: Target::Host,
            level: None,
            message_limit: None,
            spin: Duration::ZERO,
            connections: 1,
            shares: false,
            checksums: false,
            first_seq: 0,
        }
    }
}

/// Options of a stream that a client sends.
#[derive(Debug, Clone)]
pub struct PutOptions {
    /// Time limit from connecting to the server's first answer.
    pub connect_timeout: Duration,
    /// How long the server may neither take data nor send anything while the host waits for it;
    /// `None`: for ever.
    pub stall_timeout: Option<Duration>,
    /// How long the whole stream may take, from the request on; `None`: for ever. The server's host
    /// sees it.
    pub deadline: Option<Duration>,
    /// Headers for the server's host.
    pub headers: Headers,
    /// Sends `authorization` also where others can read the connection (rule Q7).
    pub send_secrets: bool,
    /// How bodies travel.
    pub body: BodyPolicy,
    /// Compression of bodies. Compressed bodies travel as bytes (rule A4).
    pub compression: Option<Compression>,
    /// Connections for the stream, if the transport can split bodies.
    pub connections: u16,
    /// As [`GetOptions::shares`].
    pub shares: bool,
    /// As [`GetOptions::checksums`].
    pub checksums: bool,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            stall_timeout: None,
            deadline: None,
            headers: Headers::new(),
            send_secrets: false,
            body: BodyPolicy::default(),
            compression: None,
            connections: 1,
            shares: false,
            checksums: false,
        }
    }
}

impl GetOptions {
    /// Options of the decoder, for a server of the same or another user.
    pub fn decode(&self, same_user: bool) -> DecodeOptions {
        DecodeOptions::of_peer(same_user, self.level, self.message_limit)
    }
}
