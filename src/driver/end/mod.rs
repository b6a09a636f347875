//! One end of a connection, at a server or at a client: a transport's connection, the state machine
//! that sends, and what belongs to no stream alone.
//!
//! A connection serves one stream after the other (rule E4), or many at once (section S). It
//! outlives its streams and the client while arrays point into the peer's memory (rule F6).

mod alarms;
mod attached;
mod leaving;
mod message;
mod outbound;
mod putting;
mod receiving;
mod returning;
mod sending;
mod stream_link;
mod turning;
mod upkeep;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

pub use message::{Gathered, LentHold};
pub use outbound::{Afterwards, Outbound, Progress};
pub use receiving::{StreamGpus, hand_on_bodies, peer_has_ended};
pub use sending::{Awaited, SendRoom, Writes};
pub use stream_link::StreamLink;

use alarms::Alarms;
use attached::AttachedStreams;

use crate::arrow::decode::KnownSchema;
use crate::driver::client_watch::ClientWatch;
use crate::driver::clock;
use crate::driver::io::{IoThread, Source};
use crate::driver::packed::PackedBody;
use crate::driver::returns::ReturnQueue;
use crate::driver::turning::{Link, Stirred, Turn, Turner};
use crate::error::{Error, Result, Status};
use crate::proto::{
    ArrivedRequest, QuietTimes, Role, RoleTags, Sender, SenderConfig, Session, SessionStream, Tags,
    Timestamp,
};
use crate::transport::{BodyWays, Connection, ConnectionReadiness, Profile, RegionPool};

/// A connection, as its threads share it.
pub type EndLink = Link<End>;

/// The sending side of a connection.
pub type OutSender = Sender<Gathered, LentHold>;

/// What an end knows of the protocol.
pub type EndSession = Session<Gathered, LentHold, PackedBody>;

/// What an end knows of one stream.
pub type EndStream = SessionStream<Gathered, LentHold, PackedBody>;

/// The server that accepted a connection. It is called without locks held.
pub trait Host: Send + Sync {
    /// Answers the request that the peer of `turner`'s connection has sent. Called on the I/O
    /// thread, which turns the connection again after this call.
    fn requested(&self, turner: Turner<End>, request: ArrivedRequest);

    /// The connection is over, and everything that it held is being given back.
    fn closed(&self, link: &Arc<EndLink>);
}

/// What a server allows a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServedLimits {
    /// While more bytes than this wait to be written, nothing new is produced.
    pub most_queued: u64,
    /// How many streams it carries at once (rule S1).
    pub streams: u32,
    /// How long it may go without a request.
    pub quiet: QuietTimes,
}

/// The parts of a connection that need no lock.
pub struct Context {
    /// Number of the connection at its server; 0 at a client.
    pub id: u64,
    pool: Option<Arc<RegionPool>>,
    /// `None` at a client.
    host: Option<Weak<dyn Host>>,
    /// What is to be given back to the peer.
    pub returns: Arc<ReturnQueue>,
    /// The schema of the stream that came last.
    pub schema: KnownSchema,
    /// At a client: the connection's place among those that the client counts. Dropped with it.
    _place: Option<Box<dyn Send + Sync>>,
}

impl Context {
    /// The server, while there is one.
    pub fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.as_ref()?.upgrade()
    }
}

/// One end of a connection.
pub struct End {
    pub(super) connection: Box<dyn Connection>,
    /// What this end knows of the protocol.
    pub session: EndSession,
    pool: Option<Arc<RegionPool>>,
    /// While more bytes than this wait to be written, nothing new is produced.
    most_queued: u64,
    /// Descriptors of regions whose REGION message the state machine has not given out yet.
    announced: HashMap<u16, Arc<OwnedFd>>,
    attached: AttachedStreams,
    /// Unanswered requests of a connection with many streams, and when to tell each client that the
    /// answer takes longer.
    unanswered: VecDeque<(Timestamp, u32)>,
    alarms: Alarms,
    /// Streams for which something has arrived.
    stirred: Stirred,
    /// So many bytes waited to be written that streams had to wait for room.
    was_crowded: bool,
    unread: Unread,
    /// More messages are about to follow the queued ones, so one system call can write all of them.
    writes: Writes,
    /// The last write found no room for everything.
    is_full: bool,
    /// When to look next for idle regions.
    retire_at: Option<Timestamp>,
    /// When to ask next whether the peer's machine still answers.
    probe_at: Option<Timestamp>,
    returns: Arc<ReturnQueue>,
    kept: Kept,
}

/// Messages that wait to be read and that no event announces.
#[derive(Debug, Default)]
struct Unread {
    /// The last read ended before the transport was empty: messages may be left.
    is_left: bool,
    /// The transport polls for messages: see [`Connection::wake`].
    is_polled: bool,
}

/// Why a client's connection is kept that neither a consumer nor the pool holds.
enum Kept {
    Nothing,
    /// A stream that its consumer has left, and what to do after its end.
    Leftover(Afterwards),
    /// The same for a second connection, which carries only the bodies; the link is the connection
    /// of the stream.
    LeftoverBodies(Afterwards, Arc<EndLink>),
    /// Lent memory, or a server that has not sent its last word yet.
    Retired(Arc<EndLink>),
}

/// What is to be done once the lock is released.
#[derive(Default)]
pub struct EndEffects {
    /// A request waits in the session for whoever holds the connection.
    is_asked: bool,
    /// Requests wait in the session for these streams, of a connection with many.
    asked: Vec<u32>,
    /// Memory that was lent when the connection ended.
    given_up: Option<Box<dyn Send>>,
    /// Streams that have lost their client.
    lost: SmallVec<[Arc<ClientWatch>; 1]>,
    /// Streams that are over; dropping them frees their places.
    sent: SmallVec<[Box<dyn Outbound>; 1]>,
    /// Why the connection is over, if this turn ended it.
    closed: Option<Error>,
    /// When to do the upkeep of the connection.
    upkeep_at: Option<Timestamp>,
    /// Regions that a thread of ours is about to unmap.
    unmapping: Vec<u16>,
    /// A connection that no longer has a reason to outlive its client.
    unkept: Option<Arc<EndLink>>,
    /// What to do after the end of a stream that its consumer has left.
    over: Option<Afterwards>,
    /// Bodies have come for a stream that this other connection carries.
    bodies_for: Option<Arc<EndLink>>,
}

impl EndLink {
    /// Takes over an accepted connection and begins to watch it. Fails if the system cannot watch
    /// the connection, which is closed then.
    pub fn start(
        id: u64,
        connection: Box<dyn Connection>,
        config: SenderConfig,
        limits: ServedLimits,
        io: &IoThread,
        host: Weak<dyn Host>,
    ) -> Result<Arc<Self>> {
        let free_tag = config.tags.both.and_then(|tags| tags.free_data);
        let Profile {
            is_ordered,
            carries_many,
            ..
        } = connection.identity().profile;
        // Rule S2: without order the tags of bodies have the number of the stream.
        let has_room = is_ordered || config.tags.leave_room_for_numbers();
        let session = Session::server(config, is_ordered, limits.quiet, clock::now());
        let mut end = End::new(connection, session, free_tag);
        end.most_queued = limits.most_queued;
        if carries_many && has_room {
            end.session.offer_streams(limits.streams);
        }
        let identity = end.connection.identity().clone();
        let context = Context {
            id,
            host: Some(host),
            ..end.context()
        };
        let link = Self::new(end, context, identity, io);
        link.ready();
        match link.inspect(|served| served.session.closed().cloned()) {
            // The peer may have gone meanwhile, which is not a failure here.
            Some(error) if error.status() == Status::OutOfResources => Err(error),
            _ => Ok(link),
        }
    }

    /// A new stream of a connection to a server that carries many.
    ///
    /// # Errors
    ///
    /// As [`Session::open`](crate::proto::Session::open).
    pub fn open_stream(&self) -> Result<Turner<End>> {
        let number = self.interfere(|end, _| end.session.open())?;
        self.guest(number).ok_or_else(is_over)
    }

    /// How bodies may travel to the peer.
    pub fn ways(&self) -> BodyWays {
        self.inspect(|end| end.connection.ways(end.session.is_extension()))
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.inspect(Turn::is_over)
    }

    /// Buffers lent and not yet given back.
    pub fn lent_outstanding(&self) -> u64 {
        self.inspect(|end| end.session.lent_outstanding() as u64)
    }
}

impl End {
    /// Takes over a connection to a server, whose URI has these tags. `place` is dropped with it.
    pub fn open(
        connection: Box<dyn Connection>,
        tags: Tags,
        io: &IoThread,
        place: Option<Box<dyn Send + Sync>>,
    ) -> Turner<Self> {
        let config = SenderConfig {
            tags: RoleTags::only(Role::Both, tags),
            ..SenderConfig::default()
        };
        let is_ordered = connection.identity().profile.is_ordered;
        let session = Session::client(config, is_ordered);
        let end = Self::new(connection, session, tags.free_data);
        let identity = end.connection.identity().clone();
        let context = Context {
            _place: place,
            ..end.context()
        };
        Link::held(end, context, identity, io)
    }

    /// `free_tag` is the `free_data` of the server's URI (rule U2).
    fn new(connection: Box<dyn Connection>, session: EndSession, free_tag: Option<u64>) -> Self {
        Self {
            pool: connection.pool(),
            connection,
            session,
            most_queued: u64::MAX,
            announced: HashMap::new(),
            attached: AttachedStreams::default(),
            unanswered: VecDeque::new(),
            alarms: Alarms::default(),
            stirred: Stirred::default(),
            was_crowded: false,
            unread: Unread::default(),
            writes: Writes::AtOnce,
            is_full: false,
            retire_at: None,
            probe_at: None,
            returns: Arc::new(ReturnQueue::new(free_tag)),
            kept: Kept::Nothing,
        }
    }

    fn context(&self) -> Context {
        Context {
            id: 0,
            pool: self.pool.clone(),
            host: None,
            returns: Arc::clone(&self.returns),
            schema: KnownSchema::default(),
            _place: None,
        }
    }

    /// A stream of the connection.
    ///
    /// # Errors
    ///
    /// `Cancelled`: it is over.
    pub fn stream(&self, number: u32) -> Result<&EndStream> {
        self.session.stream(number).ok_or_else(is_over)
    }

    /// The same, to be changed.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn stream_mut(&mut self, number: u32) -> Result<&mut EndStream> {
        self.session.stream_mut(number).ok_or_else(is_over)
    }

    /// Whether bodies on a GPU are lent there, as far as can be told beforehand.
    pub(super) fn lends_on_gpus(&self) -> bool {
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.lends_on_gpus())
    }

    pub(super) fn readiness(&self) -> &ConnectionReadiness {
        &self.connection.identity().readiness
    }
}

fn is_over() -> Error {
    Error::cancelled("the stream is over")
}

#[cfg(test)]
mod tests;
