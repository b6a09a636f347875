//! Records on their way in.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::{ContentType, ProtocolVersion};

use crate::error::{Error, Result, Status};
use crate::transport::stream::{keep_spare, take_spare};

/// Bytes before the content of a record: type, version and length.
const HEADER_BYTES: usize = 5;
/// Most bytes of data in one record.
pub(super) const MAX_PLAIN: usize = 16 << 10;
/// Most bytes of a record behind its header.
const MAX_SEALED: usize = MAX_PLAIN + 256;
/// Most bytes of messages of TLS itself that have not come whole.
const MAX_MESSAGE: usize = 68 << 10;

/// Opens records in the buffer that they were read into.
pub(super) struct Opening {
    pub(super) cipher: Box<dyn MessageDecrypter>,
    pub(super) number: u64,
    /// Bytes read; none where it is empty.
    pub(super) buffer: Box<[u8]>,
    /// Those not opened yet.
    pub(super) unread: Range<usize>,
    /// Data in there, opened and not yet given on.
    pub(super) plain: Range<usize>,
    /// Data that came with the handshake, to be given on first.
    pub(super) early: Vec<u8>,
    /// Messages of TLS itself that have not come whole.
    pub(super) messages: Vec<u8>,
    /// Records in a row without data.
    pub(super) idle: u32,
    /// The peer sends nothing more.
    pub(super) ended: bool,
}

impl Opening {
    /// Bytes that came before there were records to open them.
    pub(super) fn take_over(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        // A handshake may have read more than a buffer has.
        let mut buffer = take_spare();
        if bytes.len() > buffer.len() {
            buffer = vec![0; bytes.len()].into_boxed_slice();
        }
        buffer[..bytes.len()].copy_from_slice(&bytes);
        (self.buffer, self.unread) = (buffer, 0..bytes.len());
    }

    /// Copies data behind the first `at` bytes of `runs`. Returns how many bytes.
    pub(super) fn give(&mut self, runs: &mut [IoSliceMut<'_>], at: usize) -> usize {
        if !self.early.is_empty() {
            let len = copy(&self.early, runs, at);
            self.early.drain(..len);
            if !self.early.is_empty() {
                return len;
            }
            return len + self.give(runs, at + len);
        }
        let data = self.buffer.get(self.plain.clone()).unwrap_or_default();
        let len = copy(data, runs, at);
        self.plain.start += len;
        len
    }

    /// Reads what the socket has, behind what is unread.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        if self.buffer.is_empty() {
            self.buffer = take_spare();
        }
        // Less than a record: the buffer has room for the rest of it.
        self.buffer.copy_within(self.unread.clone(), 0);
        (self.unread, self.plain) = (0..self.unread.len(), 0..0);
        let read = rustix::io::read(socket, &mut self.buffer[self.unread.end..]);
        self.unread.end += *read.as_ref().unwrap_or(&0);
        if read.is_err() {
            self.rest();
        }
        read
    }

    /// Lets go of the memory, if there is nothing in it.
    pub(super) fn rest(&mut self) {
        if self.unread.is_empty() && self.plain.is_empty() && !self.buffer.is_empty() {
            keep_spare(std::mem::take(&mut self.buffer));
            (self.unread, self.plain) = (0..0, 0..0);
        }
    }

    /// Opens the next record, if it has come whole: its type, and where its content lies.
    pub(super) fn open(&mut self) -> Result<Option<(ContentType, Range<usize>)>> {
        let unread = self.buffer.get(self.unread.clone()).unwrap_or_default();
        let &[typ, _, _, high, low, ..] = unread else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if ContentType::from(typ) != ContentType::ApplicationData || len > MAX_SEALED {
            return Err(Error::disconnected(format!(
                "sent {len} bytes of type {typ} where a record of TLS has to be"
            )));
        }
        if unread.len() < HEADER_BYTES + len {
            return Ok(None);
        }
        let start = self.unread.start + HEADER_BYTES;
        self.unread.start = start + len;
        let sealed = InboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            &mut self.buffer[start..start + len],
        );
        let opened = self.cipher.decrypt(sealed, self.number);
        let opened = opened.map_err(|_| {
            Error::new(
                Status::Disconnected,
                "sent bytes that were changed on the way, or are not its own (TLS does not open \
                 them)",
            )
        })?;
        self.number += 1;
        // It lies at the start of the record.
        let plain = start..start + opened.payload.len();
        Ok(Some((opened.typ, plain)))
    }

    /// Takes the next message of TLS itself off those that came, with its header.
    pub(super) fn next_message(&mut self) -> Result<Option<Vec<u8>>> {
        let &[_, a, b, c, ..] = &*self.messages else {
            return Ok(None);
        };
        let len = 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        if len > MAX_MESSAGE {
            return Err(Error::disconnected(format!(
                "sent a message of TLS of {len} bytes behind the handshake"
            )));
        }
        if self.messages.len() < len {
            return Ok(None);
        }
        let rest = self.messages.split_off(len);
        Ok(Some(std::mem::replace(&mut self.messages, rest)))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        (self.unread, self.plain) = (0..0, 0..0);
        self.rest();
    }
}

/// Copies `bytes` behind the first `at` bytes of `runs`, as far as there is room.
fn copy(mut bytes: &[u8], runs: &mut [IoSliceMut<'_>], mut at: usize) -> usize {
    let len = bytes.len();
    for run in runs {
        let skipped = at.min(run.len());
        at -= skipped;
        let room = &mut run[skipped..];
        let (now, later) = bytes.split_at(bytes.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        bytes = later;
    }
    len - bytes.len()
}
