//! rustls' unbuffered API: the buffers of the socket are ours, and rustls keeps what it opens.

use std::io::IoSliceMut;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use dipc::transport::measured::{Outbox, TlsSide, Wire};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};

use crate::buffered::rooms;
use crate::{Configs, Wires};

/// As much is sealed before it is written.
const AT_ONCE: usize = 256 << 10;
/// Bytes of a record beside its data, and of a message of TLS itself.
const BESIDE: usize = 4 << 10;

struct Unbuffered<S> {
    tls: S,
    incoming: Box<[u8]>,
    unread: Range<usize>,
    /// Data for which there was no room.
    plain: Vec<u8>,
    outgoing: Box<[u8]>,
    unsent: Range<usize>,
}

pub fn shake(configs: &Configs, sockets: [&TcpStream; 2]) -> Result<Wires, String> {
    let name = ServerName::try_from("localhost").unwrap();
    let client = UnbufferedClientConnection::new(Arc::clone(&configs.client), name).unwrap();
    let server = UnbufferedServerConnection::new(Arc::clone(&configs.server)).unwrap();
    let (mut client, mut server) = (Unbuffered::new(client), Unbuffered::new(server));
    while !(client.is_done(sockets[0].as_fd()) & server.is_done(sockets[1].as_fd())) {}
    Ok((Box::new(client), Box::new(server)))
}

impl<S: TlsSide> Unbuffered<S> {
    fn new(tls: S) -> Self {
        Self {
            tls,
            incoming: vec![0; 256 << 10].into(),
            unread: 0..0,
            plain: Vec::new(),
            outgoing: vec![0; AT_ONCE + AT_ONCE / 64 + BESIDE].into(),
            unsent: 0..0,
        }
    }

    /// Turns the handshake. Returns whether it is over.
    fn is_done(&mut self, socket: BorrowedFd<'_>) -> bool {
        self.process(&mut [], 0);
        assert!(self.push(socket).unwrap());
        if self.tls.common().is_handshaking() {
            assert!(matches!(self.fill(socket), Ok(()) | Err(Errno::AGAIN)));
        }
        !self.tls.common().is_handshaking()
    }

    /// Looks at what came, as far as the first record with data. Returns how many bytes of it went
    /// behind the first `at` bytes of `runs`.
    fn process(&mut self, runs: &mut [IoSliceMut<'_>], at: usize) -> usize {
        loop {
            let status = self.tls.process(&mut self.incoming[self.unread.clone()]);
            let UnbufferedStatus {
                mut discard, state, ..
            } = status;
            let mut given = 0;
            let is_over = match state.unwrap() {
                ConnectionState::EncodeTlsData(mut data) => {
                    match data.encode(&mut self.outgoing[self.unsent.end..]) {
                        Ok(len) => self.unsent.end += len,
                        Err(EncodeError::AlreadyEncoded) => {}
                        Err(error) => panic!("{error}"),
                    }
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    false
                }
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.unwrap();
                        let mut data = record.payload;
                        for room in rooms(runs, at + given) {
                            let (now, later) = data.split_at(data.len().min(room.len()));
                            room[..now.len()].copy_from_slice(now);
                            given += now.len();
                            data = later;
                        }
                        self.plain.extend_from_slice(data);
                        discard += record.discard;
                    }
                    true
                }
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => true,
                state => panic!("{state:?}"),
            };
            self.unread.start += discard;
            if is_over {
                return given;
            }
        }
    }

    fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.incoming.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let read = rustix::io::read(socket, &mut self.incoming[self.unread.end..])?;
        assert!(read > 0, "the other end has gone");
        self.unread.end += read;
        Ok(())
    }

    fn push(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while !self.unsent.is_empty() {
            let bytes = &self.outgoing[self.unsent.clone()];
            match send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => self.unsent.start += sent,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        self.unsent = 0..0;
        Ok(true)
    }

    fn seal(&mut self, bytes: &[u8]) {
        match self.tls.process(&mut []).state.unwrap() {
            ConnectionState::WriteTraffic(mut traffic) => {
                let room = &mut self.outgoing[self.unsent.end..];
                self.unsent.end += traffic.encrypt(bytes, room).unwrap();
            }
            state => panic!("{state:?}"),
        }
    }
}

impl<S: TlsSide + Send> Wire for Unbuffered<S> {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let room: usize = runs.iter().map(|run| run.len()).sum();
        let mut given = 0;
        for room in rooms(runs, 0) {
            let len = room.len().min(self.plain.len());
            room[..len].copy_from_slice(&self.plain[..len]);
            self.plain.drain(..len);
            given += len;
        }
        while given < room {
            let came = self.process(runs, given);
            given += came;
            if came == 0 {
                match self.fill(socket) {
                    Ok(()) => {}
                    Err(Errno::AGAIN) if given > 0 => break,
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(given)
    }

    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        if !self.push(socket)? {
            return Ok(false);
        }
        let all = outbox.flush(|runs, _| {
            if !self.push(socket)? {
                return Err(Errno::AGAIN);
            }
            let mut taken = 0;
            for run in runs {
                let len = run.len().min(AT_ONCE - taken);
                self.seal(&run[..len]);
                taken += len;
                if taken == AT_ONCE {
                    break;
                }
            }
            self.push(socket)?;
            Ok(taken)
        })?;
        Ok(all && self.unsent.is_empty())
    }
}
