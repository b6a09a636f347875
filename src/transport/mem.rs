//! Connections inside one process, for tests of everything above the transports.
//!
//! Messages go through a pair of queues, each with an eventfd to wait on; descriptors are copied.
//! Bodies are lent as over shm.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::device::HostBuffer;
use crate::error::{Error, Result, Status};
use crate::proto::{BodyKind, ExpectedBody, Uri, body_of_tag};
use crate::transport::lend::{ByDescriptor, RegionPool, RegionTable};
use crate::transport::{
    Attempt, BodyWays, Connecting, Connection, ConnectionReadiness, Identity, Incoming,
    LinkOptions, Listener, Outgoing, PeerOrigin, Profile, Traffic, Transport, Trust, Watched,
    sends_host_memory_only,
};

/// The transport of scheme `mem:`.
#[derive(Debug)]
pub struct Mem;

/// The listeners by address.
static LISTENERS: Lazy<Mutex<HashMap<String, Weak<Backlog>>>> = Lazy::new(Mutex::default);

impl Transport for Mem {
    fn scheme(&self) -> &'static str {
        "mem"
    }

    fn trust(&self) -> Trust {
        Trust::PROCESS
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

    fn connecting<'a>(
        &'a self,
        uri: &'a Uri,
        options: &'a LinkOptions,
        _: &'a Attempt,
    ) -> Connecting<'a> {
        Box::pin(async { connect(uri, options) })
    }
}

fn connect(uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Connection>> {
    let backlog = LISTENERS.lock().get(&uri.address).and_then(Weak::upgrade);
    let Some(backlog) = backlog else {
        let text = format!("no server of this process listens at `{}`", uri.bare());
        return Err(Error::new(Status::Unreachable, text));
    };
    let (ours, theirs) = (Pipe::new()?, Pipe::new()?);
    let server = MemConnection::new(&theirs, &ours, &backlog.options);
    backlog.waiting.lock().push_back(server);
    notify(&backlog.arrived);
    Ok(Box::new(MemConnection::new(&ours, &theirs, options)))
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
    // A full counter means that a notification is already there.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

fn drain(event: &OwnedFd) {
    let mut counter = [0; 8];
    let _ = rustix::io::read(event, &mut counter);
}

/// What one end still has to read.
struct Pipe {
    state: Mutex<PipeState>,
    /// Readable while the queue has a message, or after the end.
    ready: Arc<OwnedFd>,
}

#[derive(Default)]
struct PipeState {
    queue: VecDeque<(u32, Incoming)>,
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
    pool: Arc<RegionPool>,
    regions: RegionTable,
    closed: bool,
}

impl MemConnection {
    fn new(incoming: &Arc<Pipe>, outgoing: &Arc<Pipe>, options: &LinkOptions) -> Self {
        let readiness = ConnectionReadiness {
            fd: Arc::clone(&incoming.ready) as _,
            socket: true,
            peer_death: None,
            peer_machine: None,
        };
        Self {
            identity: Identity {
                peer: "this process".to_owned(),
                origin: PeerOrigin {
                    scheme: "mem",
                    ..PeerOrigin::default()
                },
                same_user: true,
                readiness,
                descriptors: 1,
                profile: Profile {
                    trust: Trust::PROCESS,
                    ..Profile::SOCKET
                },
            },
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            pool: RegionPool::new(&options.lending, Box::new(ByDescriptor::default()), None),
            regions: RegionTable::default(),
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

    fn queue(&mut self, number: u32, message: Outgoing) -> Result<()> {
        if self.closed {
            return Err(gone());
        }
        // Copied now, so that this side drops what the message holds, as with a socket.
        let message = arrive(message)?;
        let mut state = self.outgoing.state.lock();
        if state.closed {
            return Err(gone());
        }
        state.queue.push_back((number, message));
        drop(state);
        notify(&self.outgoing.ready);
        Ok(())
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn post_body(&mut self, _: u32, _: ExpectedBody) {}

    fn forget_bodies(&mut self, _: u32) {}

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
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

    fn ways(&self, extension: bool) -> BodyWays {
        BodyWays::lending(&self.pool, extension)
    }

    fn pool(&self) -> Option<Arc<RegionPool>> {
        Some(Arc::clone(&self.pool))
    }

    fn table(&mut self) -> Option<&mut RegionTable> {
        Some(&mut self.regions)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.closed = true;
        self.pool.abandon();
        self.incoming.close();
        self.outgoing.close();
        // Messages that will not be read must drop what they hold.
        let unread = std::mem::take(&mut self.incoming.state.lock().queue);
        drop(unread);
        lent
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
        Outgoing::Control { bytes, fd } => Incoming::Control {
            bytes: bytes.into(),
            fd: (fd.map(|fd| fd.try_clone()).transpose())
                .map_err(|error| Error::io("cannot copy a descriptor", &error))?,
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
