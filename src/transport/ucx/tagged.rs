//! Incoming tagged messages.
//!
//! Both ends take messages that have come out of UCX's queue, and receive each into memory of its
//! length. A body waits for its header (rule D8), unless nobody wants its stream. At a server the
//! other messages are requests and free lists, which may have any tag, and keep their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;

use ucx1_sys::{
    UCS_ERR_MESSAGE_TRUNCATED, UCS_MEMORY_TYPE_CUDA, UCS_OK, ucp_tag_message_h,
    ucp_tag_recv_info_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::{Device, GpuBody};
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, ExpectedBody, body_of_tag, parse_body_tag};
use crate::transport::stream::MAX_TAGGED_BYTES;
use crate::transport::ucx::error::error;
use crate::transport::ucx::gather::{address_of, bytes_on_the_host};
use crate::transport::ucx::link::UcxLink;
use crate::transport::ucx::operations::{BodyMemory, Work};
use crate::transport::ucx::worker::Worker;
use crate::transport::{BodyPlace, Incoming};

/// The position of the stream's number in the tag of a body (rule S2).
const NUMBER_SHIFT: u32 = 32;
const NUMBER_MASK: u64 = 0x00FF_FFFF;

/// Packed bodies shorter than this are always received on the host. For a body on a GPU, the
/// decoder would need a kernel and a wait for the few values that it looks at.
const GPU_BYTES: u64 = 16 << 10;

/// Bodies longer than this are sent by rendezvous.
pub(super) const LARGE_BYTES: u64 = 256 << 10;
/// How many large bodies are received at once: the next one is asked for while one comes in, and
/// memory that was just read is used again.
const LARGE_AT_ONCE: usize = 2;

/// Receives of tagged messages on one worker.
#[derive(Default)]
pub(super) struct Tagged {
    others: Others,
    /// How many large bodies may be received at once.
    most_large: usize,
    /// How many large bodies are being received.
    large: usize,
    /// The GPU that receives packed bodies; `None`: the host.
    gpu: Option<Arc<Device>>,
    /// Streams whose bodies are wanted.
    wanted: BTreeSet<u32>,
    /// The highest number of a stream so far.
    highest: u32,
    /// Bodies of these streams that were announced or have come.
    bodies: BTreeMap<BodyPlace, Meeting>,
    /// Bodies that were announced and have come, but are not received yet.
    met: VecDeque<(FoundMessage, ExpectedBody)>,
    /// Those of them that are large, and that wait until fewer are being received.
    large_met: VecDeque<(FoundMessage, ExpectedBody)>,
    /// Bodies that nobody wants.
    unwanted: Vec<FoundMessage>,
}

/// Which messages other than bodies come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Others {
    /// At a client: none.
    #[default]
    None,
    /// At a server: messages of any tag.
    Any,
    /// Messages of any tag, and one is being received. Later ones wait.
    UnderWay,
}

/// A body's header or the body itself, whichever has come first.
enum Meeting {
    Announced(ExpectedBody),
    Found(FoundMessage),
}

/// A message that has come, and that was taken out of UCX's queue.
struct FoundMessage {
    message: ucp_tag_message_h,
    tag: u64,
    length: u64,
}

// SAFETY: a message belongs to the worker and not to a thread; the owner of the worker uses it, one
// thread at a time.
unsafe impl Send for FoundMessage {}

/// The tag of a body of the stream `number`.
pub(super) fn numbered(tag: u64, number: u32) -> u64 {
    tag | (u64::from(number) & NUMBER_MASK) << NUMBER_SHIFT
}

impl Tagged {
    /// For a client, which gets only bodies.
    pub(super) fn of_client(by_turns: bool) -> Self {
        Self {
            most_large: if by_turns { 1 } else { LARGE_AT_ONCE },
            ..Self::default()
        }
    }

    /// For a server.
    pub(super) fn of_server() -> Self {
        Self {
            others: Others::Any,
            most_large: LARGE_AT_ONCE,
            ..Self::default()
        }
    }

    /// The GPU that receives packed bodies from now on; `None`: the host.
    pub(super) fn receive_on(&mut self, gpu: Option<Arc<Device>>) {
        self.gpu = gpu;
    }

    /// From now on bodies of the stream `number` come.
    pub(super) fn begin_stream(&mut self, number: u32) {
        self.highest = self.highest.max(number);
        self.wanted.insert(number);
    }

    /// Notes a body that will come.
    pub(super) fn expect(&mut self, place: BodyPlace, body: ExpectedBody) {
        match self.bodies.remove(&place) {
            Some(Meeting::Found(found)) => self.met.push_back((found, body)),
            Some(Meeting::Announced(_)) | None => {
                self.bodies.insert(place, Meeting::Announced(body));
            }
        }
    }

    /// From now on nobody wants bodies of the stream `number`.
    pub(super) fn forget(&mut self, number: u32) {
        self.wanted.remove(&number);
        let first = BodyPlace { number, seq: 0 };
        let last = BodyPlace {
            number,
            seq: u32::MAX,
        };
        let of_stream = self.bodies.extract_if(first..=last, |_, _| true);
        self.unwanted
            .extend(of_stream.filter_map(|(_, meeting)| match meeting {
                Meeting::Found(found) => Some(found),
                Meeting::Announced(_) => None,
            }));
        for met in [&mut self.met, &mut self.large_met] {
            let (gone, left) = std::mem::take(met)
                .into_iter()
                .partition::<VecDeque<_>, _>(|(found, _)| number_of(found.tag) == number);
            *met = left;
            self.unwanted
                .extend(gone.into_iter().map(|(found, _)| found));
        }
    }

    /// Begins to receive the messages that have come.
    ///
    /// # Errors
    ///
    /// `Protocol` for a message that is not allowed; `OutOfMemory`; errors of a GPU's driver.
    pub(super) fn fetch(&mut self, link: &mut UcxLink) -> Result<()> {
        for found in std::mem::take(&mut self.unwanted) {
            self.receive_unwanted(link, &found)?;
        }
        while let Some((found, body)) = self.met.pop_front() {
            self.receive_body(link, found, body)?;
        }
        while self.others != Others::UnderWay
            && let Some(found) = probe(&link.worker)
        {
            self.sort(link, found)?;
        }
        // A peer may send bodies in any order, and may wait until each one has left.
        while self.large < self.most_large
            && let Some((found, body)) = self.large_met.pop_front()
        {
            self.large += 1;
            self.receive_announced(link, &found, body)?;
        }
        Ok(())
    }

    /// Decides what to do with a message that has come.
    fn sort(&mut self, link: &mut UcxLink, found: FoundMessage) -> Result<()> {
        let Some((place, _)) = self.body_of(found.tag) else {
            return self.receive_other(link, &found);
        };
        if !self.wanted.contains(&place.number) {
            return self.receive_unwanted(link, &found);
        }
        match self.bodies.remove(&place) {
            Some(Meeting::Announced(body)) => self.receive_body(link, found, body),
            Some(Meeting::Found(_)) => Err(Error::protocol(format!(
                "two bodies of message {} came before its header",
                place.seq
            ))),
            None => {
                self.bodies.insert(place, Meeting::Found(found));
                Ok(())
            }
        }
    }

    /// The body that a tag names, if its stream has begun.
    fn body_of(&self, tag: u64) -> Option<(BodyPlace, BodyKind)> {
        let number = number_of(tag);
        let (seq, kind) = body_of_tag(without_number(tag))?;
        (number <= self.highest).then_some((BodyPlace { number, seq }, kind))
    }

    /// Receives a request or a free list.
    fn receive_other(&mut self, link: &mut UcxLink, found: &FoundMessage) -> Result<()> {
        if self.others == Others::None {
            let refused = match parse_body_tag(found.tag) {
                Err(error) => Error::from(error), // Rule D6
                Ok(_) => Error::protocol("a body came of a stream that has not begun"),
            };
            return self.receive(link, found, Err(refused));
        }
        self.others = Others::UnderWay;
        let memory = within_limit(found).and_then(|()| on_host(found.length));
        self.receive(link, found, memory)
    }

    /// Receives a body that nobody wants, because it must be counted. An address list names memory
    /// that must be given back.
    fn receive_unwanted(&mut self, link: &mut UcxLink, found: &FoundMessage) -> Result<()> {
        let memory = match self.body_of(found.tag) {
            Some((_, BodyKind::List)) => within_limit(found).and_then(|()| on_host(found.length)),
            _ => on_host(0),
        };
        self.receive(link, found, memory)
    }

    /// Receives a body whose header has come. A large one may first wait for others.
    fn receive_body(
        &mut self,
        link: &mut UcxLink,
        found: FoundMessage,
        body: ExpectedBody,
    ) -> Result<()> {
        if found.length > LARGE_BYTES {
            self.large_met.push_back((found, body));
            return Ok(());
        }
        self.receive_announced(link, &found, body)
    }

    fn receive_announced(
        &mut self,
        link: &mut UcxLink,
        found: &FoundMessage,
        body: ExpectedBody,
    ) -> Result<()> {
        let memory = self.memory_for(body, found);
        self.receive(link, found, memory)
    }

    /// Memory for a body, whose length must be the announced one.
    fn memory_for(&self, body: ExpectedBody, found: &FoundMessage) -> Result<BodyMemory> {
        let (seq, kind) = parse_body_tag(without_number(found.tag))?;
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
                // Then the body is received on the host, and is copied to the GPU when the stream
                // takes it.
                Err(error) if error.status() == Status::OutOfMemory => {}
                Err(error) => return Err(error),
            }
        }
        on_host(announced)
    }

    /// Receives a message into this memory. Without memory, the message is received only to remove
    /// it from UCX, and is not reported.
    fn receive(
        &self,
        link: &mut UcxLink,
        found: &FoundMessage,
        memory: Result<BodyMemory>,
    ) -> Result<()> {
        let (mut memory, refused) = match memory {
            Ok(memory) => (memory, Ok(())),
            Err(error) => (BodyMemory::Nowhere, Err(error)),
        };
        let mut params = bytes_on_the_host();
        let (buffer, count): (*mut c_void, _) = match &mut memory {
            BodyMemory::Gpu(body) => {
                params.memory_type = UCS_MEMORY_TYPE_CUDA;
                (address_of(body), body.len())
            }
            BodyMemory::Host(memory) => (memory.as_mut_slice().as_mut_ptr().cast(), memory.len()),
            BodyMemory::Nowhere => (std::ptr::null_mut(), 0),
        };
        let (api, worker) = (link.worker.api(), link.worker.handle);
        // SAFETY: the worker lives; the message was taken by a probe and is received only here; the
        // buffer has `count` bytes of the memory that the parameters say, and is the operation's
        // until that is over.
        let returned = unsafe {
            api.ucp_tag_msg_recv_nbx(worker, buffer, count, found.message, &raw const params)
        };
        let work = Work::Tagged {
            tag: found.tag,
            memory,
        };
        link.operations.add(work, returned);
        refused
    }

    /// The result of a receive that has ended.
    ///
    /// # Errors
    ///
    /// Those of UCX.
    pub(super) fn finish(
        &mut self,
        worker: &Worker,
        tag: u64,
        memory: BodyMemory,
        status: ucs_status_t,
    ) -> Result<Option<(u32, Incoming)>> {
        let length = match &memory {
            BodyMemory::Host(memory) => memory.len(),
            BodyMemory::Gpu(body) => body.len(),
            BodyMemory::Nowhere => return Ok(None),
        };
        let body = self.body_of(tag);
        if body.is_none() && self.others == Others::UnderWay {
            self.others = Others::Any;
        }
        if body.is_some() && length as u64 > LARGE_BYTES {
            self.large = self.large.saturating_sub(1);
        }
        match status {
            UCS_OK => {}
            // A message that nobody wants.
            UCS_ERR_MESSAGE_TRUNCATED if length == 0 => {}
            _ => return Err(error(worker.api(), "a message was not received", status)),
        }
        let number = body.map_or(0, |(place, _)| place.number);
        let message = match (body, memory) {
            (Some((place, _)), BodyMemory::Gpu(body)) => Incoming::GpuBody {
                seq: place.seq,
                body,
            },
            (Some((place, BodyKind::Packed)), BodyMemory::Host(memory)) => Incoming::Body {
                seq: place.seq,
                memory,
            },
            (_, BodyMemory::Host(memory)) => Incoming::Tagged {
                tag: match body {
                    Some(_) => without_number(tag),
                    None => tag,
                },
                bytes: memory.as_slice().into(),
            },
            (None, BodyMemory::Gpu(_)) | (_, BodyMemory::Nowhere) => return Ok(None),
        };
        Ok(Some((number, message)))
    }
}

fn number_of(tag: u64) -> u32 {
    u32::try_from(tag >> NUMBER_SHIFT & NUMBER_MASK).unwrap_or_default()
}

fn without_number(tag: u64) -> u64 {
    tag & !(NUMBER_MASK << NUMBER_SHIFT)
}

/// Takes a message out of UCX's queue.
fn probe(worker: &Worker) -> Option<FoundMessage> {
    let mut info = ucp_tag_recv_info_t {
        sender_tag: 0,
        length: 0,
    };
    let (api, handle) = (worker.api(), worker.handle);
    let (any, takes) = (0, 1);
    // SAFETY: the worker lives; `info` is writable.
    let message = unsafe { api.ucp_tag_probe_nb(handle, any, any, takes, &raw mut info) };
    (!message.is_null()).then_some(FoundMessage {
        message,
        tag: info.sender_tag,
        length: info.length as u64,
    })
}

/// Refuses a message that is longer than its kind allows.
fn within_limit(found: &FoundMessage) -> Result<()> {
    if found.length <= MAX_TAGGED_BYTES {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "the peer sent a tagged message of {} bytes; the limit is {MAX_TAGGED_BYTES}",
        found.length
    )))
}

fn on_host(length: u64) -> Result<BodyMemory> {
    HostBuffer::to_fill(length_of(length)?).map(BodyMemory::Host)
}

fn length_of(length: u64) -> Result<usize> {
    usize::try_from(length)
        .map_err(|_| Error::protocol(format!("a body of {length} bytes fits into no memory")))
}
