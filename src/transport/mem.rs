//! Connections inside one process, for tests of everything above the transports.
//!
//! Messages go through a pair of queues, with an eventfd each to wait on. What is lent is copied
//! once into memory that both ends know by its address, and that lives until both have let go of
//! it. So streams over `mem:` show what the driver does with both kinds of bodies without any help
//! from the operating system.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, Span, Spans, Uri, body_of_tag};
use crate::transport::regions::no_regions;
use crate::transport::{
    Connection, Identity, Incoming, Lease, Lender, LinkOptions, Listener, OnGpu, Outgoing, Owner,
    PeerRegions, Placement, Profile, Queued, Readiness, Resolved, Transport, Unmapped, Watched,
    sends_host_memory_only,
};

/// The transport of scheme `mem:`.
#[derive(Debug)]
pub struct Mem;

/// Who listens, by address.
static LISTENERS: Lazy<Mutex<HashMap<String, Weak<Backlog>>>> = Lazy::new(Mutex::default);

impl Transport for Mem {
    fn scheme(&self) -> &'static str {
        "mem"
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        let mut listeners = LISTENERS.lock();
        if listeners
            .get(&uri.address)
            .is_some_and(|backlog| backlog.strong_count() > 0)
        {
            let text = format!(
                "a server of this process listens at `{}` already",
                uri.bare()
            );
            return Err(Error::new(Status::AddressInUse, text));
        }
        let backlog = Arc::new(Backlog {
            waiting: Mutex::default(),
            arrived: event()?,
            options: options.clone(),
        });
        listeners.insert(uri.address.clone(), Arc::downgrade(&backlog));
        Ok(Box::new(MemListener {
            backlog,
            address: uri.bare(),
        }))
    }

    fn connect(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Connection>> {
        let backlog = LISTENERS.lock().get(&uri.address).and_then(Weak::upgrade);
        let Some(backlog) = backlog else {
            let text = format!("no server of this process listens at `{}`", uri.bare());
            return Err(Error::new(Status::Unreachable, text));
        };
        let (ours, theirs) = (Pipe::new()?, Pipe::new()?);
        let lent = Arc::default();
        let server = MemConnection::new(&theirs, &ours, &lent, &backlog.options);
        backlog.waiting.lock().push_back(server);
        notify(&backlog.arrived);
        Ok(Box::new(MemConnection::new(&ours, &theirs, &lent, options)))
    }
}

/// Connections that wait to be accepted.
struct Backlog {
    waiting: Mutex<VecDeque<MemConnection>>,
    arrived: Arc<OwnedFd>,
    options: LinkOptions,
}

struct MemListener {
    backlog: Arc<Backlog>,
    address: String,
}

impl Listener for MemListener {
    fn fd(&self) -> Arc<dyn Watched> {
        Arc::clone(&self.backlog.arrived) as _
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let mut waiting = self.backlog.waiting.lock();
        let next = waiting.pop_front();
        if waiting.is_empty() {
            drain(&self.backlog.arrived);
        }
        Ok(next.map(|connection| Box::new(connection) as Box<dyn Connection>))
    }
}

fn event() -> Result<Arc<OwnedFd>> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map(Arc::new)
        .map_err(|errno| Error::os("cannot make a connection", errno))
}

fn notify(event: &OwnedFd) {
    // A full counter is a notification already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn drain(event: &OwnedFd) {
    let mut counter = [0; 8];
    let _ = rustix::io::read(event, &mut counter);
}

/// What one end has to read.
struct Pipe {
    state: Mutex<PipeState>,
    /// Readable while there is something in the queue, or after the end.
    ready: Arc<OwnedFd>,
}

#[derive(Default)]
struct PipeState {
    queue: VecDeque<Incoming>,
    closed: bool,
}

impl Pipe {
    fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            ready: event()?,
        }))
    }

    fn close(&self) {
        self.state.lock().closed = true;
        notify(&self.ready);
    }
}

struct MemConnection {
    identity: Identity,
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    lender: Arc<MemLender>,
    closed: bool,
}

impl MemConnection {
    fn new(
        incoming: &Arc<Pipe>,
        outgoing: &Arc<Pipe>,
        lent: &Arc<Lent>,
        options: &LinkOptions,
    ) -> Self {
        let readiness = Readiness {
            fd: Arc::clone(&incoming.ready) as _,
            socket: true,
            peer_death: None,
        };
        Self {
            identity: Identity {
                peer: "this process".to_owned(),
                same_user: true,
                readiness,
                profile: Profile::SOCKET,
            },
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            lender: Arc::new(MemLender {
                inline_bytes: options.inline_bytes,
                limit: AtomicU64::new(options.lent_limit),
                lent: Arc::clone(lent),
            }),
            closed: false,
        }
    }
}

fn gone() -> Error {
    Error::disconnected("the other end of the connection was closed")
}

impl Connection for MemConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, message: Outgoing) -> Result<()> {
        if self.closed {
            return Err(gone());
        }
        // Copied now: what the message holds is let go on this side, as with a socket.
        let message = arrive(message)?;
        let mut state = self.outgoing.state.lock();
        if state.closed {
            return Err(gone());
        }
        state.queue.push_back(message);
        drop(state);
        notify(&self.outgoing.ready);
        Ok(())
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn queued(&self) -> Queued {
        Queued::default()
    }

    fn post_body(&mut self, _seq: u32, _packed: u64, _list: u64) {}

    fn forget_bodies(&mut self) {}

    fn receive(&mut self) -> Result<Option<Incoming>> {
        if self.closed {
            return Err(gone());
        }
        let mut state = self.incoming.state.lock();
        match state.queue.pop_front() {
            Some(message) => Ok(Some(message)),
            None if state.closed => Err(gone()),
            None => {
                drain(&self.incoming.ready);
                Ok(None)
            }
        }
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        Some(Arc::clone(&self.lender) as Arc<dyn Lender>)
    }

    fn regions(&mut self) -> Option<&mut dyn PeerRegions> {
        Some(self)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.closed = true;
        self.incoming.close();
        self.outgoing.close();
        // Messages that nobody will read let go of what they hold.
        let unread = std::mem::take(&mut self.incoming.state.lock().queue);
        drop(unread);
        lent
    }
}

impl PeerRegions for MemConnection {
    fn map(&mut self, id: u16, _handle: &[u8], _fd: Option<OwnedFd>) -> Result<()> {
        Err(no_regions(id))
    }

    fn unmap(&mut self, id: u16) -> Result<Unmapped> {
        Err(no_regions(id))
    }

    fn resolve(&mut self, _seq: u32, spans: Vec<Span>) -> Result<Resolved> {
        let lent = self.lender.lent.bodies.lock();
        let mut owners = Vec::new();
        let mut buffers = Vec::with_capacity(spans.len());
        for span in spans {
            if span.length == 0 {
                buffers.push(BufferRef::EMPTY);
                continue;
            }
            let (body, bytes) = find(&lent, span).ok_or_else(|| {
                Error::protocol(format!(
                    // Rule A8.
                    "{} bytes at {:#x} are not lent",
                    span.length, span.address
                ))
            })?;
            buffers.push(bytes);
            owners.push(body);
        }
        Ok(Resolved {
            buffers,
            owner: Arc::new(owners),
            shared: true,
            pulled: false,
            gpu: None,
        })
    }
}

impl Drop for MemConnection {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A message as the other end sees it.
fn arrive(message: Outgoing) -> Result<Incoming> {
    Ok(match message {
        Outgoing::Metadata { prefix, header } => {
            let header = header.as_deref().unwrap_or_default();
            Incoming::Metadata([prefix.as_slice(), header].concat().into())
        }
        Outgoing::Control { bytes, fd: _ } => Incoming::Control {
            bytes: bytes.into(),
            fd: None,
        },
        Outgoing::GpuBody { .. } => return Err(sends_host_memory_only()),
        Outgoing::Tagged { tag, payload } => {
            let mut bytes = Vec::new();
            payload.append_to(&mut bytes);
            match body_of_tag(tag) {
                Some((seq, BodyKind::Packed)) => Incoming::Body {
                    seq,
                    memory: HostBuffer::copy_of(&bytes)?,
                },
                Some((_, BodyKind::List)) | None => Incoming::Tagged {
                    tag,
                    bytes: bytes.into(),
                },
            }
        }
    })
}

/// What one connection has lent, by address.
#[derive(Default)]
struct Lent {
    bodies: Mutex<BTreeMap<u64, Arc<HostBuffer>>>,
    bytes: AtomicU64,
    abandoned: AtomicBool,
}

/// The lent body that holds a span, and the span's bytes.
fn find(
    bodies: &BTreeMap<u64, Arc<HostBuffer>>,
    span: Span,
) -> Option<(Arc<HostBuffer>, BufferRef)> {
    let (base, body) = bodies.range(..=span.address).next_back()?;
    let start = usize::try_from(span.address - base).ok()?;
    let len = usize::try_from(span.length).ok()?;
    let bytes = body.as_slice().get(start..)?.get(..len)?;
    Some((Arc::clone(body), BufferRef::of(bytes)))
}

/// Lends copies.
struct MemLender {
    inline_bytes: u64,
    limit: AtomicU64,
    lent: Arc<Lent>,
}

/// A lent body, until it is back.
struct Hold {
    lent: Arc<Lent>,
    base: u64,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Rule F4: what the peer may still look for after a cut goes with the connection.
        if !self.lent.abandoned.load(Ordering::Relaxed) {
            self.lent.bodies.lock().remove(&self.base);
        }
        self.lent.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Lender for MemLender {
    fn place(&self, buffers: &[BufferRef], gpu: Option<OnGpu<'_>>) -> Result<Placement> {
        if gpu.is_some() {
            return Ok(Placement::Packed);
        }
        let bytes = buffers.iter().map(|buffer| buffer.len as u64).sum();
        let lent = self.lent.bytes.load(Ordering::Relaxed);
        if bytes <= self.inline_bytes || lent + bytes > self.limit.load(Ordering::Relaxed) {
            return Ok(Placement::Packed);
        }
        let padded = |len: usize| len.next_multiple_of(64);
        let mut body = HostBuffer::new(buffers.iter().map(|buffer| padded(buffer.len)).sum())?;
        let base = body.as_ref().data.addr() as u64;
        let mut spans = Spans::with_capacity(buffers.len());
        let mut at = 0;
        for buffer in buffers {
            // SAFETY: the caller holds the owner of the buffers, and producers do not write to
            // arrays that they have handed out.
            let source = unsafe { buffer.as_slice() };
            body.as_mut_slice()[at..at + source.len()].copy_from_slice(source);
            let address = if source.is_empty() {
                0
            } else {
                base + at as u64
            }; // Rule F3
            spans.push(Span {
                address,
                length: source.len() as u64,
            });
            at += padded(source.len());
        }
        self.lent.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.lent.bodies.lock().insert(base, Arc::new(body));
        Ok(Placement::Lent(Lease {
            copied: bytes,
            ..Lease::new(
                spans,
                Owner::One(Box::new(Hold {
                    lent: Arc::clone(&self.lent),
                    base,
                    bytes,
                })),
            )
        }))
    }

    fn set_client(&self, lent_limit: u64, _device_type: i32, _gpus: &[[u8; 16]]) {
        self.limit.fetch_min(lent_limit, Ordering::Relaxed);
    }

    fn retire_idle(&self) -> (Vec<u16>, Option<Duration>) {
        (Vec::new(), None)
    }

    fn region_forgotten(&self, _id: u16) {}

    fn abandon(&self) {
        self.lent.abandoned.store(true, Ordering::Relaxed);
    }
}
