//! One connection at a server: a transport's connection and the sending state machine.

mod leaving;
mod message;
mod sending;
mod turning;
mod upkeep;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use message::{Gathered, LentHold};
pub use sending::{SendRoom, Writes};

use crate::driver::io::{IoThread, Source};
use crate::driver::produce::{ClientWatch, Publication};
use crate::driver::turning::{Link, Turn, Turner};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Request, Role, Sender, SenderConfig, Timestamp};
use crate::transport::{Connection, Lender, Readiness};

/// A connection at a server.
pub type ServerLink = Link<ServerEnd>;

/// A request that arrived.
#[derive(Debug)]
pub struct ArrivedRequest {
    /// Ticket, credit and stream id.
    pub request: Request,
    /// Whether the peer speaks our extension (rule E1).
    pub extension: bool,
    /// Which streams the connection shall carry.
    pub role: Role,
}

/// The server that accepted a connection. Calls come without locks held.
pub trait Host: Send + Sync {
    /// Begins the stream that the peer of `turner`'s connection asks for, or refuses the request.
    fn begin(&self, turner: Turner<ServerEnd>, request: ArrivedRequest) -> Begun;

    /// Runs `work` on a thread of its own.
    fn run(&self, work: Box<dyn StreamWork>);

    /// The connection is over, and everything it held is on its way back.
    fn closed(&self, link: &Arc<ServerLink>);
}

/// Where a stream is served that has begun.
pub enum Begun {
    /// Where the connection is turned; also after a refusal.
    Here(Turner<ServerEnd>),
    /// On a thread of its own.
    Thread(Box<dyn StreamWork>),
    /// By a host of the pull form, or by the thread of the stream's other part.
    Elsewhere,
}

/// A stream that needs a thread of its own.
pub trait StreamWork: Send {
    /// Serves the stream. Gives the connection back, where it is free for the next request.
    fn run(self: Box<Self>) -> Option<Turner<ServerEnd>>;

    /// Ends the stream, for which there is no thread.
    fn refuse(self: Box<Self>, error: &Error);
}

/// What of a connection needs no lock.
pub struct Beside {
    /// Number of the connection at its server.
    pub id: u64,
    lender: Option<Arc<dyn Lender>>,
    host: Weak<dyn Host>,
}

impl Beside {
    /// The server, while there is one.
    pub fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.upgrade()
    }
}

/// One end of a connection, at a server.
pub struct ServerEnd {
    id: u64,
    connection: Box<dyn Connection>,
    sender: Sender<Gathered, LentHold>,
    lender: Option<Arc<dyn Lender>>,
    region_idle: Duration,
    /// Where more bytes than this wait to be written, nothing new is produced.
    most_queued: u64,
    /// Descriptors of regions whose REGION message has not left the state machine.
    announced: HashMap<u16, Arc<OwnedFd>>,
    publication: Option<Box<Publication>>,
    /// Told when the client of the stream now served has gone.
    watch: Option<Arc<ClientWatch>>,
    /// A request that came while the connection had a holder.
    waiting_request: Option<Box<ArrivedRequest>>,
    is_cancelled: bool,
    /// The last read was ended by its budget. The descriptor does not tell of messages that the
    /// transport has already.
    has_unread: bool,
    /// The client has heard that its request was read.
    is_pending_said: bool,
    /// More messages are about to follow those that are queued, and share their system call.
    writes: Writes,
    /// The last write found no room for everything.
    is_full: bool,
    /// When to look for idle regions next.
    retire_at: Option<Timestamp>,
    /// When to ask next whether the peer's machine still answers.
    probe_at: Option<Timestamp>,
    /// When the peer was first given the time to read what was said last, at a stop.
    dismissed_at: Option<Timestamp>,
    closed: Option<Error>,
}

/// What is to be done once the lock is released.
#[derive(Default)]
pub struct ServerEffects {
    /// Boxed, since there is one of these for each batch too.
    request: Option<Box<ArrivedRequest>>,
    /// Memory that was out when the connection ended.
    given_up: Option<Box<dyn Send>>,
    /// A stream that has lost its client.
    lost: Option<Arc<ClientWatch>>,
    /// The table has been sent; dropping this frees the stream's place.
    published: Option<Box<Publication>>,
    closed: bool,
}

impl ServerEffects {
    /// The request that has come; the caller begins the stream.
    pub fn take_request(&mut self) -> Option<ArrivedRequest> {
        self.request.take().map(|request| *request)
    }
}

impl ServerLink {
    /// Takes over an accepted connection and begins to watch it. While more than `most_queued`
    /// bytes wait to be written, nothing new is produced. Fails if the system cannot watch the
    /// connection, which is closed then.
    pub fn start(
        id: u64,
        connection: Box<dyn Connection>,
        config: SenderConfig,
        region_idle: Duration,
        most_queued: u64,
        io: &IoThread,
        host: Weak<dyn Host>,
    ) -> Result<Arc<Self>> {
        let identity = connection.identity().clone();
        let lender = connection.lender();
        let beside = Beside {
            id,
            lender: lender.clone(),
            host,
        };
        let served = ServerEnd {
            id,
            connection,
            sender: Sender::new(config),
            lender,
            region_idle,
            most_queued,
            announced: HashMap::new(),
            publication: None,
            watch: None,
            waiting_request: None,
            is_cancelled: false,
            has_unread: false,
            is_pending_said: false,
            writes: Writes::AtOnce,
            is_full: false,
            retire_at: None,
            probe_at: None,
            dismissed_at: None,
            closed: None,
        };
        let link = Self::new(served, beside, identity, io);
        link.ready();
        match link.look(|served| served.closed.clone()) {
            // The peer may have gone meanwhile, which is no failure here.
            Some(error) if error.status() == Status::OutOfResources => Err(error),
            _ => Ok(link),
        }
    }

    /// Memory for lending, where the transport has it and the peer understands it.
    pub fn lender(&self) -> Option<Arc<dyn Lender>> {
        let lender = self.beside.lender.clone()?;
        if self.look(|served| served.sender.is_extension()) {
            return Some(lender);
        }
        lender.for_baseline()
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.look(Turn::is_over)
    }

    /// Buffers lent and not yet given back.
    pub fn lent_outstanding(&self) -> u64 {
        self.look(|served| served.sender.lent_outstanding() as u64)
    }

    /// Adds headers to the next answer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the headers are too long, or no stream is asked for or runs.
    pub fn add_answer_headers(&self, headers: &Headers) -> Result<()> {
        self.interfere(|served, _| served.sender.add_answer_headers(headers))
    }

    /// Fails if something ended the stream.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.look(ServerEnd::ensure_streaming)
    }

    /// Has `watch` told once the client of the stream that begins now has gone or has cancelled.
    pub fn set_watch(&self, watch: &Arc<ClientWatch>) {
        let is_lost = self.interfere(|served, _| {
            served.watch = Some(Arc::clone(watch));
            served.ensure_streaming().is_err()
        });
        if is_lost {
            watch.lost();
        }
    }
}

impl ServerEnd {
    fn readiness(&self) -> &Readiness {
        &self.connection.identity().readiness
    }
}

#[cfg(test)]
mod tests;
