//! Both ends of a connection in one process, turned by hand.

use std::thread;
use std::time::{Duration, Instant};

use dipc::error::{Error, Result};
use dipc::proto::Uri;
use dipc::transport::{
    self, BodyPolicy, Connection, Incoming, LendingOptions, LinkOptions, Listener, Outgoing,
};

use crate::link_options;

/// Both ends of a connection.
pub struct Pair {
    _listener: Box<dyn Listener>,
    /// The end that accepted.
    pub server: Box<dyn Connection>,
    /// The end that connected.
    pub client: Box<dyn Connection>,
}

impl Pair {
    /// Connected by a bare address, as one libdipc peer to another (rule U5).
    pub fn new() -> Self {
        Self::by("")
    }

    /// Connected by an address with this query.
    pub fn by(query: &str) -> Self {
        Self::with(&[], query)
    }

    /// The same, with these settings at both ends.
    pub fn with(settings: &[(&str, &str)], query: &str) -> Self {
        let ucx = transport::by_scheme("ucx").unwrap();
        let mut link_options = link_options();
        for (key, value) in settings {
            link_options.settings.set(key, value).unwrap();
        }
        let options = LinkOptions {
            lending: LendingOptions {
                body: BodyPolicy::Lent,
                ..link_options.lending.clone()
            },
            ..link_options.clone()
        };
        let uri = Uri::parse("ucx://127.0.0.1:0").unwrap();
        let mut listener = ucx.listen(&uri, &options).unwrap();
        let uri = Uri::parse(&format!("{}{query}", listener.address())).unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| ucx.connect(&uri, &link_options).unwrap());
            let mut server = None;
            let start = Instant::now();
            while !client.is_finished() || server.is_none() {
                server = server.or_else(|| listener.accept().unwrap());
                if let Some(server) = &mut server {
                    assert!(server.receive_any().unwrap().is_none());
                }
                assert!(start.elapsed() < Duration::from_secs(30), "no connection");
            }
            let mut client = client.join().unwrap();
            client.begin_stream(0, 0);
            Self {
                _listener: listener,
                server: server.unwrap(),
                client,
            }
        })
    }

    /// One turn of both. The next message of the client's, or its end.
    pub fn turn(&mut self) -> Result<Option<Incoming>> {
        assert!(self.server.receive_any().unwrap().is_none());
        self.client.receive_any()
    }

    /// The next message of the client's, or its end.
    pub fn next(&mut self) -> Result<Incoming> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.turn()? {
                return Ok(message);
            }
            assert!(start.elapsed() < Duration::from_secs(30), "no message");
        }
    }

    /// The next thing is an error; its text.
    pub fn refusal(&mut self) -> Error {
        self.next().expect_err("must be refused")
    }
}

/// A metadata message without a header.
pub fn metadata(number: u8) -> Outgoing {
    Outgoing::Metadata {
        prefix: [1, number, 0, 0, 0],
        header: None,
    }
}
