//! A reader of frames, which gets the bytes in slices.
//!
//! It trusts no length: it takes memory for a body only if the length was posted or is within a
//! limit. All other memory grows as the bytes arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashSet;

use crate::device::HostBuffer;
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, Bytes, ExpectedBody, body_tag};
use crate::transport::budget::{Charge, MemoryBudget};
use crate::transport::stream::header::{
    FrameClass, HEADER_BYTES, Head, MAX_METADATA_BYTES, MAX_TAGGED_BYTES, ensure_familiar,
};
use crate::transport::{BodyPlace, Incoming};

/// A message grows by at least this much as it arrives.
const GROWTH_BYTES: usize = 64 << 10;
/// A message of at most this many bytes that has arrived whole is made in one step.
const MAX_STEP_BYTES: usize = 4 << 10;

/// Most bodies that may come before they are posted. It is the number of messages that a receiver
/// takes out of order.
const MOST_EARLY_BODIES: usize = 1 << 16;

/// The first bytes of a TLS record with an alert.
const TLS_ALERT: [u8; 2] = [21, 3];

/// The part of a frame that comes next.
#[derive(Debug)]
enum FramePart {
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Bytes {
        number: u32,
        class: FrameClass,
        tag: u64,
        need: usize,
        bytes: Vec<u8>,
        /// The charge of a client's long message against the bound for all clients.
        _charge: Option<Charge>,
    },
    Body {
        place: BodyPlace,
        memory: HostBuffer,
        have: usize,
    },
    /// A body that is too large to be read before it is posted.
    Waiting {
        place: BodyPlace,
        kind: BodyKind,
        length: u64,
    },
    /// A body that nobody wants, because its stream is over.
    Discard { left: u64 },
}

impl Default for FramePart {
    fn default() -> Self {
        Self::Header {
            bytes: [0; HEADER_BYTES],
            have: 0,
        }
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    state: FramePart,
    /// The peer is a client.
    is_server: bool,
    /// The bound on partly received messages of all clients.
    partial: Option<Arc<MemoryBudget>>,
    /// The longest untagged message.
    metadata_bytes: u64,
    unexpected_bytes: u64,
    /// The same limit while a client sends a stream.
    early_bytes: u64,
    /// Posted bodies. Mostly the first of them comes next.
    posted: VecDeque<(BodyPlace, ExpectedBody)>,
    /// Bodies that came before they were posted.
    early: HashSet<BodyPlace>,
    /// Frames may come in two places, and a SWITCH says where the next one comes.
    pub switches: bool,
    /// The last frame was a SWITCH: the next one is in the other place.
    switched: bool,
    failed: Option<Error>,
}

impl FrameReader {
    /// A reader that takes bodies of up to `unexpected_bytes` before they are posted.
    pub fn new(unexpected_bytes: u64) -> Self {
        Self {
            metadata_bytes: MAX_METADATA_BYTES,
            unexpected_bytes,
            ..Self::default()
        }
    }

    /// The peer is a client. Outside its own streams it sends nothing longer than a request, and it
    /// may not be admitted yet. Long messages that have come only in part share `partial`.
    pub fn expect_requests(&mut self, partial: &Arc<MemoryBudget>) {
        self.is_server = true;
        self.partial = Some(Arc::clone(partial));
        self.expect_stream(None);
    }

    /// From now on the peer sends a stream, or no longer. `early_bytes`: at a server, bodies of up
    /// to this many bytes may be read before they are posted.
    pub fn expect_stream(&mut self, early_bytes: Option<u64>) {
        if self.is_server {
            self.early_bytes = early_bytes.unwrap_or(0);
            self.metadata_bytes = match early_bytes {
                Some(_) => MAX_METADATA_BYTES,
                None => MAX_TAGGED_BYTES,
            };
        }
    }

    /// Whether the next frame is in the other place than the last one. The call resets the answer.
    pub fn take_switch(&mut self) -> bool {
        std::mem::take(&mut self.switched)
    }

    /// Reads from the front of `input` until a frame is complete, and leaves the rest there.
    /// Returns the number of the frame's stream and the message. `None`: all was read, the reader
    /// [waits](Self::is_waiting), or a [SWITCH](Self::take_switch) came.
    /// Errors: `Protocol` if the bytes are not a frame, `OutOfMemory`; every later call returns the
    /// same error.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<(u32, Incoming)>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.step(input);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            // A frame that was read in part is useless.
            self.state = FramePart::default();
        }
        result
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<(u32, Incoming)>> {
        loop {
            match &mut self.state {
                FramePart::Header { bytes, have } => {
                    let taken = take(input, HEADER_BYTES - *have);
                    bytes[*have..*have + taken.len()].copy_from_slice(taken);
                    *have += taken.len();
                    if *have < HEADER_BYTES {
                        ensure_familiar(&bytes[..*have])?;
                        return Ok(None);
                    }
                    let header = *bytes;
                    let begun = self.begin(&header, input);
                    if !matches!(begun, Ok(None)) {
                        return begun;
                    }
                }
                FramePart::Bytes { need, bytes, .. } => {
                    let taken = take(input, *need - bytes.len());
                    append(bytes, taken, *need)?;
                    if bytes.len() < *need {
                        return Ok(None);
                    }
                    return Ok(self.finish());
                }
                FramePart::Body { memory, have, .. } => {
                    let taken = take(input, memory.len() - *have);
                    memory.as_mut_slice()[*have..*have + taken.len()].copy_from_slice(taken);
                    *have += taken.len();
                    if *have < memory.len() {
                        return Ok(None);
                    }
                    return Ok(self.finish());
                }
                FramePart::Waiting { .. } => return Ok(None),
                FramePart::Discard { left } => {
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    *left -= u64::try_from(take(input, most).len()).unwrap_or(*left);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = FramePart::default();
                }
            }
        }
    }

    /// Room for the rest of a body, so that the body need not pass through a buffer.
    pub fn body_space(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            FramePart::Body { memory, have, .. } => memory.as_mut_slice().get_mut(*have..),
            _ => None,
        }
    }

    /// Notes that `len` bytes were written to [`body_space`](Self::body_space).
    pub fn body_filled(&mut self, len: usize) {
        if let FramePart::Body { memory, have, .. } = &mut self.state {
            *have = have.saturating_add(len).min(memory.len());
        }
    }

    /// Whether nothing more is read until [`post`](Self::post) names the next body.
    pub fn is_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// See [`Connection::waiting`](crate::transport::Connection::waiting).
    pub fn waiting(&self) -> Option<u32> {
        match self.state {
            FramePart::Waiting { place, .. } => Some(place.number),
            _ => None,
        }
    }

    /// Whether a frame has begun but is not complete.
    pub fn is_mid_frame(&self) -> bool {
        !matches!(self.state, FramePart::Header { have: 0, .. })
    }

    /// Whether the bytes of a header so far may be a TLS alert, which a peer that expects TLS
    /// sends.
    pub fn may_be_tls(&self) -> bool {
        match &self.state {
            FramePart::Header { bytes, have } => *have > 2 && bytes[..2] == TLS_ALERT,
            _ => false,
        }
    }

    /// See [`Connection::post_body`](crate::transport::Connection::post_body).
    pub fn post(&mut self, number: u32, body: ExpectedBody) {
        let seq = body.seq;
        let place = BodyPlace { number, seq };
        // The body may have come before its header.
        if !self.early.is_empty() && self.early.remove(&place) {
            return;
        }
        self.posted.push_back((place, body));
        if let FramePart::Waiting {
            place: waiting,
            kind,
            length,
        } = self.state
            && waiting == place
            && self.failed.is_none()
            && let Err(error) = self.begin_body(waiting, kind, length, &mut &[][..])
        {
            self.failed = Some(error);
            self.state = FramePart::default();
        }
    }

    /// See [`Connection::forget_bodies`](crate::transport::Connection::forget_bodies).
    pub fn clear_posted(&mut self, number: u32) {
        self.posted.retain(|(place, _)| place.number != number);
        self.early.retain(|place| place.number != number);
        // This body will never be posted, and the frames after it must get through.
        if let FramePart::Waiting { place, length, .. } = self.state
            && place.number == number
        {
            self.state = FramePart::Discard { left: length };
        }
    }

    /// Takes a header. Returns the frame if `input` has all of it and it is small.
    fn begin(
        &mut self,
        header: &[u8; HEADER_BYTES],
        input: &mut &[u8],
    ) -> Result<Option<(u32, Incoming)>> {
        let (number, head) = Head::decode(header, self.metadata_bytes, self.switches)?;
        match head {
            Head::Body { seq, kind, length } => {
                self.begin_body(BodyPlace { number, seq }, kind, length, input)
            }
            Head::Bytes { class, tag, length } => {
                self.begin_bytes(number, class, tag, length, input)
            }
        }
    }

    fn begin_bytes(
        &mut self,
        number: u32,
        class: FrameClass,
        tag: u64,
        length: u64,
        input: &mut &[u8],
    ) -> Result<Option<(u32, Incoming)>> {
        let need = usize::try_from(length)
            .map_err(|_| Error::out_of_memory(format!("a message of {length} bytes")))?;
        if (1..=MAX_STEP_BYTES.min(input.len())).contains(&need) {
            self.state = FramePart::default();
            let message = message(class, tag, Bytes::from_slice(take(input, need)));
            return Ok(message.map(|message| (number, message)));
        }
        self.state = FramePart::Bytes {
            number,
            class,
            tag,
            need,
            bytes: Vec::new(),
            _charge: self.charge(need, length)?,
        };
        Ok(None)
    }

    /// Charges a long message until all of it has come. Its client may not be admitted yet.
    fn charge(&self, need: usize, length: u64) -> Result<Option<Charge>> {
        let expects_requests = self.metadata_bytes == MAX_TAGGED_BYTES;
        let partial = self.partial.as_ref();
        let Some(partial) = partial.filter(|_| expects_requests && need > GROWTH_BYTES) else {
            return Ok(None);
        };
        let charge = partial.charge(length).map_err(|_| {
            Error::new(
                Status::Busy,
                "other clients have sent parts of too many long requests; try again later",
            )
        });
        charge.map(Some)
    }

    fn begin_body(
        &mut self,
        place: BodyPlace,
        kind: BodyKind,
        length: u64,
        input: &mut &[u8],
    ) -> Result<Option<(u32, Incoming)>> {
        let is_list = kind == BodyKind::List;
        let BodyPlace { number, seq } = place;
        let known = self.posted.iter().position(|(posted, _)| *posted == place);
        if let Some((_, posted)) = known.and_then(|at| self.posted.remove(at)) {
            let (what, expected) = if is_list {
                ("an address list", posted.list)
            } else {
                ("a packed body", posted.packed)
            };
            // Rule D8: both lengths follow from the header.
            if length != expected {
                return Err(Error::protocol(format!(
                    "{what} of {length} bytes came for message {seq}, whose header asks for \
                     {expected}"
                )));
            }
        } else {
            let most = if is_list {
                MAX_TAGGED_BYTES
            } else {
                self.unexpected_bytes.max(self.early_bytes)
            };
            if length > most {
                self.state = FramePart::Waiting {
                    place,
                    kind,
                    length,
                };
                return Ok(None);
            }
            if self.early.len() >= MOST_EARLY_BODIES {
                return Err(Error::protocol(format!(
                    // Rule D5.
                    "more than {MOST_EARLY_BODIES} bodies came before their headers"
                )));
            }
            self.early.insert(place);
        }
        if is_list {
            return self.begin_bytes(
                number,
                FrameClass::Tagged,
                body_tag(seq, kind),
                length,
                input,
            );
        }
        let len = usize::try_from(length)
            .map_err(|_| Error::out_of_memory(format!("a body of {length} bytes")))?;
        self.state = FramePart::Body {
            place,
            memory: HostBuffer::to_fill(len)?,
            have: 0,
        };
        Ok(None)
    }

    fn finish(&mut self) -> Option<(u32, Incoming)> {
        match std::mem::take(&mut self.state) {
            FramePart::Bytes {
                class: FrameClass::Switch,
                ..
            } => {
                self.switched = true;
                None
            }
            FramePart::Bytes {
                number,
                class,
                tag,
                bytes,
                ..
            } => Some((number, message(class, tag, Bytes::from_vec(bytes))?)),
            FramePart::Body {
                place: BodyPlace { number, seq },
                memory,
                ..
            } => Some((number, Incoming::Body { seq, memory })),
            FramePart::Header { .. } | FramePart::Waiting { .. } | FramePart::Discard { .. } => {
                None
            }
        }
    }
}

/// A message other than a packed body; `None` for a SWITCH.
fn message(class: FrameClass, tag: u64, bytes: Bytes) -> Option<Incoming> {
    match class {
        FrameClass::Untagged => Some(Incoming::Metadata(bytes)),
        FrameClass::Tagged => Some(Incoming::Tagged { tag, bytes }),
        FrameClass::Control => Some(Incoming::Control { bytes, fd: None }),
        FrameClass::Switch => None,
    }
}

/// Takes up to `most` bytes from the front of `input`.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

/// Appends to a message of `need` bytes. Takes memory for the bytes that came, not for that length.
fn append(bytes: &mut Vec<u8>, more: &[u8], need: usize) -> Result<()> {
    let len = bytes.len() + more.len();
    if len > bytes.capacity() {
        let target = len
            .max(bytes.capacity().saturating_mul(2))
            .max(GROWTH_BYTES)
            .min(need);
        bytes
            .try_reserve_exact(target.max(len) - bytes.len())
            .map_err(|_| Error::out_of_memory(format!("a message of {need} bytes")))?;
    }
    bytes.extend_from_slice(more);
    Ok(())
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
