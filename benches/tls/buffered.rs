//! rustls' buffered API: it frames, seals, opens and keeps the bytes.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dipc::transport::measured::{Outbox, Wire};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::{Configs, Wires};

struct Buffered {
    tls: Connection,
    /// As much is sealed before it is written.
    at_once: usize,
    /// What a read of the socket gave; rustls takes a record of it at a time. Where it is empty
    /// rustls reads the socket itself, 4 to 18 KiB at once.
    ahead: Box<[u8]>,
    unread: Range<usize>,
}

/// A connection each, at the end of its handshake.
pub fn connections(configs: &Configs, sockets: [&TcpStream; 2]) -> [Connection; 2] {
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::clone(&configs.client), name).unwrap();
    let server = ServerConnection::new(Arc::clone(&configs.server)).unwrap();
    let mut ends: [Connection; 2] = [client.into(), server.into()];
    while ends
        .iter()
        .any(|end| end.is_handshaking() || end.wants_write())
    {
        for (end, mut socket) in ends.iter_mut().zip(sockets) {
            while end.wants_write() {
                end.write_tls(&mut socket).unwrap();
            }
            match end.read_tls(&mut socket) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                Ok(_) => drop(end.process_new_packets().unwrap()),
            }
        }
    }
    ends
}

pub fn shake(
    configs: &Configs,
    sockets: [&TcpStream; 2],
    ahead: usize,
    at_once: usize,
) -> Result<Wires, String> {
    let [client, server] = connections(configs, sockets).map(|mut tls| {
        tls.set_buffer_limit(None);
        Box::new(Buffered {
            tls,
            at_once,
            ahead: vec![0; ahead].into(),
            unread: 0..0,
        })
    });
    Ok((client, server))
}

struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(self.0, bytes)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, runs: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let nothing = &mut SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, runs, nothing, flags)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Cuts `runs` behind `most` bytes.
fn cut<'a>(runs: &'a [IoSlice<'_>], mut most: usize) -> Vec<IoSlice<'a>> {
    let mut some = Vec::new();
    for run in runs {
        some.push(IoSlice::new(&run[..run.len().min(most)]));
        most -= run.len().min(most);
        if most == 0 {
            break;
        }
    }
    some
}

/// What behind the first `at` bytes of `runs` has room.
pub fn rooms<'a>(
    runs: &'a mut [IoSliceMut<'_>],
    mut at: usize,
) -> impl Iterator<Item = &'a mut [u8]> {
    runs.iter_mut().filter_map(move |run| {
        let skipped = at.min(run.len());
        at -= skipped;
        Some(&mut run[skipped..]).filter(|room| !room.is_empty())
    })
}

impl Buffered {
    fn push(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Errno::from_io_error(&error).unwrap()),
            }
        }
        Ok(true)
    }

    fn give(&mut self, runs: &mut [IoSliceMut<'_>], at: usize) -> usize {
        let mut given = 0;
        for room in rooms(runs, at) {
            match self.tls.reader().read(room) {
                Ok(len) => given += len,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        given
    }

    fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let read = if self.ahead.is_empty() {
            self.tls.read_tls(&mut Socket(socket))
        } else {
            if self.unread.is_empty() {
                self.unread = 0..rustix::io::read(socket, &mut *self.ahead)?;
            }
            let read = self.tls.read_tls(&mut &self.ahead[self.unread.clone()]);
            self.unread.start += read.as_ref().unwrap();
            read
        };
        let read = read.map_err(|error| Errno::from_io_error(&error).unwrap())?;
        assert!(read > 0, "the other end has gone");
        self.tls.process_new_packets().unwrap();
        Ok(())
    }
}

impl Wire for Buffered {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let room: usize = runs.iter().map(|run| run.len()).sum();
        let mut given = 0;
        loop {
            given += self.give(runs, given);
            if given == room {
                return Ok(given);
            }
            match self.fill(socket) {
                Ok(()) => {}
                Err(Errno::AGAIN) if given > 0 => return Ok(given),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        if !self.push(socket)? {
            return Ok(false);
        }
        let all = outbox.flush(|runs, _| {
            if !self.push(socket)? {
                return Err(Errno::AGAIN);
            }
            let runs = cut(runs, self.at_once);
            let taken = self.tls.writer().write_vectored(&runs).unwrap();
            self.push(socket)?;
            Ok(taken)
        })?;
        Ok(all && !self.tls.wants_write())
    }
}
