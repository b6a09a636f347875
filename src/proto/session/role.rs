//! Which end of a connection a session is, and the state that only this end has.

use super::timing::Wait;
use super::{ArrivedRequest, PutProgress, QuietTimes, Session};
use crate::error::{Error, Result};
use crate::proto::{Sender, SenderState, Timestamp};

/// An end of a connection.
#[derive(Debug)]
pub(super) enum SessionRole {
    /// It connected.
    Client(ClientRole),
    /// It accepted the connection.
    Server(ServerRole),
}

/// The state of a client.
#[derive(Debug, Default)]
pub(super) struct ClientRole {
    /// The server serves no stream after the last one (GOAWAY).
    pub(super) is_dismissed: bool,
    /// The stream that this client has asked for last.
    pub(super) put: Option<Box<PutProgress>>,
}

/// The state of a server.
#[derive(Debug)]
pub(super) struct ServerRole {
    /// A request that came while the connection had a holder.
    pub(super) waiting: Option<Box<ArrivedRequest>>,
    /// The client has heard that its request was read.
    pub(super) is_pending_said: bool,
    /// The host waits for more of a client's stream, and has had so many batches.
    pub(super) host_has_had: Option<u64>,
    /// What the connection does without a request.
    pub(super) quiet: Wait,
    /// When the client was first given the time to read what was said last, at a stop.
    pub(super) dismissed_at: Option<Timestamp>,
}

impl ServerRole {
    pub(super) fn new(times: QuietTimes, now: Timestamp) -> Self {
        Self {
            waiting: None,
            is_pending_said: false,
            host_has_had: None,
            quiet: Wait::for_first_request(times, now),
            dismissed_at: None,
        }
    }

    pub(super) fn requested(&mut self) {
        self.is_pending_said = false;
        self.quiet.requested();
    }
}

impl SessionRole {
    pub(super) fn waiting_request(&self) -> Option<&ArrivedRequest> {
        match self {
            Self::Server(server) => server.waiting.as_deref(),
            Self::Client(_) => None,
        }
    }
}

impl<P, K, B> Session<P, K, B> {
    /// At a server: keeps a request until [`take_waiting`](Self::take_waiting).
    pub fn put_back(&mut self, request: Box<ArrivedRequest>) {
        if let SessionRole::Server(server) = &mut self.role {
            server.waiting = Some(request);
        }
    }

    /// The request that was put back.
    pub fn take_waiting(&mut self) -> Option<Box<ArrivedRequest>> {
        match &mut self.role {
            SessionRole::Server(server) => server.waiting.take(),
            SessionRole::Client(_) => None,
        }
    }

    /// Whether a request waits.
    pub fn has_waiting(&self) -> bool {
        self.role.waiting_request().is_some()
    }

    /// At a server: tells the client once that its request was read, and that the answer takes
    /// longer.
    pub fn say_pending(&mut self) {
        if let SessionRole::Server(server) = &mut self.role
            && !std::mem::replace(&mut server.is_pending_said, true)
        {
            self.sender.say_pending();
        }
    }

    /// At a server: the host waits for more of the client's stream, after so many batches; `None`:
    /// the host has something to do.
    pub fn set_host_waiting(&mut self, batches: Option<u64>) {
        if let SessionRole::Server(server) = &mut self.role {
            server.host_has_had = batches;
        }
    }

    /// Batches of the client's stream that the host has had, while it waits for more.
    pub fn host_has_had(&self) -> Option<u64> {
        match &self.role {
            // A host that has something to read does not wait.
            SessionRole::Server(server) => server.host_has_had.filter(|_| !self.has_message()),
            SessionRole::Client(_) => None,
        }
    }

    /// At a server: answers the client of the stream `mark`.
    ///
    /// # Errors
    ///
    /// Of `answer`; `Cancelled`: the stream is over.
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

    /// At a server: asks the client to end the connection, once. Returns when it was asked first.
    pub fn dismiss(&mut self, now: Timestamp) -> Timestamp {
        let SessionRole::Server(server) = &mut self.role else {
            return now;
        };
        let is_first = server.dismissed_at.is_none();
        let since = *server.dismissed_at.get_or_insert(now);
        if is_first {
            // It fails where the connection is over, and where the client knows no such message.
            let _ = self.go_away();
        }
        since
    }

    /// Whether the server serves no stream after the last one.
    pub fn is_dismissed(&self) -> bool {
        matches!(&self.role, SessionRole::Client(client) if client.is_dismissed)
    }

    /// Whether the peer is in the middle of a stream of this server, or waits for one.
    pub fn is_serving(&self) -> bool {
        matches!(
            self.state(),
            SenderState::Streaming | SenderState::Requested | SenderState::Taking
        )
    }
}
