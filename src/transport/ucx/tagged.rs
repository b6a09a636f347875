//! Tagged messages on their way in.
//!
//! A client posts a receive for each body when its header has come, so that the body goes where it
//! is to stay (rule D8). A server waits for requests and free lists, which have any tag and any
//! length: it looks what has come and takes memory for just that.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use ucx1_sys::{
    UCP_OP_ATTR_FIELD_DATATYPE, UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCS_ERR_MESSAGE_TRUNCATED,
    UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_HOST, UCS_OK, ucp_dt_make_contig, ucp_request_param_t,
    ucp_tag_recv_info_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::{Device, GpuBody};
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, body_tag, parse_body_tag};
use crate::transport::Incoming;
use crate::transport::stream::MAX_TAGGED_BYTES;
use crate::transport::ucx::error::error;
use crate::transport::ucx::gather::address_of;
use crate::transport::ucx::shared::{BodyMemory, Ends, Shared, Work};
use crate::transport::ucx::worker::Worker;

/// What of a tag must be equal for a posted receive: the number and the body kind's lowest bit. A
/// body with any other bit set comes too, and is refused with its tag in the text (rule D6).
const POSTED_MASK: u64 = 0x0100_0000_FFFF_FFFF;

/// Packed bodies shorter than this are received on the host, whatever is wished: a body on a GPU costs
/// the decoder a kernel and a wait for the few values that it looks at, tens of microseconds, in
/// which the host receives, checks and begins to upload as many bytes.
const GPU_BYTES: u64 = 16 << 10;

/// Receives of tagged messages on one worker.
pub(super) struct Tagged {
    /// Takes messages of any tag: a server.
    any: bool,
    /// Where packed bodies go; `None`: to the host.
    gpu: Option<Arc<Device>>,
    posted: HashMap<u32, Posted>,
    /// Receives that UCX has, by number, for cancelling.
    requests: HashMap<u64, NonNull<c_void>>,
    next_id: u64,
}

/// The receives of one body: for each kind the number of the receive and the length.
#[derive(Debug, Clone, Copy)]
struct Posted {
    packed: Receive,
    list: Receive,
}

#[derive(Debug, Clone, Copy)]
struct Receive {
    id: u64,
    length: u64,
}

/// A receive that is over.
pub(super) struct Received {
    /// Its number.
    pub id: u64,
    /// Sequence number that it was posted for.
    pub seq: u32,
    /// The kind that it was posted for.
    pub kind: BodyKind,
    /// What was received.
    pub memory: BodyMemory,
    /// How it ended.
    pub status: ucs_status_t,
    /// What came.
    pub info: ucp_tag_recv_info_t,
}

// SAFETY: the requests belong to a worker and not to a thread; its owner cancels them, one thread at
// a time.
unsafe impl Send for Tagged {}

impl Tagged {
    /// For a client, which knows the tags to come; or for a server, which takes any.
    pub(super) fn new(any: bool) -> Self {
        Self {
            any,
            gpu: None,
            posted: HashMap::new(),
            requests: HashMap::new(),
            next_id: 0,
        }
    }

    /// Where packed bodies that are posted from now on go; `None`: to the host.
    pub(super) fn receive_on(&mut self, gpu: Option<Arc<Device>>) {
        self.gpu = gpu;
    }

    /// Posts the receives for the body of `seq`: `packed` bytes, or a list of `list` bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; what a GPU's driver says; `Protocol` for a length that no memory has.
    pub(super) fn post(
        &mut self,
        worker: &mut Worker,
        shared: &Arc<Shared>,
        seq: u32,
        packed: u64,
        list: u64,
    ) -> Result<()> {
        if self.any {
            return Ok(());
        }
        let packed = self.receive(worker, shared, seq, BodyKind::Packed, packed)?;
        let list = self.receive(worker, shared, seq, BodyKind::List, list)?;
        self.posted.insert(seq, Posted { packed, list });
        Ok(())
    }

    fn receive(
        &mut self,
        worker: &mut Worker,
        shared: &Arc<Shared>,
        seq: u32,
        kind: BodyKind,
        length: u64,
    ) -> Result<Receive> {
        let gpu = (self.gpu.as_ref()).filter(|_| kind == BodyKind::Packed && length >= GPU_BYTES);
        let mut params = bytes_on_the_host();
        let length_there = length_of(length)?;
        let on_gpu = match gpu.map(|device| GpuBody::to_fill(device, length_there)) {
            // It comes to the host then, and finds room on the GPU when it is its turn, or none.
            Some(Err(error)) if error.status() == Status::OutOfMemory => None,
            body => body.transpose()?,
        };
        let (memory, buffer, count): (_, *mut c_void, _) = match on_gpu {
            Some(body) => {
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                let (buffer, count) = (address_of(&body), body.len());
                (BodyMemory::Gpu(body), buffer, count)
            }
            None => {
                let mut memory = memory(length)?;
                let (buffer, count) = (memory.as_mut_slice().as_mut_ptr(), memory.len());
                (BodyMemory::Host(memory), buffer.cast(), count)
            }
        };
        let id = self.next_id;
        self.next_id += 1;
        let work = Work::Body {
            id,
            seq,
            kind,
            memory,
        };
        let (api, handle) = (worker.api(), worker.handle());
        let started = shared.start(work, Ends::Tagged, params, |params| {
            let tag = body_tag(seq, kind);
            // SAFETY: the worker lives; the buffer has `count` bytes of the memory that the parameters
            // say and is the operation's, which owns it, until that is over.
            unsafe { api.ucp_tag_recv_nbx(handle, buffer, count, tag, POSTED_MASK, params) }
        });
        if let Some(request) = started {
            self.requests.insert(id, request);
        }
        Ok(Receive { id, length })
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
        self.requests.remove(&received.id);
        let Received {
            seq, kind, info, ..
        } = received;
        let ours = self.posted.get(&seq).and_then(|posted| {
            let receive = match kind {
                BodyKind::Packed => posted.packed,
                BodyKind::List => posted.list,
            };
            (receive.id == received.id).then_some((*posted, receive))
        });
        let Some((posted, receive)) = ours else {
            // Cancelled: the other kind came, or the stream is over.
            return Ok(None);
        };
        self.posted.remove(&seq);
        // The one that is over is not there any more.
        self.cancel(worker, posted.packed.id);
        self.cancel(worker, posted.list.id);
        match received.status {
            UCS_OK | UCS_ERR_MESSAGE_TRUNCATED => {}
            status => return Err(error(worker.api(), "a body was not received", status)),
        }
        let (sent_seq, sent_kind) = parse_body_tag(info.sender_tag)?; // Rule D6
        if (sent_seq, sent_kind) != (seq, kind) || info.length as u64 != receive.length {
            return Err(Error::protocol(format!(
                "the body of message {seq} has {} bytes; its header announces {} (rule D8)",
                info.length, receive.length
            )));
        }
        Ok(Some(match (kind, received.memory) {
            (_, BodyMemory::Gpu(body)) => Incoming::GpuBody { seq, body },
            (BodyKind::Packed, BodyMemory::Host(memory)) => Incoming::Body { seq, memory },
            (BodyKind::List, BodyMemory::Host(memory)) => Incoming::Tagged {
                tag: info.sender_tag,
                bytes: memory.as_slice().to_vec(),
            },
        }))
    }

    /// Takes back every posted receive.
    pub(super) fn clear(&mut self, worker: &mut Worker) {
        self.posted.clear();
        let ids: Vec<_> = self.requests.keys().copied().collect();
        for id in ids {
            self.cancel(worker, id);
        }
    }

    /// Cancels a receive if it is still under way. It ends with an error then, or with success if it
    /// had begun to receive; either is ignored.
    fn cancel(&self, worker: &mut Worker, id: u64) {
        if let Some(request) = self.requests.get(&id) {
            // SAFETY: the request was not freed: its end has not been taken up, which would have
            // removed it here first. UCX lets one that is over alone.
            unsafe {
                worker
                    .api()
                    .ucp_request_cancel(worker.handle(), request.as_ptr())
            };
        }
    }

    /// Takes what has come with any tag, at a server.
    ///
    /// # Errors
    ///
    /// `Protocol` for a message longer than any may be; `OutOfMemory`.
    pub(super) fn fetch_arrived(&self, worker: &mut Worker, shared: &Arc<Shared>) -> Result<()> {
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
    Ok(match parse_body_tag(tag) {
        Ok((seq, BodyKind::Packed)) => Incoming::Body { seq, memory },
        _ => Incoming::Tagged {
            tag,
            bytes: memory.as_slice().to_vec(),
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
