//! Connections with a checksum for each message (rule E8), for ways on which a network could change
//! bytes unnoticed.
//!
//! A client [asks](agree) before its first request, and a server [answers](offer). From then on
//! each message of both ends is four bytes longer, which only this module sees: a CRC-32C of the
//! message and of its place among the messages. A message that has changed ends the connection.
//! Data outside the messages is not covered, so bodies travel as bytes from host memory: nothing is
//! lent, and no body is sent from or to a GPU directly.
//! is lent, and no body stays on a GPU on its way.

use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::proto::{BodyKind, Bytes, ExpectedBody, body_of_tag, body_tag};
use crate::transport::features::{CHECKSUMS_KIND, is_checksums};
use crate::transport::{
    Attempt, BodyWays, Connection, Identity, Incoming, Outgoing, Payload, PeerRegions, RegionPool,
    RegionTable, Traffic,
};

/// Bytes of a checksum, which follows its message.
const SUM_BYTES: usize = size_of::<u32>();

/// A server's connection on which the client may ask for checksums, or a connection of either end
/// that has them.
struct WithChecksums {
    inner: Box<dyn Connection>,
    phase: Phase,
}

/// Whether messages have checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A server that has not read any message yet.
    Unasked,
    /// The client has begun without checksums.
    Off,
    On,
}

/// A server's connection, on which the client may ask for checksums.
pub(crate) fn offer(inner: Box<dyn Connection>) -> Box<dyn Connection> {
    if inner.identity().profile.trust.is_intact() {
        return inner;
    }
    let phase = Phase::Unasked;
    Box::new(WithChecksums { inner, phase })
}

/// A client's new connection. It has checksums from now on, unless it needs none.
///
/// # Errors
///
/// `Timeout` if the server has not answered by `by`, `Cancelled` by the token, `Protocol` if it
/// answers something else, and errors of the connection.
pub(crate) async fn agree(
    mut inner: Box<dyn Connection>,
    by: Instant,
    attempt: &Attempt,
) -> Result<Box<dyn Connection>> {
    if inner.identity().profile.trust.is_intact() {
        return Ok(inner);
    }
    let bytes = vec![CHECKSUMS_KIND];
    inner.queue(0, Outgoing::Control { bytes, fd: None })?;
    let descriptor = Arc::clone(&inner.identity().readiness.fd);
    loop {
        inner.flush()?;
        match inner.receive_any()? {
            Some(message) if is_question(&message)? => {
                let phase = Phase::On;
                return Ok(Box::new(WithChecksums { inner, phase }));
            }
            Some(_) => {
                return Err(Error::protocol(
                    "the server answers the question for checksums by another message",
                ));
            }
            None => {}
        }
        let has_come = attempt.ready(Arc::clone(&descriptor), PollFlags::IN, by);
        if !has_come.await? {
            return Err(Error::timeout(format!(
                "{} does not answer the question for checksums: it is stopped or busy, or its \
                 version of libdipc does not know them",
                inner.identity().peer
            )));
        }
    }
}

/// Whether the message asks for checksums, or agrees to them.
fn is_question(message: &Incoming) -> Result<bool> {
    let Incoming::Control { bytes, .. } = message else {
        return Ok(false);
    };
    is_checksums(bytes)
}

/// The checksum of a message. It first covers the class, the number of the stream, and the tag, so
/// that no message can pass for another.
#[derive(Debug, Clone, Copy)]
struct Sum(u32);

impl Sum {
    fn metadata(number: u32) -> Self {
        Self::of_class(0, number)
    }

    fn control(number: u32) -> Self {
        Self::of_class(1, number)
    }

    fn tagged(number: u32, tag: u64) -> Self {
        Self::of_class(2, number).with(&tag.to_le_bytes())
    }

    fn of_class(class: u8, number: u32) -> Self {
        match number {
            // The number 0 is left out, because peers that know only one stream leave it out too.
            0 => Self(0).with(&[class]),
            _ => Self(0).with(&[class]).with(&number.to_le_bytes()),
        }
    }

    fn with(self, bytes: &[u8]) -> Self {
        Self(crc32c::crc32c_append(self.0, bytes))
    }

    fn bytes(self) -> [u8; SUM_BYTES] {
        self.0.to_le_bytes()
    }

    /// Compares the checksum with the end of `message`. Returns the length of the rest.
    fn check(self, message: &[u8]) -> Result<usize> {
        let (rest, sum) = message.split_last_chunk().unwrap_or((&[], &[0; SUM_BYTES]));
        let is_whole = message.len() >= SUM_BYTES && self.with(rest).bytes() == *sum;
        is_whole.then_some(rest.len()).ok_or_else(|| {
            Error::protocol(
                "the checksum of a message does not fit it: the message was changed on its way, \
                 by a fault of a network card, a switch or memory",
            )
        })
    }
}

/// A message of the stream `number` with its checksum.
fn seal(number: u32, message: Outgoing) -> Result<Outgoing> {
    Ok(match message {
        Outgoing::Metadata { prefix, header } => {
            let header = header.as_deref().unwrap_or_default();
            let sum = Sum::metadata(number).with(&prefix).with(header).bytes();
            let header = Some([header, &sum].concat().into());
            Outgoing::Metadata { prefix, header }
        }
        Outgoing::Control { mut bytes, fd } => {
            let sum = Sum::control(number).with(&bytes).bytes();
            bytes.extend_from_slice(&sum);
            Outgoing::Control { bytes, fd }
        }
        Outgoing::Tagged { tag, payload } => Outgoing::Tagged {
            tag,
            payload: seal_payload(Sum::tagged(number, tag), payload),
        },
        Outgoing::GpuBody { .. } => {
            return Err(Error::unsupported(
                "checksums cover bodies in host memory only",
            ));
        }
    })
}

fn seal_payload(sum: Sum, payload: Payload) -> Payload {
    match payload {
        Payload::Bytes(mut bytes) => {
            let sum = sum.with(&bytes).bytes();
            bytes.extend_from_slice(&sum);
            Payload::Bytes(bytes)
        }
        Payload::Shared(shared) => {
            let sum = Box::new(sum.with(&shared).bytes());
            Payload::Gather {
                parts: vec![BufferRef::of(&shared), BufferRef::of(sum.as_slice())],
                owner: Box::new((shared, sum)),
            }
        }
        Payload::Gather { mut parts, owner } => {
            // SAFETY: the owner keeps the parts alive, and nobody writes to a body that was handed
            // over to be sent, as Arrow's C data interface asks of a producer ("immutable").
            let sum = parts
                .iter()
                .fold(sum, |sum, part| sum.with(unsafe { part.as_slice() }));
            let sum = Box::new(sum.bytes());
            parts.push(BufferRef::of(sum.as_slice()));
            Payload::Gather {
                parts,
                owner: Box::new((owner, sum)),
            }
        }
    }
}

/// A message of the stream `number` without its checksum, after a check of that.
fn open(number: u32, message: Incoming) -> Result<Incoming> {
    let truncated = |sum: Sum, mut bytes: Bytes| -> Result<Bytes> {
        bytes.truncate(sum.check(&bytes)?);
        Ok(bytes)
    };
    Ok(match message {
        Incoming::Metadata(bytes) => Incoming::Metadata(truncated(Sum::metadata(number), bytes)?),
        Incoming::Control { bytes, fd } => Incoming::Control {
            bytes: truncated(Sum::control(number), bytes)?,
            fd,
        },
        Incoming::Tagged { tag, bytes } => Incoming::Tagged {
            tag,
            bytes: truncated(Sum::tagged(number, tag), bytes)?,
        },
        Incoming::Body { seq, memory } => Incoming::Body {
            seq,
            memory: open_body(number, seq, memory)?,
        },
        Incoming::GpuBody { .. } => {
            return Err(Error::protocol("a body came to a GPU without its checksum"));
        }
    })
}

fn open_body(number: u32, seq: u32, mut memory: HostBuffer) -> Result<HostBuffer> {
    let sum = Sum::tagged(number, body_tag(seq, BodyKind::Packed));
    memory.truncate(sum.check(memory.as_slice())?);
    Ok(memory)
}

impl WithChecksums {
    fn is_on(&self) -> bool {
        self.phase == Phase::On
    }

    /// Whether a message is a body whose bytes the transport has thrown away: see
    /// [`Connection::forget_bodies`].
    fn is_thrown_away(&self, message: &Incoming) -> bool {
        let is_empty = matches!(message, Incoming::Body { memory, .. } if memory.is_empty());
        is_empty && !self.identity().profile.is_ordered
    }

    /// How many bytes a message of `len` bytes has on the wire.
    fn len_on_wire(&self, len: u64) -> u64 {
        let more = if self.is_on() { SUM_BYTES } else { 0 };
        len.saturating_add(more as u64)
    }

    /// Logs the end at both peers, because the user may look for the fault at either.
    fn warn(&self, error: &Error) {
        static LINES: Lines = Lines::new();
        let peer = &self.identity().peer;
        LINES.say(|more| tracing::warn!("the connection to {peer} ends: {error}{more}"));
    }

    /// Handles the first message that a server reads. `None`: it was the question, and it was
    /// answered.
    fn first(&mut self, message: Incoming) -> Result<Option<Incoming>> {
        self.phase = Phase::Off;
        if !is_question(&message)? {
            return Ok(Some(message));
        }
        let bytes = vec![CHECKSUMS_KIND];
        self.inner.send(Outgoing::Control { bytes, fd: None })?;
        self.phase = Phase::On;
        Ok(None)
    }
}

impl Connection for WithChecksums {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        let number = match &message {
            // If tags carry the numbers of streams, only those of bodies do. A request names its
            // stream itself.
            Outgoing::Tagged { tag, .. }
                if !self.identity().profile.is_ordered && body_of_tag(*tag).is_none() =>
            {
                0
            }
            _ => number,
        };
        let message = if self.is_on() {
            seal(number, message)?
        } else {
            message
        };
        self.inner.queue(number, message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.inner.flush()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }

    fn finish(&mut self) -> bool {
        self.inner.finish()
    }

    fn begin_stream(&mut self, number: u32, early_bytes: u64) {
        let early_bytes = self.len_on_wire(early_bytes);
        self.inner.begin_stream(number, early_bytes);
    }

    fn end_stream(&mut self) {
        self.inner.end_stream();
    }

    fn post_body(&mut self, number: u32, body: ExpectedBody) {
        let body = ExpectedBody {
            packed: self.len_on_wire(body.packed),
            list: self.len_on_wire(body.list),
            ..body
        };
        self.inner.post_body(number, body);
    }

    fn forget_bodies(&mut self, number: u32) {
        self.inner.forget_bodies(number);
    }

    fn waiting(&self) -> Option<u32> {
        self.inner.waiting()
    }

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        while let Some((number, message)) = self.inner.receive()? {
            match self.phase {
                Phase::Off => return Ok(Some((number, message))),
                Phase::On if self.is_thrown_away(&message) => {
                    return Ok(Some((number, message)));
                }
                Phase::On => {
                    return open(number, message)
                        .map(|message| Some((number, message)))
                        .inspect_err(|error| self.warn(error));
                }
                Phase::Unasked => {
                    if let Some(message) = self.first(message)? {
                        return Ok(Some((number, message)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn wake(&mut self) {
        self.inner.wake();
    }

    fn doze(&mut self) -> bool {
        self.inner.doze()
    }

    fn ways(&self, extension: bool) -> BodyWays {
        match self.is_on() {
            true => BodyWays::default(),
            false => self.inner.ways(extension),
        }
    }

    fn pool(&self) -> Option<Arc<RegionPool>> {
        self.inner.pool().filter(|_| !self.is_on())
    }

    fn regions(&mut self) -> Option<&mut dyn PeerRegions> {
        let is_on = self.is_on();
        self.inner.regions().filter(|_| !is_on)
    }

    fn table(&mut self) -> Option<&mut RegionTable> {
        let is_on = self.is_on();
        self.inner.table().filter(|_| !is_on)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.inner.close(lent)
    }
}

#[cfg(test)]
#[path = "checked_tests.rs"]
mod tests;
