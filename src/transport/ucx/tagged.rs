//! Tagged messages on their way in.
//!
//! A client posts a receive for each body when its header has come, so that the body goes where it
//! is to stay (rule D8). A server waits for requests and free lists, which have any tag and any
//! length: it looks what has come and takes memory for just that.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use foldhash::HashSet;
use ucx1_sys::{
    UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCS_ERR_MESSAGE_TRUNCATED,
    UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_HOST, UCS_OK, ucp_dt_make_contig, ucp_request_param_t,
    ucp_tag_recv_info_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::{Device, GpuBody};
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, body_of_tag, body_tag, parse_body_tag};
use crate::transport::Incoming;
use crate::transport::stream::MAX_TAGGED_BYTES;
use crate::transport::ucx::callbacks::{BodyMemory, CallbackInbox, Ends, Started, Work};
use crate::transport::ucx::error::error;
use crate::transport::ucx::gather::address_of;
use crate::transport::ucx::worker::Worker;

/// What of a tag must be equal for a posted receive: the number and the body kind's lowest bit. A
/// body with any other bit set comes too, and is refused with its tag in the text (rule D6).
const POSTED_MASK: u64 = 0x0100_0000_FFFF_FFFF;
/// The same for a receive of either kind (rule D5).
const NUMBER_MASK: u64 = 0x0000_0000_FFFF_FFFF;

/// Packed bodies shorter than this are received on the host, whatever is wished: a body on a GPU
/// costs the decoder a kernel and a wait for the few values that it looks at, tens of microseconds,
/// in which the host receives, checks and begins to upload as many bytes.
const GPU_BYTES: u64 = 16 << 10;

/// Bytes of bodies for which UCX has a receive at one time, while it has something to do: what has
/// just been read is then received into again, and lies in a cache. When it has nothing to do,
/// another body is added, so that one that comes over a network has its receive before it comes.
const POSTED_BYTES: u64 = 256 << 10;

/// Receives of tagged messages on one worker.
pub(super) struct Tagged {
    /// Takes messages of any tag: a server.
    any: bool,
    /// Large bodies come one after the other.
    by_turns: bool,
    /// Where packed bodies go; `None`: to the host.
    gpu: Option<Arc<Device>>,
    /// Bodies that were announced and have no receive yet.
    expected: VecDeque<Expected>,
    posted: Vec<Posted>,
    /// Bodies that came in a bundle before they were announced.
    early: HashSet<u32>,
    /// Bytes of the packed bodies in `posted`.
    posted_bytes: u64,
    next_id: u64,
}

/// A body as its header announces it.
#[derive(Debug, Clone, Copy)]
struct Expected {
    seq: u32,
    /// Length of the packed body.
    packed: u64,
    /// Length of the list that may come in its place.
    list: u64,
}

/// The receives of one body.
#[derive(Debug, Clone, Copy)]
struct Posted {
    body: Expected,
    /// For the packed body, or for either kind.
    first: Receive,
    /// For the list, where the first does not take it.
    second: Option<Receive>,
}

#[derive(Debug, Clone, Copy)]
struct Receive {
    id: u64,
    /// For cancelling, until its end has been taken up.
    request: Option<NonNull<c_void>>,
}

/// A receive that is over.
pub(super) struct Received {
    /// Its number.
    pub id: u64,
    /// Sequence number that it was posted for.
    pub seq: u32,
    /// What was received.
    pub memory: BodyMemory,
    /// How it ended.
    pub status: ucs_status_t,
    /// What came.
    pub info: ucp_tag_recv_info_t,
}

// SAFETY: the requests belong to a worker and not to a thread; its owner cancels them, one thread
// at a time.
unsafe impl Send for Tagged {}

impl Tagged {
    /// For a client, which knows the tags to come; or for a server, which takes any. `by_turns`:
    /// bodies larger than [`POSTED_BYTES`] come one after the other.
    pub(super) fn new(any: bool, by_turns: bool) -> Self {
        Self {
            any,
            by_turns,
            gpu: None,
            expected: VecDeque::new(),
            posted: Vec::new(),
            early: HashSet::default(),
            posted_bytes: 0,
            next_id: 0,
        }
    }

    /// Where packed bodies that are posted from now on go; `None`: to the host.
    pub(super) fn receive_on(&mut self, gpu: Option<Arc<Device>>) {
        self.gpu = gpu;
    }

    /// Takes note of a body to come: `packed` bytes, or a list of `list` bytes. Returns whether it
    /// is still to come.
    pub(super) fn expect(&mut self, seq: u32, packed: u64, list: u64) -> bool {
        if self.early.remove(&seq) {
            return false;
        }
        if !self.any {
            self.expected.push_back(Expected { seq, packed, list });
        }
        true
    }

    /// Takes note of a packed body that came in a bundle: nothing is received for it any more.
    ///
    /// # Errors
    ///
    /// `Protocol` when it is not the one that was announced.
    pub(super) fn came(&mut self, worker: &mut Worker, seq: u32, length: usize) -> Result<()> {
        let expected = self.expected.iter().position(|body| body.seq == seq);
        let posted = self.posted.iter().position(|posted| posted.body.seq == seq);
        let body = if let Some(index) = expected {
            self.expected.remove(index)
        } else if let Some(index) = posted {
            let Posted {
                body,
                first,
                second,
            } = self.posted.swap_remove(index);
            self.posted_bytes = self.posted_bytes.saturating_sub(body.packed);
            cancel(worker, Some(first));
            cancel(worker, second);
            Some(body)
        } else {
            self.early.insert(seq);
            None
        };
        match body {
            Some(body) if body.packed != length as u64 => {
                Err(wrong_length(seq, length, body.packed))
            }
            _ => Ok(()),
        }
    }

    /// Posts receives for bodies to come, as far as is useful now. Where UCX is `idle`, one at
    /// least. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; what a GPU's driver says; `Protocol` for a length that no memory has.
    pub(super) fn post(
        &mut self,
        worker: &mut Worker,
        shared: &Arc<CallbackInbox>,
        mut idle: bool,
    ) -> Result<bool> {
        let mut moved = false;
        while let Some(index) = self.next(worker, &mut idle) {
            let Some(body) = self.expected.remove(index) else {
                break;
            };
            let posted = self.post_one(worker, shared, body)?;
            self.posted.push(posted);
            self.posted_bytes = self.posted_bytes.saturating_add(body.packed);
            moved = true;
        }
        Ok(moved)
    }

    /// Which of the expected bodies is posted next, if one is to be now. Uses up `idle` where that
    /// is the reason.
    fn next(&self, worker: &Worker, idle: &mut bool) -> Option<usize> {
        let front = self.expected.front()?;
        let waits = |body: &Expected| self.by_turns && body.packed > POSTED_BYTES;
        if waits(front) {
            if self.posted.iter().any(|posted| waits(&posted.body)) {
                return None;
            }
            // A peer may send bodies in any order, and wait until each has left: what one that has
            // not come held up could be the one that comes.
            let has_come = |body: &Expected| has_come(worker, body.seq);
            return self.expected.iter().position(has_come);
        }
        let within = self.posted_bytes.saturating_add(front.packed) <= POSTED_BYTES;
        (within || self.posted.is_empty() || std::mem::take(idle)).then_some(0)
    }

    /// Posts the receives of one body. Rule D8 has two, by exact tag, since one for both could
    /// truncate a list, or put it into a GPU's memory: where it can do neither, one is enough (rule
    /// D5).
    fn post_one(
        &mut self,
        worker: &mut Worker,
        shared: &Arc<CallbackInbox>,
        body: Expected,
    ) -> Result<Posted> {
        let gpu = (self.gpu.as_ref()).filter(|_| body.packed >= GPU_BYTES);
        let on_gpu = match gpu.map(|device| GpuBody::to_fill(device, length_of(body.packed)?)) {
            // It comes to the host then, and finds room on the GPU when it is its turn, or none.
            Some(Err(error)) if error.status() == Status::OutOfMemory => None,
            body => body.transpose()?,
        };
        let both = on_gpu.is_none() && body.packed >= body.list;
        let target = match on_gpu {
            Some(on_gpu) => BodyMemory::Gpu(on_gpu),
            None => BodyMemory::Host(memory(body.packed)?),
        };
        let (seq, packed) = (body.seq, body_tag(body.seq, BodyKind::Packed));
        let mask = if both { NUMBER_MASK } else { POSTED_MASK };
        let first = self.receive(worker, shared, seq, target, packed, mask);
        let second = match both {
            true => None,
            false => {
                let target = BodyMemory::Host(memory(body.list)?);
                let list = body_tag(seq, BodyKind::List);
                Some(self.receive(worker, shared, seq, target, list, POSTED_MASK))
            }
        };
        Ok(Posted {
            body,
            first,
            second,
        })
    }

    fn receive(
        &mut self,
        worker: &mut Worker,
        shared: &Arc<CallbackInbox>,
        seq: u32,
        mut memory: BodyMemory,
        tag: u64,
        mask: u64,
    ) -> Receive {
        let mut params = bytes_on_the_host();
        let (buffer, count): (*mut c_void, _) = match &mut memory {
            BodyMemory::Gpu(body) => {
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                (address_of(body), body.len())
            }
            BodyMemory::Host(memory) => (memory.as_mut_slice().as_mut_ptr().cast(), memory.len()),
        };
        let id = self.next_id;
        self.next_id += 1;
        let work = Work::Body { id, seq, memory };
        let (api, handle) = (worker.api(), worker.handle());
        let started = shared.start(work, Ends::Tagged, params, |params| {
            // SAFETY: the worker lives; the buffer has `count` bytes of the memory that the
            // parameters say and is the operation's, which owns it, until that is over.
            unsafe { api.ucp_tag_recv_nbx(handle, buffer, count, tag, mask, params) }
        });
        let request = match started {
            Started::UnderWay(request) => Some(request),
            Started::Over | Started::Sent(_) => None,
        };
        Receive { id, request }
    }

    /// Takes up a receive that is over. Its request must not have been freed before, and no later
    /// than after this.
    ///
    /// # Errors
    ///
    /// `Protocol` when the body is not the one that was announced; UCX's own.
    pub(super) fn finish(
        &mut self,
        worker: &mut Worker,
        received: Received,
    ) -> Result<Option<Incoming>> {
        let Received {
            id,
            seq,
            info,
            status,
            memory,
        } = received;
        let is_its = |posted: &Posted| {
            posted.first.id == id || posted.second.is_some_and(|second| second.id == id)
        };
        let Some(index) = self.posted.iter().position(is_its) else {
            // Cancelled: the other kind came, or the stream is over.
            return Ok(None);
        };
        let Posted {
            body,
            first,
            second,
        } = self.posted.swap_remove(index);
        self.posted_bytes = self.posted_bytes.saturating_sub(body.packed);
        // The other one; this one is over.
        let other = if first.id == id { second } else { Some(first) };
        cancel(worker, other);
        match status {
            UCS_OK | UCS_ERR_MESSAGE_TRUNCATED => {}
            status => return Err(error(worker.api(), "a body was not received", status)),
        }
        let (sent_seq, kind) = parse_body_tag(info.sender_tag)?; // Rule D6
        let announced = match kind {
            BodyKind::Packed => body.packed,
            BodyKind::List => body.list,
        };
        if sent_seq != seq || info.length as u64 != announced {
            return Err(wrong_length(seq, info.length, announced));
        }
        Ok(Some(match (kind, memory) {
            (_, BodyMemory::Gpu(body)) => Incoming::GpuBody { seq, body },
            (BodyKind::Packed, BodyMemory::Host(memory)) => Incoming::Body { seq, memory },
            (BodyKind::List, BodyMemory::Host(memory)) => Incoming::Tagged {
                tag: info.sender_tag,
                bytes: memory.as_slice()[..info.length].into(),
            },
        }))
    }

    /// Forgets the bodies to come, and takes back every posted receive.
    pub(super) fn clear(&mut self, worker: &mut Worker) {
        self.expected.clear();
        self.early.clear();
        self.posted_bytes = 0;
        for posted in std::mem::take(&mut self.posted) {
            cancel(worker, Some(posted.first));
            cancel(worker, posted.second);
        }
    }

    /// Takes what has come with any tag, at a server.
    ///
    /// # Errors
    ///
    /// `Protocol` for a message longer than any may be; `OutOfMemory`.
    pub(super) fn fetch_arrived(
        &self,
        worker: &mut Worker,
        shared: &Arc<CallbackInbox>,
    ) -> Result<()> {
        if !self.any {
            return Ok(());
        }
        let (api, handle) = (worker.api(), worker.handle());
        loop {
            let mut info = ucp_tag_recv_info_t {
                sender_tag: 0,
                length: 0,
            };
            // SAFETY: the worker lives; `info` is writable.
            let message = unsafe { api.ucp_tag_probe_nb(handle, 0, 0, 1, &raw mut info) };
            if message.is_null() {
                return Ok(());
            }
            let length = info.length as u64;
            let refused = (length > MAX_TAGGED_BYTES).then(|| {
                Error::protocol(format!(
                    "the peer sent a tagged message of {length} bytes; the limit is \
                     {MAX_TAGGED_BYTES}"
                ))
            });
            // What is refused is received too, into no memory, so that UCX is rid of it.
            let mut memory = memory(if refused.is_some() { 0 } else { length })?;
            let (buffer, count) = (memory.as_mut_slice().as_mut_ptr(), memory.len());
            let tag = info.sender_tag;
            shared.start(
                Work::Tagged { tag, memory },
                Ends::Tagged,
                bytes_on_the_host(),
                // SAFETY: the message was removed by the probe and is received only here; the
                // buffer has `count` bytes and is the operation's until that is over.
                |params| unsafe {
                    api.ucp_tag_msg_recv_nbx(handle, buffer.cast(), count, message, params)
                },
            );
            if let Some(error) = refused {
                return Err(error);
            }
        }
    }
}

/// Whether a body has come, or its announcement, that no receive was posted for.
fn has_come(worker: &Worker, seq: u32) -> bool {
    let mut info = ucp_tag_recv_info_t {
        sender_tag: 0,
        length: 0,
    };
    let (api, handle) = (worker.api(), worker.handle());
    // SAFETY: the worker lives; `info` is writable; nothing is taken from UCX.
    let message =
        unsafe { api.ucp_tag_probe_nb(handle, u64::from(seq), NUMBER_MASK, 0, &raw mut info) };
    !message.is_null()
}

fn wrong_length(seq: u32, length: usize, announced: u64) -> Error {
    Error::protocol(format!(
        // Rule D8.
        "the body of message {seq} has {length} bytes; its header announces {announced}"
    ))
}

/// Cancels a receive whose end has not been taken up. It ends with an error then, or with success
/// if it had begun to receive; either is ignored.
fn cancel(worker: &mut Worker, receive: Option<Receive>) {
    if let Some(request) = receive.and_then(|receive| receive.request) {
        // SAFETY: the request was not freed: its end has not been taken up, which would have
        // removed it from those posted first. UCX lets one that is over alone.
        unsafe {
            worker
                .api()
                .ucp_request_cancel(worker.handle(), request.as_ptr())
        };
    }
}

/// A tagged message of any tag, as the driver sees it.
///
/// # Errors
///
/// UCX's own.
pub(super) fn arrived(
    worker: &Worker,
    tag: u64,
    memory: HostBuffer,
    status: ucs_status_t,
) -> Result<Incoming> {
    if status != UCS_OK {
        return Err(error(worker.api(), "a message was not received", status));
    }
    Ok(match body_of_tag(tag) {
        Some((seq, BodyKind::Packed)) => Incoming::Body { seq, memory },
        _ => Incoming::Tagged {
            tag,
            bytes: memory.as_slice().into(),
        },
    })
}

fn length_of(length: u64) -> Result<usize> {
    usize::try_from(length)
        .map_err(|_| Error::protocol(format!("a body of {length} bytes fits into no memory")))
}

fn memory(length: u64) -> Result<HostBuffer> {
    HostBuffer::to_fill(length_of(length)?)
}

/// Says what the buffer is, so that UCX need not find out.
fn bytes_on_the_host() -> ucp_request_param_t {
    ucp_request_param_t {
        op_attr_mask: UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        datatype: ucp_dt_make_contig(1),
        memory_type: UCS_MEMORY_TYPE_HOST,
        ..ucp_request_param_t::default()
    }
}
