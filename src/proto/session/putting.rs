//! A stream that a client sends: the request and the server's put.

use std::collections::VecDeque;

use super::role::StreamRole;
use super::{SessionEvent, SessionStream};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Request, SenderEvent};

/// Most results that wait for a client's host. The oldest go first, because later ones cover them.
pub(super) const MOST_RESULTS: usize = 1024;

/// The progress of the stream that this client sends, as the server's answers tell it.
#[derive(Debug, Default)]
pub struct PutProgress {
    /// The server's latest answer to the request.
    pub stage: PutStage,
    /// Headers of the put.
    pub headers: Headers,
    /// The statements of the server's host about safe parts of the stream, oldest first.
    pub results: VecDeque<HostResult>,
    /// The last word: how many batches the host has taken, or why it has not taken the stream.
    pub outcome: Option<Result<u64>>,
}

/// The answers of a server to a request to take a stream, in their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PutStage {
    /// No answer yet.
    #[default]
    Asked,
    /// The server has read the request.
    Heard,
    /// The server takes the stream.
    Granted,
}

/// The statement of a server's host that a part of a client's stream is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostResult {
    /// Number of record batches that this result covers, counted from the first one.
    pub batches: u64,
    /// Bytes from the host program, passed on unread.
    pub bytes: Vec<u8>,
}

impl PutProgress {
    /// Why the server does not take the stream.
    pub(super) fn refusal(&self) -> Option<&Error> {
        self.outcome.as_ref()?.as_ref().err()
    }
}

impl<P, K, B> SessionStream<P, K, B> {
    /// At a client: asks the server to take the stream of the request.
    ///
    /// # Errors
    ///
    /// As [`Sender::ask`](crate::proto::Sender::ask); `InvalidArgument` at a server.
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        let StreamRole::Client(put) = &mut self.role else {
            return Err(Error::invalid_argument("only a client asks"));
        };
        *put = Some(Box::default());
        self.sender.ask(request)
    }

    /// The progress of the stream that this client has last asked the server to take.
    pub fn put(&self) -> Option<&PutProgress> {
        match &self.role {
            StreamRole::Client(put) => put.as_deref(),
            StreamRole::Server(_) => None,
        }
    }

    /// As [`put`](Self::put), for changes: the host takes results out.
    pub fn put_mut(&mut self) -> Option<&mut PutProgress> {
        match &mut self.role {
            StreamRole::Client(put) => put.as_deref_mut(),
            StreamRole::Server(_) => None,
        }
    }

    /// Whether the server's last word on a stream that this client sends has yet to come.
    pub fn is_asking(&self) -> bool {
        self.sender.is_asking()
    }

    /// Whether the server's host has taken the last stream that this client has sent.
    pub fn has_ended_well(&self) -> bool {
        let outcome = self.put().and_then(|put| put.outcome.as_ref());
        outcome.is_some_and(Result::is_ok)
    }

    /// Notes that nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self) {
        if self.sender.is_asking() {
            let text = "the client does not wait any more";
            // This does not fail: a stream that the server was asked to take can be given up.
            let _ = self.sender.fail(Status::Cancelled.code(), text);
        }
    }

    pub(super) fn answered(&mut self, event: SenderEvent<K>) -> Option<SessionEvent<K>> {
        let StreamRole::Client(put) = &mut self.role else {
            return None;
        };
        let put = put.as_deref_mut()?;
        put.stage = put.stage.max(PutStage::Heard);
        match event {
            SenderEvent::Granted { grant, headers, .. } => {
                put.stage = PutStage::Granted;
                put.headers.extend(&headers);
                Some(SessionEvent::Granted {
                    lent_limit: grant.lent_limit,
                    device_type: grant.device_type,
                })
            }
            SenderEvent::Result { batches, bytes } => {
                if put.results.len() >= MOST_RESULTS {
                    put.results.pop_front();
                }
                put.results.push_back(HostResult { batches, bytes });
                None
            }
            SenderEvent::Refused { error, headers } => {
                put.headers.extend(&headers);
                put.outcome = Some(Err(error.context("the server")));
                self.events.push_back(SessionEvent::Answered);
                Some(SessionEvent::Lost)
            }
            SenderEvent::Finished { batches, headers } => {
                put.headers.extend(&headers);
                put.outcome = Some(Ok(batches));
                Some(SessionEvent::Answered)
            }
            _ => None,
        }
    }
}
