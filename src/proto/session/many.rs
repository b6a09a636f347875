//! Connections with many streams: the calls of their host, and the requests on them (section S).

use super::role::SessionRole;
use super::streams::StreamLimit;
use super::{Session, SessionStream};
use crate::error::{Error, Result, Status};
use crate::proto::{
    Control, FEATURE_RETURN, FEATURE_STREAMS, ProtocolError, Request, Role, SenderState,
};

/// Features of a client that may have many streams. Such a client returns lent bodies by number.
const ASKS_FOR_MANY: u64 = FEATURE_STREAMS | FEATURE_RETURN;

impl<P, K, B> Session<P, K, B> {
    /// At a server: takes up to `limit` streams at once from a client that asks for many. At a
    /// client: its first request asks for many streams. The client then opens up to `limit`
    /// streams, but no more than the server takes.
    pub fn offer_streams(&mut self, limit: u32) {
        if limit > 1 && self.streams.limit == StreamLimit::One {
            self.streams.limit = StreamLimit::Offered(limit);
        }
    }

    /// At a client: the server has answered without STREAMS.
    pub fn keep_one(&mut self) {
        if let StreamLimit::Offered(_) = self.streams.limit {
            self.streams.limit = StreamLimit::One;
        }
    }

    /// Whether the connection has streams that have not ended, or lent memory that was not
    /// returned.
    pub fn has_streams(&self) -> bool {
        !self.streams.is_idle()
    }

    /// At a client: whether no stream can begin any more.
    pub fn is_left(&self) -> bool {
        let may_open = self.ensure_may_open();
        may_open.is_err_and(|error| error.status() != Status::Busy)
    }

    /// How many streams the connection carries at once.
    pub fn stream_limit(&self) -> u32 {
        match self.streams.limit {
            StreamLimit::Many(limit) => limit,
            StreamLimit::One | StreamLimit::Offered(_) => 1,
        }
    }

    /// Whether the connection carries many streams.
    pub fn is_many(&self) -> bool {
        matches!(self.streams.limit, StreamLimit::Many(_))
    }

    /// Lent spans of all streams that are not yet returned.
    pub fn lent_outstanding(&self) -> usize {
        let all = self.streams.all();
        all.map(SessionStream::lent_outstanding).sum()
    }

    /// Whether the connection is needed although no stream runs: see [`SessionStream::is_needed`].
    pub fn is_needed(&self) -> bool {
        self.streams.all().any(SessionStream::is_needed)
    }

    /// At a server: whether a stream is asked for, or one of the two sides has to say its last
    /// word.
    pub fn is_under_way(&self) -> bool {
        let all = self.streams.all();
        all.map(SessionStream::state).any(|state| {
            matches!(
                state,
                SenderState::Requested
                    | SenderState::Streaming
                    | SenderState::Taking
                    | SenderState::Draining
            )
        })
    }

    /// The numbers of the streams that this server serves, or is asked to serve.
    pub fn serving(&self) -> Vec<u32> {
        self.streams.serving()
    }

    /// A stream of the connection.
    pub fn stream(&self, number: u32) -> Option<&SessionStream<P, K, B>> {
        self.streams.get(number)
    }

    /// As [`stream`](Self::stream), for changes.
    pub fn stream_mut(&mut self, number: u32) -> Option<&mut SessionStream<P, K, B>> {
        self.streams.get_mut(number)
    }

    /// At a client: whether [`open`](Self::open) would succeed.
    ///
    /// # Errors
    ///
    /// `Busy`: as many streams run as the server takes, or the numbers are used up. `Disconnected`:
    /// the server takes no further stream, or the connection is over.
    pub fn ensure_may_open(&self) -> Result<()> {
        self.ensure_open()?;
        if self.is_dismissed() {
            return Err(Error::disconnected("the server is being stopped"));
        }
        if !self.streams.has_room() || self.is_server() {
            return Err(Error::new(
                Status::Busy,
                "the connection has no room for a stream",
            ));
        }
        Ok(())
    }

    /// At a client: the number of a new stream, for its request. Give the stream back by
    /// [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`ensure_may_open`](Self::ensure_may_open).
    pub fn open(&mut self) -> Result<u32> {
        self.ensure_may_open()?;
        Ok(self.streams.open())
    }

    /// Notes that the host does not need a stream any more. The stream ends with the last word of
    /// both sides and the return of the last lent body.
    pub fn release(&mut self, number: u32) {
        self.streams.release(number);
    }

    /// A request for a stream has come.
    pub(super) fn requested(&mut self, role: Role, is_extension: bool, bytes: &[u8]) -> Result<()> {
        let asked = Request::of(is_extension, bytes).and_then(|request| {
            let cancelled = self.streams.asked_for(request.number)?;
            self.streams.ensure_ended()?;
            Ok((request, cancelled))
        });
        let (request, cancelled) = match asked {
            Ok(asked) => asked,
            Err(error) => return Err(self.streams.first.sender.close(error).into()),
        };
        let number = request.number;
        if let StreamLimit::Offered(limit) = self.streams.limit {
            let asks_for_many = request.features & ASKS_FOR_MANY == ASKS_FOR_MANY
                && role == Role::Both
                // READY names a message but no stream, so a client with GPUs does not get many
                // streams.
                && request.gpus.is_empty();
            // The first request decides. If its stream has the connection alone, this does not
            // change later.
            self.streams.limit = match asks_for_many {
                true => StreamLimit::Many(limit),
                false => StreamLimit::One,
            };
            if asks_for_many {
                self.say(&Control::Streams { limit }, None);
            }
        }
        let has_place = match number {
            0 => Ok(()),
            _ => self
                .ensure_serving()
                .and_then(|()| self.streams.ensure_room()),
        };
        // Rules E1 and Q12: the client gets a text, and the connection lives.
        let admitted = has_place.and_then(|()| request.ensure_served());
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        let is_refused = admitted.is_err();
        stream.requested(role, is_extension, request, admitted)?;
        if let Some(cancel) = cancelled {
            stream.sender.handle(&cancel)?;
        }
        if is_refused {
            self.release(number);
        }
        Ok(())
    }

    /// Fails if the server takes no further request (rule S8).
    fn ensure_serving(&self) -> Result<()> {
        match &self.role {
            SessionRole::Server(server) if server.is_going => Err(Error::new(
                Status::Busy,
                "the server takes no further stream on this connection: open another",
            )),
            _ => Ok(()),
        }
    }

    /// The server has said how many streams it takes.
    pub(super) fn learn_limit(&mut self, limit: u32) -> Result<(), ProtocolError> {
        match self.streams.limit {
            StreamLimit::Offered(most) => {
                self.streams.limit = StreamLimit::Many(limit.min(most));
                Ok(())
            }
            // The answer to the first request has overtaken STREAMS. The two sides would give their
            // next streams different numbers.
            StreamLimit::One if !self.streams.is_ordered => {
                self.role = SessionRole::Client { is_dismissed: true };
                Ok(())
            }
            StreamLimit::One | StreamLimit::Many(_) => Err(broken!(
                "S1",
                "STREAMS message that this client did not ask for"
            )),
        }
    }
}
