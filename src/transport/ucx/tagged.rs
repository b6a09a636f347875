//! Tagged messages on their way in.
//!
//! Both ends look which messages have come, and take memory for just those. A client takes the
//! bodies whose headers have come (rule D8). A server takes requests and free lists, which have any
//! tag, and such bodies of a stream that a client sends.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    UCS_MEMORY_TYPE_CUDA, UCS_OK, ucp_tag_message_h, ucp_tag_recv_info_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::{Device, GpuBody};
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, ExpectedBody, body_of_tag, parse_body_tag};
use crate::transport::Incoming;
use crate::transport::stream::MAX_TAGGED_BYTES;
use crate::transport::ucx::error::error;
use crate::transport::ucx::gather::{address_of, bytes_on_the_host};
use crate::transport::ucx::link::UcxLink;
use crate::transport::ucx::operations::{BodyMemory, Work};
use crate::transport::ucx::worker::Worker;

/// The part of a tag that is a body's number. A body with any other bit set is taken, too, and
/// refused with its tag in the text (rule D6).
const NUMBER_MASK: u64 = 0x0000_0000_FFFF_FFFF;

/// Packed bodies shorter than this are received on the host, whatever is wished: a body on a GPU
/// costs the decoder a kernel and a wait for the few values that it looks at.
const GPU_BYTES: u64 = 16 << 10;

/// Bodies longer than this are sent by rendezvous.
pub(super) const LARGE_BYTES: u64 = 256 << 10;
/// So many of them are received at once: the next is asked for while one comes, and memory that was
/// just read is received into again.
const LARGE_AT_ONCE: usize = 2;

/// Receives of tagged messages on one worker.
pub(super) struct Tagged {
    /// Takes messages of any tag: a server.
    any: bool,
    /// How many large bodies may be received at once.
    most_large: usize,
    /// How many are being received.
    large: usize,
    /// Where packed bodies go; `None`: to the host.
    gpu: Option<Arc<Device>>,
    /// Bodies that were announced and have not come.
    announced: VecDeque<ExpectedBody>,
    /// At a server while a client sends a stream: bodies whose headers have not come. `None`
    /// between such streams.
    early: Option<Vec<FoundMessage>>,
    /// Counts the streams, for messages of one that is over.
    stream: u64,
}

/// A message that has come, taken out of UCX's queue.
struct FoundMessage {
    message: ucp_tag_message_h,
    tag: u64,
    length: u64,
}

// SAFETY: a message belongs to the worker and not to a thread; the owner of the worker uses it, one
// thread at a time.
unsafe impl Send for FoundMessage {}

impl Tagged {
    /// For a client, which knows the tags to come; or for a server, which takes `any`.
    pub(super) fn new(any: bool, by_turns: bool) -> Self {
        Self {
            any,
            most_large: if by_turns { 1 } else { LARGE_AT_ONCE },
            large: 0,
            gpu: None,
            announced: VecDeque::new(),
            early: None,
            stream: 0,
        }
    }

    /// Where packed bodies that come from now on go; `None`: to the host.
    pub(super) fn receive_on(&mut self, gpu: Option<Arc<Device>>) {
        self.gpu = gpu;
    }

    /// Takes note of a body to come.
    pub(super) fn expect(&mut self, body: ExpectedBody) {
        self.announced.push_back(body);
    }

    /// At a server: a client sends a stream from now on.
    pub(super) fn begin_stream(&mut self) {
        if self.any {
            self.early.get_or_insert_default();
        }
    }

    /// Forgets the bodies to come.
    pub(super) fn clear(&mut self, link: Option<&mut UcxLink>) {
        self.announced.clear();
        if let (Some(early), Some(link)) = (&mut self.early, link) {
            for found in std::mem::take(early) {
                // UCX is rid of it then, and nobody hears of it.
                let _ = self.receive(link, &found, on_host(0));
            }
        }
        self.stream += 1;
    }

    /// At a server: the client's stream is over.
    pub(super) fn end_stream(&mut self) {
        self.early = None;
    }

    /// Begins to receive what has come.
    ///
    /// # Errors
    ///
    /// `Protocol` for a message that may not come; `OutOfMemory`; what a GPU's driver says.
    pub(super) fn fetch(&mut self, link: &mut UcxLink) -> Result<()> {
        if self.any {
            while let Some(found) = probe(&link.worker, 0, 0) {
                if let (Some(early), Some(_)) = (&mut self.early, body_of_tag(found.tag)) {
                    early.push(found);
                    continue;
                }
                let fits = found.length <= MAX_TAGGED_BYTES;
                let refusal = || {
                    Error::protocol(format!(
                        "the peer sent a tagged message of {} bytes; the limit is \
                         {MAX_TAGGED_BYTES}",
                        found.length
                    ))
                };
                let memory = fits.then_some(found.length).ok_or_else(refusal);
                self.receive(link, &found, memory.and_then(on_host))?;
            }
            return self.fetch_early(link);
        }
        // Each body is looked for by its number, and many may be announced while none has come.
        if self.announced.is_empty() || !has_any(&link.worker) {
            return Ok(());
        }
        let mut index = 0;
        while let Some(body) = self.announced.get(index).copied() {
            // A peer may send bodies in any order, and wait until each has left.
            let has_turn = body.packed <= LARGE_BYTES || self.large < self.most_large;
            let found = has_turn
                .then(|| probe(&link.worker, u64::from(body.seq), NUMBER_MASK))
                .flatten();
            let Some(found) = found else {
                index += 1;
                continue;
            };
            self.announced.remove(index);
            let memory = self.memory_for(body, &found);
            self.receive(link, &found, memory)?;
            self.large += usize::from(found.length > LARGE_BYTES);
            if !has_any(&link.worker) {
                break;
            }
        }
        Ok(())
    }

    /// Begins to receive the bodies of a client's stream whose headers have come.
    fn fetch_early(&mut self, link: &mut UcxLink) -> Result<()> {
        let mut index = 0;
        while let Some(found) = self.early.as_mut().and_then(|early| early.get(index)) {
            let number = body_of_tag(found.tag).map(|(seq, _)| seq);
            let at = (self.announced.iter()).position(|body| Some(body.seq) == number);
            let Some(body) = at.and_then(|at| self.announced.remove(at)) else {
                index += 1;
                continue;
            };
            let found = self.early.as_mut().map(|early| early.remove(index));
            if let Some(found) = found {
                let memory = self.memory_for(body, &found);
                self.receive(link, &found, memory)?;
            }
        }
        Ok(())
    }

    /// Memory for a body, which must be as it was announced.
    fn memory_for(&self, body: ExpectedBody, found: &FoundMessage) -> Result<BodyMemory> {
        let (seq, kind) = parse_body_tag(found.tag)?; // Rule D6
        let announced = match kind {
            BodyKind::Packed => body.packed,
            BodyKind::List => body.list,
        };
        if found.length != announced {
            return Err(Error::protocol(format!(
                // Rule D8.
                "the body of message {seq} has {} bytes; its header announces {announced}",
                found.length
            )));
        }
        let to_gpu = kind == BodyKind::Packed && announced >= GPU_BYTES;
        if let Some(device) = self.gpu.as_ref().filter(|_| to_gpu) {
            match GpuBody::to_fill(device, length_of(announced)?) {
                Ok(body) => return Ok(BodyMemory::Gpu(body)),
                // It comes to the host then, and finds room on the GPU when it is its turn.
                Err(error) if error.status() == Status::OutOfMemory => {}
                Err(error) => return Err(error),
            }
        }
        on_host(announced)
    }

    /// Receives a message into this memory. Where there is none it is received all the same, so
    /// that UCX is rid of it.
    fn receive(
        &self,
        link: &mut UcxLink,
        found: &FoundMessage,
        memory: Result<BodyMemory>,
    ) -> Result<()> {
        let (mut memory, refused) = match memory {
            Ok(memory) => (memory, Ok(())),
            Err(error) => (on_host(0)?, Err(error)),
        };
        let mut params = bytes_on_the_host();
        let (buffer, count): (*mut c_void, _) = match &mut memory {
            BodyMemory::Gpu(body) => {
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                (address_of(body), body.len())
            }
            BodyMemory::Host(memory) => (memory.as_mut_slice().as_mut_ptr().cast(), memory.len()),
        };
        let (api, worker) = (link.worker.api(), link.worker.handle());
        // SAFETY: the worker lives; the message was taken by a probe and is received only here; the
        // buffer has `count` bytes of the memory that the parameters say, and is the operation's
        // until that is over.
        let returned = unsafe {
            api.ucp_tag_msg_recv_nbx(worker, buffer, count, found.message, &raw const params)
        };
        let work = Work::Tagged {
            stream: self.stream,
            tag: found.tag,
            memory,
        };
        link.operations.add(work, returned);
        refused
    }

    /// What a receive that is over has brought.
    ///
    /// # Errors
    ///
    /// UCX's own.
    pub(super) fn finish(
        &mut self,
        worker: &Worker,
        stream: u64,
        tag: u64,
        memory: BodyMemory,
        status: ucs_status_t,
    ) -> Result<Option<Incoming>> {
        let length = match &memory {
            BodyMemory::Host(memory) => memory.len(),
            BodyMemory::Gpu(body) => body.len(),
        };
        if length as u64 > LARGE_BYTES {
            self.large = self.large.saturating_sub(1);
        }
        if stream != self.stream {
            return Ok(None);
        }
        if status != UCS_OK {
            return Err(error(worker.api(), "a message was not received", status));
        }
        Ok(Some(match (body_of_tag(tag), memory) {
            (Some((seq, _)), BodyMemory::Gpu(body)) => Incoming::GpuBody { seq, body },
            (Some((seq, BodyKind::Packed)), BodyMemory::Host(memory)) => {
                Incoming::Body { seq, memory }
            }
            (_, BodyMemory::Host(memory)) => Incoming::Tagged {
                tag,
                bytes: memory.as_slice().into(),
            },
            (None, BodyMemory::Gpu(_)) => return Ok(None),
        }))
    }
}

/// Takes a message with this tag out of UCX's queue, as far as `mask` compares it.
fn probe(worker: &Worker, tag: u64, mask: u64) -> Option<FoundMessage> {
    look(worker, tag, mask, true)
}

/// Whether UCX's queue has a message.
fn has_any(worker: &Worker) -> bool {
    look(worker, 0, 0, false).is_some()
}

/// Finds a message, and `takes` it out of the queue or leaves it there. What is left there is not
/// to be received.
fn look(worker: &Worker, tag: u64, mask: u64, takes: bool) -> Option<FoundMessage> {
    let mut info = ucp_tag_recv_info_t {
        sender_tag: 0,
        length: 0,
    };
    let (api, handle) = (worker.api(), worker.handle());
    // SAFETY: the worker lives; `info` is writable.
    let message = unsafe { api.ucp_tag_probe_nb(handle, tag, mask, takes.into(), &raw mut info) };
    (!message.is_null()).then_some(FoundMessage {
        message,
        tag: info.sender_tag,
        length: info.length as u64,
    })
}

fn on_host(length: u64) -> Result<BodyMemory> {
    HostBuffer::to_fill(length_of(length)?).map(BodyMemory::Host)
}

fn length_of(length: u64) -> Result<usize> {
    usize::try_from(length)
        .map_err(|_| Error::protocol(format!("a body of {length} bytes fits into no memory")))
}
