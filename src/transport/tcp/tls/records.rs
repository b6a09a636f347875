//! The bytes of a connection behind its handshake: rustls seals, opens and keeps them.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustls::Connection;
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::transport::stream::{Outbox, Wire, send};
use crate::transport::tcp::tls::refusal;

/// Most bytes of data in one record, and what a record has beside them.
const MAX_PLAIN: u64 = 16 << 10;
const BESIDE: u64 = 22;
/// As much is sealed before it is written.
const SEALED_AT_ONCE: usize = 256 << 10;

/// The errno of a failure that [`Wire::explain`] describes.
const BROKEN: Errno = Errno::BADMSG;

/// A socket as rustls reads and writes it.
pub(super) struct Socket<'a>(pub(super) BorrowedFd<'a>);

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
        Ok(send(self.0, runs, None)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes what rustls has for the peer. Returns how many bytes, and whether that was all.
pub(super) fn push(tls: &mut Connection, socket: BorrowedFd<'_>) -> Result<(u64, bool), Errno> {
    let mut written = 0;
    while tls.wants_write() {
        match tls.write_tls(&mut Socket(socket)) {
            Ok(len) => written += len as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((written, false)),
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(BROKEN)),
        }
    }
    Ok((written, true))
}

/// One connection behind its handshake.
pub struct Records {
    tls: Connection,
    peer: String,
    /// Bytes sealed and not written, where there are any.
    unsent: u64,
    /// The peer sends nothing more.
    ended: bool,
    /// Why nothing more is sent or received.
    failed: Option<Error>,
}

impl Records {
    /// Goes on behind a handshake with `peer`.
    pub fn new(mut tls: Connection, peer: &str) -> Self {
        // As much is sealed at once as this side says.
        tls.set_buffer_limit(None);
        Self {
            tls,
            peer: peer.to_owned(),
            unsent: 0,
            ended: false,
            failed: None,
        }
    }

    fn fail(&mut self, error: &Error) -> Errno {
        let text = format!("the peer ({}) {}", self.peer, error.text());
        self.failed = Some(Error::new(error.status(), text));
        BROKEN
    }

    /// Returns whether all was written.
    fn push(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        let (written, all) = push(&mut self.tls, socket)?;
        self.unsent = if all {
            0
        } else {
            self.unsent.saturating_sub(written).max(1)
        };
        Ok(all)
    }

    /// Seals what is in `runs`, up to a bound. Returns how many bytes.
    fn seal(&mut self, runs: &[IoSlice<'_>]) -> Result<usize> {
        let mut room = SEALED_AT_ONCE;
        let mut some: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
        for run in runs {
            let len = run.len().min(room);
            some.push(IoSlice::new(&run[..len]));
            room -= len;
            if room == 0 {
                break;
            }
        }
        let sealed = self.tls.writer().write_vectored(&some);
        match sealed {
            Ok(len) if len > 0 || room == SEALED_AT_ONCE => {
                let data = len as u64;
                self.unsent += data + data.div_ceil(MAX_PLAIN) * BESIDE;
                Ok(len)
            }
            _ => Err(Error::disconnected(
                "is sent nothing more, for TLS has no key left",
            )),
        }
    }

    /// Copies data behind the first `at` bytes of `runs`. Returns how many bytes.
    fn give(&mut self, runs: &mut [IoSliceMut<'_>], mut at: usize) -> usize {
        let mut given = 0;
        for run in runs {
            let skipped = at.min(run.len());
            at -= skipped;
            let room = &mut run[skipped..];
            if room.is_empty() {
                continue;
            }
            // An error says that there is none now.
            let len = self.tls.reader().read(room).unwrap_or(0);
            given += len;
            if len < room.len() {
                break;
            }
        }
        given
    }

    /// Reads what the socket has, up to a record or so, and opens it.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.tls.read_tls(&mut Socket(socket)) {
            Ok(0) => self.ended = true,
            Ok(_) => match self.tls.process_new_packets() {
                Ok(state) => self.ended = state.peer_has_closed(),
                Err(error) => {
                    // The peer is told, if there is room.
                    let _ = self.push(socket);
                    self.fail(&refusal::explain(&error));
                }
            },
            Err(error) => {
                return Err(Errno::from_io_error(&error).unwrap_or_else(|| {
                    self.fail(&Error::disconnected(format!(
                        "broke a rule of TLS: {error}"
                    )))
                }));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Records {
    /// Renews the key of this side, and asks for the same of the other.
    pub fn renew_keys(&mut self) {
        self.tls.refresh_traffic_keys().unwrap();
    }
}

impl Wire for Records {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        let room: usize = runs.iter().map(|run| run.len()).sum();
        let mut given = 0;
        loop {
            given += self.give(runs, given);
            // The end and a failure are told when all before them has been given.
            let is_over = self.ended || self.failed.is_some();
            if given == room || (is_over && given > 0) {
                return Ok(given);
            }
            if self.failed.is_some() {
                return Err(BROKEN);
            }
            if self.ended {
                return Ok(0);
            }
            match self.fill(socket) {
                Ok(()) => {}
                Err(Errno::AGAIN) if given > 0 => return Ok(given),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn was_cut_short(&self) -> bool {
        self.ended || self.failed.is_some()
    }

    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        if self.failed.is_some() {
            return Err(BROKEN);
        }
        if !self.push(socket)? {
            return Ok(false);
        }
        let all = outbox.flush(|runs, _| {
            if !self.push(socket)? {
                return Err(Errno::AGAIN);
            }
            let taken = self.seal(runs).map_err(|error| self.fail(&error))?;
            self.push(socket)?;
            Ok(taken)
        })?;
        Ok(all && !self.tls.wants_write())
    }

    fn unsent(&self) -> u64 {
        self.unsent
    }

    fn end(&mut self, socket: BorrowedFd<'_>) {
        self.tls.send_close_notify();
        // A peer that does not read misses the message. The socket ends all the same.
        let _ = self.push(socket);
    }

    fn explain(&self, errno: Errno) -> Option<Error> {
        self.failed.clone().filter(|_| errno == BROKEN)
    }

    fn clear(&mut self) {
        while self.tls.wants_write() {
            let _ = self.tls.write_tls(&mut std::io::sink());
        }
        self.unsent = 0;
    }
}
