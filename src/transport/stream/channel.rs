//! One stream socket to one peer: frames out, frames in, and how each direction ends.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::transport::patience::silence_error;
use crate::transport::stream::buffer::ReadBuffer;
use crate::transport::stream::frame::FrameReader;
use crate::transport::stream::outbox::{Outbox, send};
use crate::transport::{Incoming, Outgoing, Traffic, Watched};

/// What [`Wire::read_aside`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingRead {
    /// This many bytes.
    Bytes(usize),
    /// Nothing, and this side still looks there.
    Awake,
    /// Nothing, and this side sleeps on the socket.
    Asleep,
}

/// How a transport sends its bytes over its sockets, and what it adds to a frame.
pub trait Wire: Send {
    /// Reads what the socket has into `runs`, without blocking; 0 means the end.
    fn read(&mut self, socket: BorrowedFd<'_>, runs: &mut [IoSliceMut<'_>])
    -> Result<usize, Errno>;

    /// Checks what came beside the bytes of the last read.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether the last read may have left something in the socket, although there was room for it.
    fn was_cut_short(&self) -> bool {
        false
    }

    /// Writes until everything for the socket is written, or the socket is full. Returns whether
    /// all is written.
    fn write(&mut self, socket: BorrowedFd<'_>, outbox: &mut Outbox) -> Result<bool, Errno> {
        outbox.flush(|runs, fd| send(socket, runs, fd))
    }

    /// Bytes taken from an outbox that the socket has not taken yet.
    fn unsent(&self) -> u64 {
        0
    }

    /// Nothing more will be written: tells the peer so, if the transport has a message for that.
    fn end(&mut self, socket: BorrowedFd<'_>) {
        let _ = socket;
    }

    /// The meaning of an error of `read` or `write` that is not the system's.
    fn explain(&self, errno: Errno) -> Option<Error> {
        let _ = errno;
        None
    }

    /// Attaches to a message what came beside its bytes, such as a file descriptor. `unread` counts
    /// the bytes after the message that were read and not yet parsed.
    fn join(&mut self, message: &mut Incoming, unread: usize) -> Result<()> {
        let _ = (message, unread);
        Ok(())
    }

    /// Sends what it can in another way, and commits the rest to the socket.
    fn divert(&mut self, outbox: &mut Outbox) -> Result<()> {
        outbox.commit();
        Ok(())
    }

    /// Reads into `bytes` what came in another way than through the socket.
    fn read_aside(&mut self, bytes: &mut [u8]) -> Result<RingRead> {
        let _ = bytes;
        Ok(RingRead::Asleep)
    }

    /// The connection is over: drops what came beside the bytes.
    fn clear(&mut self) {}
}

/// Most SWITCHes in a row. An honest peer needs three: there, back, and there again.
const MOST_SWITCHES: u32 = 16;

/// A connected socket.
pub struct Channel<W: ?Sized> {
    /// Connected, and non-blocking.
    pub socket: Arc<dyn Watched>,
    /// Who the peer is.
    pub peer: String,
    generation: Generation,
    /// How the bytes are sent and received, and what comes beside them.
    pub wire: Box<W>,
    /// Knows the bodies that were posted.
    pub reader: FrameReader,
    /// Bytes that were read and not yet parsed.
    buffer: ReadBuffer,
    /// The next frame comes in another way than through the socket.
    pub is_aside: bool,
    /// Bytes that came in that way and are not yet parsed.
    aside: ReadBuffer,
    /// The last read left the socket empty, so it is read again only after a wait.
    drained: bool,
    /// Bytes that were read from the socket.
    received: u64,
    outbox: Outbox,
    /// The last write found the socket full.
    pub is_full: bool,
    /// The peer was told that nothing more will be sent.
    finished: bool,
    /// Why nothing more can be received.
    over: Option<Error>,
    /// Whether `over` is an end that the peer made between two messages.
    pub has_ended: bool,
    /// Why nothing more can be sent.
    broken: Option<Error>,
}

impl<W: Wire + ?Sized> Channel<W> {
    /// Takes over a connected, non-blocking socket.
    pub fn new(
        socket: Arc<dyn Watched>,
        peer: String,
        unexpected_bytes: u64,
        wire: Box<W>,
    ) -> Self {
        Self {
            socket,
            peer,
            generation: Generation::now(),
            wire,
            reader: FrameReader::new(unexpected_bytes),
            buffer: ReadBuffer::default(),
            is_aside: false,
            aside: ReadBuffer::default(),
            drained: false,
            received: 0,
            outbox: Outbox::default(),
            is_full: false,
            finished: false,
            over: None,
            has_ended: false,
            broken: None,
        }
    }

    /// See [`Connection::forget_bodies`](crate::transport::Connection::forget_bodies).
    pub fn forget_bodies(&mut self, number: u32) {
        self.reader.clear_posted(number);
        // The next stream must begin with a read of the socket.
        self.drained = false;
    }

    /// See [`Connection::waiting`](crate::transport::Connection::waiting).
    pub fn waiting(&self) -> Option<u32> {
        self.reader.waiting()
    }

    /// See [`Connection::traffic`](crate::transport::Connection::traffic).
    pub fn traffic(&self) -> Traffic {
        let (outbox, unsent) = (self.outbox.traffic(), self.wire.unsent());
        Traffic {
            queued: outbox.queued + unsent,
            held: outbox.held + unsent,
            received: self.received,
        }
    }

    /// See [`Connection::queue`](crate::transport::Connection::queue).
    /// Errors: `Disconnected` and similar errors: nothing more can be sent.
    pub fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.outbox.push(number, message)
    }

    /// See [`Connection::flush`](crate::transport::Connection::flush).
    pub fn flush(&mut self) -> Result<bool> {
        if self.finished {
            return Ok(true);
        }
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if let Err(error) = self.wire.divert(&mut self.outbox) {
            self.break_off(error.clone());
            return Err(error);
        }
        let written = self.wire.write(self.socket.as_fd(), &mut self.outbox);
        let written = written.map_err(|errno| {
            let error = self.io_error("write to", errno);
            // Data that the peer sent before its end can still be received.
            self.break_off(error.clone());
            error
        })?;
        self.is_full = !written;
        Ok(written)
    }

    /// Once the queue is empty, tells the peer that nothing more will be sent. Returns whether it
    /// was empty.
    pub fn end_sending(&mut self) -> bool {
        if self.broken.is_some() {
            return true;
        }
        if self.traffic().queued > 0 {
            return false;
        }
        self.finished = true;
        self.wire.end(self.socket.as_fd());
        self.broken = Some(Error::disconnected("this side sends nothing more"));
        // If this fails, the connection is over, and the next read reports that.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        true
    }

    /// Ends sending.
    fn break_off(&mut self, error: Error) {
        self.broken = Some(error);
        self.outbox.clear();
        self.look_again();
    }

    /// Makes the next [`receive`](Self::receive) read the socket, even if nothing can be written.
    pub fn look_again(&mut self) {
        self.drained = false;
    }

    /// See [`Connection::receive`](crate::transport::Connection::receive).
    pub fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        let mut received = self.receive_frame();
        match &mut received {
            Ok(Some((_, message))) => {
                if let Err(error) = self.wire.join(message, self.buffer.unread().len()) {
                    received = Err(error);
                }
            }
            Ok(None) => {
                self.buffer.rest();
                self.aside.rest();
            }
            Err(_) => {}
        }
        if let Err(error) = &received {
            self.give_up(error.clone());
        }
        received
    }

    /// Ends both directions: nothing more can be received, and there is no peer to send to.
    pub fn give_up(&mut self, error: Error) {
        self.over.get_or_insert_with(|| error.clone());
        self.wire.clear();
        if self.broken.is_none() {
            self.break_off(error);
        }
    }

    fn receive_frame(&mut self) -> Result<Option<(u32, Incoming)>> {
        let mut switches = 0;
        loop {
            let next = self.next_frame();
            if !matches!(next, Ok(None)) {
                return next;
            }
            if self.reader.take_switch() {
                switches += 1;
                if switches > MOST_SWITCHES {
                    return Err(Error::protocol(format!(
                        "{switches} SWITCHes came without a message between them"
                    )));
                }
                self.is_aside = !self.is_aside;
                self.drained = false;
                continue;
            }
            if self.reader.is_waiting() {
                return Ok(None);
            }
            if self.is_aside {
                match self.wire.read_aside(self.aside.space())? {
                    RingRead::Bytes(len) => {
                        self.aside.filled(len);
                        continue;
                    }
                    RingRead::Awake => return Ok(None),
                    RingRead::Asleep => {}
                }
                if !self.buffer.unread().is_empty() {
                    return Err(Error::protocol(
                        "the peer sent through the socket what it had not announced in the ring",
                    ));
                }
            }
            // A caller that gets nothing waits for the descriptor, which announces what has come
            // since.
            if std::mem::take(&mut self.drained) {
                return Ok(None);
            }
            match self.fill() {
                Ok(0) => {
                    self.has_ended = !self.reader.is_mid_frame();
                    return Err(self.end_error());
                }
                Ok(_) => self.wire.check()?,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io_error("read from", errno)),
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<(u32, Incoming)>> {
        let buffer = match self.is_aside {
            true => &mut self.aside,
            false => &mut self.buffer,
        };
        let mut input = buffer.unread();
        let frame = self.reader.read(&mut input);
        let left = input.len();
        buffer.leave(left);
        frame
    }

    /// Reads what the socket has: the rest of a body into its memory, everything else into the
    /// buffer.
    fn fill(&mut self) -> Result<usize, Errno> {
        let mut empty = [];
        let body = self.reader.body_space().unwrap_or(&mut empty);
        let body_len = body.len();
        let mut runs = [IoSliceMut::new(body), IoSliceMut::new(self.buffer.space())];
        let room = body_len + runs[1].len();
        let read = self.wire.read(self.socket.as_fd(), &mut runs)?;
        self.drained = read < room && !self.wire.was_cut_short();
        let in_body = read.min(body_len);
        self.reader.body_filled(in_body);
        self.buffer.filled(read - in_body);
        self.received = self.received.wrapping_add(read as u64);
        Ok(read)
    }

    /// " in the middle of a message", if that is the case.
    fn place(&self) -> &'static str {
        if self.reader.is_mid_frame() {
            " in the middle of a message"
        } else {
            ""
        }
    }

    fn end_error(&self) -> Error {
        match &self.broken {
            // The system reports such an end only once, to the first call.
            Some(error) if error.os_error().is_some_and(is_silence) => error.clone(),
            _ if self.reader.may_be_tls() => Error::disconnected(format!(
                "the peer ({}) closed the connection with a word of TLS: its address begins with \
                 tls://",
                self.peer
            )),
            _ => Error::disconnected(format!(
                "the peer ({}) closed the connection{}",
                self.peer,
                self.place()
            )),
        }
    }

    /// The error of a failed system call. `doing` is "read from" or "write to".
    fn io_error(&self, doing: &str, errno: Errno) -> Error {
        if let Some(error) = self.wire.explain(errno) {
            return error;
        }
        match errno {
            Errno::CONNRESET => Error::disconnected(format!(
                "the peer ({}) reset the connection{}: its process has ended, or somebody between \
                 cut it",
                self.peer,
                self.place()
            )),
            Errno::TOOMANYREFS => Error::new(
                Status::OutOfResources,
                "too many descriptors of regions are on their way to peers that do not read them; \
                 raise the limit of open files (ulimit -n)",
            ),
            errno if is_silence(errno.raw_os_error()) => silence_error(&self.peer, errno),
            errno => Error::os(
                format_args!("cannot {doing} the peer ({})", self.peer),
                errno,
            ),
        }
    }

    /// See [`Connection::close`](crate::transport::Connection::close).
    pub fn close(&mut self) {
        self.outbox.clear();
        let is_ours = self.generation.is_same_process();
        if is_ours && self.broken.is_none() {
            self.wire.end(self.socket.as_fd());
        }
        self.give_up(Error::disconnected(
            "the connection was closed by this side",
        ));
        if is_ours {
            // A thread that sleeps on the descriptor holds it too, and must wake. A forked child
            // must not do this to the socket, which is its parent's too.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// Whether this `errno` of a connected socket means that the peer's machine did not answer.
fn is_silence(errno: i32) -> bool {
    [
        Errno::TIMEDOUT,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::NETDOWN,
    ]
    .iter()
    .any(|silent| silent.raw_os_error() == errno)
}
