//! How the body of one message travels.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena;
use crate::arrow::EncodedMessage;
use crate::device::BufferRef;
use crate::driver::callbacks::HostOwner;
use crate::driver::produce::stage::stage;
use crate::driver::produce::{ProduceOptions, on_gpu};
use crate::driver::served::{Gathered, Hold, ServedLink};
use crate::error::Result;
use crate::proto::{Bytes, HeaderKind, OutBody};
use crate::transport::{
    BodyPolicy, COPIED_BYTES, Lease, OnGpu, Placement, ReadyNotice, RegionNotice,
};

/// A body on its way, and what the peer is to be told first.
pub(super) struct Placed {
    pub(super) body: OutBody<Gathered, Hold>,
    pub(super) announce: Vec<RegionNotice>,
    pub(super) ready: Option<ReadyNotice>,
}

impl Placed {
    /// One that says nothing more.
    pub(super) fn of(body: OutBody<Gathered, Hold>) -> Self {
        Self {
            body,
            announce: Vec::new(),
            ready: None,
        }
    }
}

/// A small body that is copied into a region, in bytes.
const SMALL_IN_REGION: u64 = 64 << 10;
/// A small one that is sent: copied twice by the system, and at the consumer out of no cache.
const SMALL_SENT: u64 = 8 << 10;

/// A message whose body is placed.
pub(super) struct Ready {
    kind: HeaderKind,
    header: Arc<[u8]>,
    figures: Figures,
    placed: Placed,
}

/// How much there is in a message.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    /// Rows of a record batch, values of a dictionary.
    pub(super) rows: usize,
    /// Bytes of the body.
    pub(super) body_len: u64,
}

impl Ready {
    pub(super) fn new(
        kind: HeaderKind,
        header: Arc<[u8]>,
        figures: Figures,
        placed: Placed,
    ) -> Self {
        Self {
            kind,
            header,
            figures,
            placed,
        }
    }

    /// How much there is in it.
    pub(super) fn figures(&self) -> Figures {
        self.figures
    }

    /// Whether its body is lent where the producer has it.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.placed.body, OutBody::Lent { in_place: true, .. })
    }

    /// Whether to copy or to send its body takes about as long as a system call, or less.
    pub(super) fn is_small(&self) -> bool {
        self.figures.body_len
            <= match self.placed.body {
                OutBody::Elsewhere | OutBody::Lent { in_place: true, .. } => u64::MAX,
                OutBody::Lent { .. } => SMALL_IN_REGION,
                _ => SMALL_SENT,
            }
    }

    /// Whether it may be sent after all that `room` says.
    pub(super) fn suits(&self, room: Room) -> bool {
        match room {
            Room::None => false,
            Room::InPlace => self.is_in_place(),
            Room::Any => true,
        }
    }

    /// Whether the client's credit lets it be sent now, where there was room [in place](Room::InPlace)
    /// alone and its body does not lie there (rule E5).
    pub(super) fn has_room(&self, link: &ServedLink) -> Result<bool> {
        link.has_room(Some(self.figures.body_len), false)
    }

    /// Sends it, and gives what it is.
    pub(super) fn send(self, link: &ServedLink) -> Result<HeaderKind> {
        let Self {
            kind,
            header,
            figures,
            placed,
        } = self;
        let body_len = figures.body_len;
        let Placed {
            body,
            announce,
            ready,
        } = placed;
        link.act(&announce, |sender| {
            if let Some(ready) = ready {
                sender.announce_ready(ready.event, &ready.handle)?;
            }
            match kind {
                HeaderKind::Dictionary => sender.send_dictionary(header, body_len, body),
                _ => sender.send_batch(header, body_len, body),
            }
        })??;
        Ok(kind)
    }

    /// It is not sent. Later leases count on what was announced with it.
    pub(super) fn give_up(self, link: &ServedLink) {
        let ready = self.placed.ready;
        let announced = link.act(&self.placed.announce, |sender| {
            ready.map(|ready| sender.announce_ready(ready.event, &ready.handle))
        });
        // A connection that is over has nobody to tell.
        drop(announced);
    }
}

/// Decides how the body of `message` travels; copies it where it is lent from a region. `owner`
/// gives what keeps the producer's memory alive, where that is used.
pub(super) fn place(
    options: &ProduceOptions,
    link: &ServedLink,
    message: &EncodedMessage,
    owner: impl FnOnce() -> HostOwner,
) -> Result<Placed> {
    let counters = &options.counters;
    let gpu = on_gpu_of(message);
    // Rule A4: compressed bodies are packed ones.
    let lender = (options.body != BodyPolicy::Packed && !message.compressed)
        .then(|| link.lender())
        .flatten();
    if let Some(lender) = lender
        && let Placement::Lent(lease) = lender.place(&message.buffers, gpu)?
    {
        let Lease {
            spans,
            announce,
            copied,
            borrowed,
            in_place,
            copied_on_device,
            staged,
            keep,
            ready,
            hold,
        } = lease;
        let count = |counter: &std::sync::atomic::AtomicU64, bytes| {
            counter.fetch_add(bytes, Ordering::Relaxed);
        };
        count(&counters.bytes_copied, copied);
        count(&counters.bytes_lent, borrowed);
        if gpu.is_some() {
            count(&counters.bytes_copied_on_device, copied_on_device);
            count(&counters.bytes_staged, staged);
        }
        let hold = match keep {
            Some(keep) => {
                keep.put(Box::new(owner()));
                Hold::new(hold, None)
            }
            None => Hold::new(hold, (borrowed > 0).then(owner)),
        };
        return Ok(Placed {
            body: OutBody::Lent {
                spans,
                hold,
                in_place,
            },
            announce,
            ready,
        });
    }
    let payload = match gpu {
        Some(gpu) => match on_gpu::gather(counters, link, message, gpu.stream)? {
            Some(body) => Gathered::Gpu(body),
            None => {
                let staged = stage(message, gpu.stream)?;
                counters
                    .bytes_staged
                    .fetch_add(message.body_len, Ordering::Relaxed);
                staged
            }
        },
        None if message.body_len <= COPIED_BYTES as u64 => {
            let bytes = &counters.bytes_copied;
            bytes.fetch_add(message.body_len, Ordering::Relaxed);
            Gathered::Copied(copy_small(message))
        }
        None => Gathered::Host {
            parts: gather(message),
            owner: Box::new(owner()),
        },
    };
    counters
        .bytes_sent
        .fetch_add(message.body_len, Ordering::Relaxed);
    Ok(Placed::of(OutBody::Packed {
        len: message.body_len,
        payload,
    }))
}

/// The bytes of a small body (rule D3).
fn copy_small(message: &EncodedMessage) -> Bytes {
    let offset = |offset| usize::try_from(offset).unwrap_or(COPIED_BYTES);
    let len = offset(message.body_len);
    let mut bytes = Bytes::with_capacity(len);
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        if buffer.len > 0 {
            bytes.resize(offset(span.offset), 0);
            // SAFETY: the message keeps its buffers alive, and a body handed over to be sent is not written to, as
            // Arrow's C data interface asks of a producer ("immutable").
            bytes.extend_from_slice(unsafe { buffer.as_slice() });
        }
    }
    bytes.resize(len, 0);
    bytes
}

/// Whether every buffer lies in memory that can be lent where it is.
pub(super) fn is_lendable(message: &EncodedMessage) -> bool {
    let mut buffers = message.buffers.iter().filter(|buffer| buffer.len > 0);
    buffers.all(|buffer| arena::find(buffer.data, buffer.len).is_some())
}

/// What the client's credit lets be sent now (rule E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing.
    None,
    /// A body that is lent in place. Whether it is, shows when it is placed.
    InPlace,
    /// Any body of that length.
    Any,
}

/// Whether the client's credit lets `message` be sent now (rule E5).
pub(super) fn room_for(
    options: &ProduceOptions,
    link: &ServedLink,
    message: &EncodedMessage,
) -> Result<Room> {
    if link.has_room(Some(message.body_len), false)? {
        return Ok(Room::Any);
    }
    if !link.has_room(Some(message.body_len), true)? {
        return Ok(Room::None);
    }
    // Looked at last, since it looks every buffer up.
    let lends = options.body != BodyPolicy::Packed && !message.compressed;
    let gpu = on_gpu_of(message);
    let in_place = lends
        && link
            .lender()
            .is_some_and(|lender| lender.lends_in_place(&message.buffers, gpu));
    Ok(if in_place { Room::InPlace } else { Room::None })
}

/// What a lender is to know of a body on a GPU.
fn on_gpu_of(message: &EncodedMessage) -> Option<OnGpu<'_>> {
    let gpu = message.owner.gpu();
    gpu.map(|(stream, ready)| OnGpu { stream, ready })
}

/// The runs of a packed body (rule D3): the buffers with zeros between them as the header's offsets
/// ask.
pub(crate) fn gather(message: &EncodedMessage) -> Vec<BufferRef> {
    static ZEROS: [u8; 64] = [0; 64];
    let mut parts = Vec::with_capacity(message.buffers.len() * 2);
    let mut at = 0;
    let pad_to = |parts: &mut Vec<BufferRef>, at: &mut u64, target: u64| {
        while *at < target {
            let len = usize::try_from(target - *at)
                .unwrap_or(ZEROS.len())
                .min(ZEROS.len());
            parts.push(BufferRef::of(&ZEROS[..len]));
            *at += len as u64;
        }
    };
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        if buffer.len > 0 {
            pad_to(&mut parts, &mut at, span.offset);
            parts.push(*buffer);
            at += buffer.len as u64;
        }
    }
    pad_to(&mut parts, &mut at, message.body_len);
    parts
}
