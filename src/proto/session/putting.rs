//! A stream that a client sends: the request and the server's put.

use std::collections::VecDeque;

use super::role::StreamRole;
use super::{SessionEvent, SessionStream};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Request, SenderEvent};

/// Most results that wait for a client's host. The oldest go first, because later ones cover them.
pub(super) const MOST_RESULTS: usize = 1024;

/// The progress of the stream that this client sends, by the server's answers.
#[derive(Debug, Default)]
pub struct PutProgress {
    /// What the server has said last of the request.
    pub stage: PutStage,
    /// Headers of the put.
    pub headers: Headers,
    /// What the server's host said is safe, oldest first.
    pub results: VecDeque<HostResult>,
    /// The last word: how many batches the host has taken, or why not.
    pub outcome: Option<Result<u64>>,
}

/// What a server says of a request to take a stream, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PutStage {
    /// Nothing.
    #[default]
    Asked,
    /// The server has read the request.
    Heard,
    /// The server takes the stream.
    Granted,
}

/// The word of a server's host that a part of a client's stream is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostResult {
    /// Record batches from the first on that this result covers.
    pub batches: u64,
    /// Bytes of the host.
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

    /// The progress of the stream that this client has asked for last.
    pub fn put(&self) -> Option<&PutProgress> {
        match &self.role {
            StreamRole::Client(put) => put.as_deref(),
            StreamRole::Server(_) => None,
        }
    }

    /// The same, for the host to take results.
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

    /// Nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self) {
        if self.sender.is_asking() {
            let text = "the client does not wait any more";
            // A stream that is asked for can be given up.
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
