//! Which end of a connection a session is, and the state that only this end has.

use super::inbound::InboundState;
use super::quiet::{QuietTimes, Wait};
use super::{ArrivedRequest, PutProgress, SessionStream};
use crate::error::{Error, Result};
use crate::proto::{Sender, SenderState, Timestamp};

/// An end of a connection.
#[derive(Debug)]
pub(super) enum SessionRole {
    /// The end that connected.
    Client {
        /// The server serves no stream after the last one (GOAWAY).
        is_dismissed: bool,
    },
    /// The end that accepted the connection.
    Server(ServerRole),
}

/// The state of a server's connection.
#[derive(Debug)]
pub(super) struct ServerRole {
    /// What the connection does without a request.
    pub(super) quiet: Wait,
    /// When the client was first given time to read the server's last messages, at a stop.
    pub(super) dismissed_at: Option<Timestamp>,
    /// The client was told that the server takes no further request (GOAWAY).
    pub(super) is_going: bool,
}

/// What a stream has at one end only.
#[derive(Debug)]
pub(super) enum StreamRole {
    /// The progress of the stream that this client has asked the server to take last.
    Client(Option<Box<PutProgress>>),
    Server(ServedStream),
}

/// What a stream has at a server.
#[derive(Debug, Default)]
pub(super) struct ServedStream {
    /// A request that was put back, to be handled later.
    waiting: Option<Box<ArrivedRequest>>,
    /// The client was told that its request was read.
    pub(super) is_pending_said: bool,
    /// Set while the host waits for more of the client's stream: the number of batches that the
    /// host has had.
    host_has_had: Option<u64>,
}

impl ServerRole {
    pub(super) fn new(times: QuietTimes, now: Timestamp) -> Self {
        Self {
            quiet: Wait::for_first_request(times, now),
            dismissed_at: None,
            is_going: false,
        }
    }
}

impl StreamRole {
    pub(super) fn server() -> Self {
        Self::Server(ServedStream::default())
    }

    /// The state of a new stream at the same end.
    pub(super) fn another(&self) -> Self {
        match self {
            Self::Client(_) => Self::Client(None),
            Self::Server(_) => Self::server(),
        }
    }
}

impl<P, K, B> SessionStream<P, K, B> {
    /// At a server: keeps a request until [`take_waiting`](Self::take_waiting).
    pub fn put_back(&mut self, request: Box<ArrivedRequest>) {
        if let StreamRole::Server(served) = &mut self.role {
            served.waiting = Some(request);
        }
    }

    /// The request that was put back.
    pub fn take_waiting(&mut self) -> Option<Box<ArrivedRequest>> {
        match &mut self.role {
            StreamRole::Server(served) => served.waiting.take(),
            StreamRole::Client(_) => None,
        }
    }

    /// Whether a request waits.
    pub fn has_waiting(&self) -> bool {
        matches!(&self.role, StreamRole::Server(served) if served.waiting.is_some())
    }

    /// Whether a request waits and no incoming stream delays it.
    pub fn has_request(&self) -> bool {
        self.has_waiting() && self.inbound != InboundState::Open
    }

    /// At a server: tells the client once that its request was read, and that the answer takes
    /// longer.
    pub fn say_pending(&mut self) {
        if let StreamRole::Server(served) = &mut self.role
            && !std::mem::replace(&mut served.is_pending_said, true)
        {
            self.sender.say_pending();
        }
    }

    /// At a server: notes that the host has had this number of batches of the client's stream, and
    /// waits for more. `None`: the host does not wait.
    pub fn set_host_waiting(&mut self, batches: Option<u64>) {
        if let StreamRole::Server(served) = &mut self.role {
            served.host_has_had = batches;
        }
    }

    /// Batches of the client's stream that the host has had, while it waits for more.
    pub fn host_has_had(&self) -> Option<u64> {
        match &self.role {
            // A host that has something to read does not wait.
            StreamRole::Server(served) => served.host_has_had.filter(|_| !self.has_message()),
            StreamRole::Client(_) => None,
        }
    }

    /// At a server: answers the client of the stream `mark`.
    ///
    /// # Errors
    ///
    /// Those of `answer`; `Cancelled`: the stream is over.
    pub fn answer(
        &mut self,
        mark: u64,
        answer: impl FnOnce(&mut Sender<P, K>) -> Result<()>,
    ) -> Result<()> {
        self.ensure_streaming()?;
        if self.sender.mark() != Some(mark) {
            return Err(Error::cancelled("the client's stream is over"));
        }
        answer(&mut self.sender)
    }

    /// Whether the peer is in the middle of a stream of this server, or waits for one.
    pub fn is_serving(&self) -> bool {
        matches!(
            self.state(),
            SenderState::Streaming | SenderState::Requested | SenderState::Taking
        )
    }
}
