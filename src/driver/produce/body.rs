//! Decides how the body of one message travels; only [`Placer::decide`] does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::on_gpu;
use super::options::{Counting, ProduceOptions};
use crate::arena;
use crate::arrow::EncodedMessage;
use crate::device::{BufferRef, DeviceKind};
use crate::driver::callbacks::HostOwner;
use crate::driver::end::{End, EndEffects, Gathered, LentHold, OutSender, SendRoom, StreamLink};
use crate::driver::figures::{Counters, nanos};
use crate::driver::telling::Account;
use crate::error::Result;
use crate::proto::{Bytes, HeaderKind, OutBody, Role, Timestamp};
use crate::transport::{
    BodyPolicy, BodyWays, COPIED_BYTES, OnGpu, Payload, Placement, ReadyNotice,
};

/// A message whose body has its way over this connection, or travels over another one.
pub(super) struct Placed {
    kind: HeaderKind,
    header: Arc<[u8]>,
    rows: usize,
    body_len: u64,
    /// When the producer gave the message, if it is timed.
    given: Option<Timestamp>,
    body: OutBody<Gathered, LentHold>,
    ready: Option<ReadyNotice>,
}

impl Placed {
    fn is_in_place(&self) -> bool {
        matches!(self.body, OutBody::Lent { in_place: true, .. })
    }

    fn queue(self, number: u32, served: &mut End, effects: &mut EndEffects) -> Result<()> {
        let send = |sender: &mut OutSender| {
            if let Some(ready) = self.ready {
                sender.announce_ready(ready.event, &ready.handle)?;
            }
            match self.kind {
                HeaderKind::Dictionary => {
                    sender.send_dictionary(self.header, self.body_len, self.body)
                }
                _ => sender.send_batch(self.header, self.body_len, self.body),
            }
        };
        served.queue(number, send, effects)?
    }
}

/// Places the bodies of one stream for one connection.
pub(super) struct Placer {
    pub(super) role: Role,
    /// Number of the stream on its connection.
    pub(super) number: u32,
    pub(super) options: ProduceOptions,
    counters: Arc<Counters>,
    /// When the request came, until its first batch is sent.
    asked: Option<Timestamp>,
    ways: BodyWays,
    /// A message that was placed but not sent: there may be no room for it yet (rule E5).
    waiting: Option<Placed>,
}

impl Placer {
    pub(super) fn new(role: Role, options: &ProduceOptions) -> Self {
        Self {
            role,
            number: 0,
            options: options.clone(),
            counters: Arc::clone(options.counting.counters()),
            asked: match &options.counting {
                Counting::Request(record) => Some(record.at()),
                Counting::Alone(_) => None,
            },
            ways: BodyWays::default(),
            waiting: None,
        }
    }

    /// Finds out how bodies of `stream` may travel, which depends on the request.
    pub(super) fn join(&mut self, stream: &StreamLink) {
        self.number = stream.number();
        self.ways = stream.ways();
    }

    /// The device on which bodies of a stream lie while they travel over the connection of
    /// `served`, if the producer's bodies are on `device_type`.
    pub(super) fn device_in_transit(&self, device_type: i32, served: &End) -> i32 {
        let kind = DeviceKind(device_type);
        match kind {
            DeviceKind::CUDA | DeviceKind::CUDA_MANAGED
                if served.lends_on_gpus() && self.options.body != BodyPolicy::Packed =>
            {
                DeviceKind::CUDA.0
            }
            _ => DeviceKind::CPU.0,
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Places `message`, if the client's credit has room for it (rule E5). Returns the bytes to be
    /// copied or sent, which are 0 for a body lent in place; `None`: there is no room. `owner`
    /// keeps the producer's memory alive. `given` is the time when the producer gave the message,
    /// if it is timed.
    pub(super) fn place(
        &mut self,
        room: &SendRoom,
        (message, given): (&EncodedMessage, Option<Timestamp>),
        owner: impl FnOnce() -> HostOwner,
    ) -> Result<Option<u64>> {
        // If the body turns out not to be lent in place, it waits.
        if !room.admits(message.body_len, true)? {
            return Ok(None);
        }
        let mut placed = Placed {
            kind: message.kind,
            header: Arc::clone(&message.header),
            rows: message.rows,
            body_len: message.body_len,
            given,
            body: OutBody::Elsewhere,
            ready: None,
        };
        if self.role != Role::Metadata {
            placed.body = self.decide(message, owner, &mut placed)?;
        }
        let cost = if placed.is_in_place() {
            0
        } else {
            message.body_len
        };
        self.waiting = Some(placed);
        Ok(Some(cost))
    }

    pub(super) fn may_send(&self, room: &SendRoom) -> Result<bool> {
        let Some(placed) = &self.waiting else {
            return Ok(false);
        };
        room.admits(placed.body_len, placed.is_in_place())
    }

    /// Sends the message that waits. `now` is the current time, if that is needed.
    pub(super) fn send(
        &mut self,
        now: impl FnOnce() -> Timestamp,
        served: &mut End,
        account: &mut Option<Box<Account>>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        let Some(placed) = self.waiting.take() else {
            return Ok(());
        };
        let (is_batch, rows) = (placed.kind == HeaderKind::RecordBatch, placed.rows);
        let (body_len, given) = (placed.body_len, placed.given);
        placed.queue(self.number, served, effects)?;
        if self.role != Role::Metadata {
            if is_batch {
                self.count_batch(rows, given, now);
            }
            if let Some(account) = account {
                account.sent(is_batch, rows, body_len);
            }
        }
        Ok(())
    }

    fn count_batch(
        &mut self,
        rows: usize,
        given: Option<Timestamp>,
        now: impl FnOnce() -> Timestamp,
    ) {
        count(&self.counters.batches, 1);
        let Some(served) = &self.counters.served else {
            return;
        };
        count(&served.rows, rows as u64);
        let Some(given) = given else {
            return;
        };
        let now = now();
        served.hand_over.observe(nanos(now.saturating_since(given)));
        // The time of the first batch is counted.
        if let Some(asked) = self.asked.take() {
            served
                .first_batch
                .observe(nanos(now.saturating_since(asked)));
        }
    }

    /// Drops the message that waits. Its announcements of regions are still sent, because later
    /// leases rely on them.
    pub(super) fn give_up(&mut self, served: &mut End, effects: &mut EndEffects) {
        if let Some(ready) = self.waiting.take().and_then(|placed| placed.ready) {
            let announce =
                |sender: &mut OutSender| sender.announce_ready(ready.event, &ready.handle);
            // If the connection is over, there is nobody to tell.
            let _ = served.queue(self.number, announce, effects);
        }
    }

    /// Decides how a body travels: lent, where it lies or as a copy, or as bytes.
    fn decide(
        &self,
        message: &EncodedMessage,
        owner: impl FnOnce() -> HostOwner,
        placed: &mut Placed,
    ) -> Result<OutBody<Gathered, LentHold>> {
        let gpu = (message.owner.gpu()).map(|(stream, ready)| OnGpu { stream, ready });
        // Rule A4: compressed bodies are packed ones.
        let lends = self.options.body != BodyPolicy::Packed && !message.compressed;
        if let Some(lender) = self.ways.lender.as_ref().filter(|_| lends)
            && let Placement::Lent(lease) =
                Arc::clone(lender).place(&message.buffers, gpu, self.options.body)?
        {
            let counters = &*self.counters;
            count(&counters.bytes_copied, lease.copied);
            count(&counters.bytes_lent, lease.borrowed);
            count(&counters.bytes_copied_on_device, lease.copied_on_device);
            count(&counters.bytes_staged, lease.staged);
            placed.ready = lease.ready;
            let owner = match lease.keep {
                Some(keep) => {
                    keep.put(Box::new(owner()));
                    None
                }
                None => (lease.borrowed > 0).then(owner),
            };
            return Ok(OutBody::Lent {
                spans: lease.spans,
                hold: (lease.hold, owner),
                in_place: lease.in_place,
            });
        }
        Ok(OutBody::Packed {
            len: message.body_len,
            payload: self.pack(message, gpu, owner)?,
        })
    }

    /// A body that travels as bytes: from where it lies, or copied if it is short.
    fn pack(
        &self,
        message: &EncodedMessage,
        gpu: Option<OnGpu<'_>>,
        owner: impl FnOnce() -> HostOwner,
    ) -> Result<Gathered> {
        let (counters, len) = (&*self.counters, message.body_len);
        count(&counters.bytes_sent, len);
        let Some(gpu) = gpu else {
            let parts = gather(message);
            if len > COPIED_BYTES as u64 {
                let owner = Box::new(owner());
                return Ok(Gathered::Host(Payload::Gather { parts, owner }));
            }
            count(&counters.bytes_copied, len);
            let mut bytes = Bytes::with_capacity(parts.iter().map(|part| part.len).sum());
            for part in &parts {
                // SAFETY: the message keeps its buffers alive, and a body handed over to be sent is
                // not written to, as Arrow's C data interface asks of a producer ("immutable").
                bytes.extend_from_slice(unsafe { part.as_slice() });
            }
            return Ok(Gathered::Host(Payload::Bytes(bytes)));
        };
        if let Some(body) = on_gpu::gather(self.ways.gpu, message, gpu.stream)? {
            count(&counters.bytes_copied_on_device, len);
            return Ok(Gathered::Gpu(body));
        }
        count(&counters.bytes_staged, len);
        on_gpu::stage(message, gpu.stream).map(Gathered::Host)
    }
}

fn count(counter: &AtomicU64, more: u64) {
    // Most streams use only a few of the ways. Even the atomic addition of zero would cost time.
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// Whether every buffer lies in memory that can be lent where it is.
pub(super) fn is_lendable(message: &EncodedMessage) -> bool {
    let mut buffers = message.buffers.iter().filter(|buffer| buffer.len > 0);
    !message.compressed && buffers.all(|buffer| arena::find(buffer.data, buffer.len).is_some())
}

/// The runs of a packed body (rule D3): the buffers, and between them the zeros that the header's
/// offsets require.
pub(crate) fn gather(message: &EncodedMessage) -> Vec<BufferRef> {
    static ZEROS: [u8; 64] = [0; 64];
    let mut parts = Vec::with_capacity(message.buffers.len() * 2);
    let mut at = 0;
    let pad_to = |parts: &mut Vec<BufferRef>, at: &mut u64, target: u64| {
        while *at < target {
            let len = usize::try_from(target - *at).map_or(ZEROS.len(), |gap| gap.min(ZEROS.len()));
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
