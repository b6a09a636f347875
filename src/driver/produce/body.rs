//! How the body of one message travels.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena;
use crate::arrow::EncodedMessage;
use crate::device::BufferRef;
use crate::driver::callbacks::HostOwner;
use crate::driver::produce::stage::stage;
use crate::driver::produce::{LIGHT_BODY_BYTES, ProduceOptions, on_gpu};
use crate::driver::serve::{Effects, Gathered, Hold, ServerEnd, ServerLink};
use crate::error::Result;
use crate::proto::{Bytes, HeaderKind, OutBody, Sender};
use crate::transport::{
    BodyPolicy, COPIED_BYTES, Lease, Lender, OnGpu, Placement, ReadyNotice, RegionNotice,
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

    /// Whether to make its body took about as long as a system call, or less.
    pub(super) fn is_small(&self) -> bool {
        matches!(self.placed.body, OutBody::Elsewhere)
            || self.is_in_place()
            || self.figures.body_len <= LIGHT_BODY_BYTES
    }

    /// Whether it may be sent after all that `room` says.
    pub(super) fn suits(&self, room: BodyRoom) -> bool {
        match room {
            BodyRoom::None => false,
            BodyRoom::InPlace => self.is_in_place(),
            BodyRoom::Any => true,
        }
    }

    /// Queues it, and gives what it is.
    pub(super) fn queue(self, served: &mut ServerEnd, effects: &mut Effects) -> Result<HeaderKind> {
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
        let send = |sender: &mut Sender<Gathered, Hold>| {
            if let Some(ready) = ready {
                sender.announce_ready(ready.event, &ready.handle)?;
            }
            match kind {
                HeaderKind::Dictionary => sender.send_dictionary(header, body_len, body),
                _ => sender.send_batch(header, body_len, body),
            }
        };
        served.queue(&announce, send, effects)??;
        Ok(kind)
    }

    /// It is not sent. Later leases count on what was announced with it.
    pub(super) fn give_up(self, served: &mut ServerEnd, effects: &mut Effects) {
        let ready = self.placed.ready;
        let announce = |sender: &mut Sender<Gathered, Hold>| {
            ready.map(|ready| sender.announce_ready(ready.event, &ready.handle))
        };
        // A connection that is over has nobody to tell.
        let _ = served.queue(&self.placed.announce, announce, effects);
    }
}

/// How the bodies of one stream may travel over one connection.
#[derive(Clone)]
pub(super) struct Carrier {
    /// Lends the memory of bodies, where the transport does and the peer understands that.
    pub(super) lender: Option<Arc<dyn Lender>>,
    /// Bodies on a GPU are sent from there.
    pub(super) sends_gpu: bool,
}

impl Carrier {
    /// That of the connection now: what it lends depends on the request.
    pub(super) fn of(link: &ServerLink) -> Self {
        Self {
            lender: link.lender(),
            sends_gpu: link.profile().sends_gpu,
        }
    }

    /// Who lends `message`'s body. Rule A4: compressed bodies are packed ones.
    fn lender_of(&self, policy: BodyPolicy, message: &EncodedMessage) -> Option<&dyn Lender> {
        let lends = policy != BodyPolicy::Packed && !message.compressed;
        self.lender.as_deref().filter(|_| lends)
    }
}

/// Decides how the body of `message` travels; copies it where it is lent from a region. `owner`
/// gives what keeps the producer's memory alive, where that is used.
pub(super) fn place(
    options: &ProduceOptions,
    carrier: &Carrier,
    message: &EncodedMessage,
    owner: impl FnOnce() -> HostOwner,
) -> Result<Placed> {
    let counters = &options.counters;
    let gpu = on_gpu_of(message);
    if let Some(lender) = carrier.lender_of(options.body, message)
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
        Some(gpu) => match on_gpu::gather(counters, carrier, message, gpu.stream)? {
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
            // SAFETY: the message keeps its buffers alive, and a body handed over to be sent is not
            // written to, as Arrow's C data interface asks of a producer ("immutable").
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

/// Bodies that the client's credit lets be sent now (rule E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRoom {
    /// None.
    None,
    /// A body that is lent in place. Whether it is, shows when it is placed.
    InPlace,
    /// Any body of that length.
    Any,
}

/// Whether the client's credit lets `message` be sent now (rule E5). `admits`: whether it takes a
/// body of so many bytes, which is lent in place or not.
pub(super) fn room_for(
    options: &ProduceOptions,
    admits: impl Fn(u64, bool) -> Result<bool>,
    carrier: &Carrier,
    message: &EncodedMessage,
) -> Result<BodyRoom> {
    if admits(message.body_len, false)? {
        return Ok(BodyRoom::Any);
    }
    if !admits(message.body_len, true)? {
        return Ok(BodyRoom::None);
    }
    // Looked at last, since it looks every buffer up.
    let lender = carrier.lender_of(options.body, message);
    let in_place = lender.is_some_and(|it| it.lends_in_place(&message.buffers, on_gpu_of(message)));
    Ok(if in_place {
        BodyRoom::InPlace
    } else {
        BodyRoom::None
    })
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
