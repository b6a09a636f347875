//! A connection's part in a stream that this client sends: the request and the server's answers.

use std::collections::VecDeque;

use super::{End, EndEffects, Gathered, LentHold};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Request, Sender, SenderEvent};

/// What a server has said of a stream that this client sends.
#[derive(Debug, Default)]
pub struct Answers {
    /// The server has read the request.
    pub is_heard: bool,
    /// The server takes the stream.
    pub is_granted: bool,
    /// Headers of the answers.
    pub headers: Headers,
    /// What the server's host said is safe, oldest first.
    pub results: VecDeque<HostResult>,
    /// The last word: how many batches the host has taken, or why not.
    pub outcome: Option<Result<u64>>,
}

/// The word of a server's host that a part of a client's stream is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostResult {
    /// Record batches from the first on that this result covers.
    pub batches: u64,
    /// Bytes of the host.
    pub bytes: Vec<u8>,
}

impl Answers {
    /// Why the server does not take the stream.
    pub(super) fn refusal(&self) -> Option<&Error> {
        self.outcome.as_ref()?.as_ref().err()
    }
}

/// Most results that wait for the host of a client; older ones, which later ones cover, go first.
const MOST_RESULTS: usize = 1024;

impl End {
    /// Asks the server to take the stream of the request. Leaves with the schema, which follows.
    ///
    /// # Errors
    ///
    /// As [`Sender::ask`], or the connection is over.
    pub fn ask(&mut self, request: &Request, effects: &mut EndEffects) -> Result<()> {
        self.answers = Some(Box::default());
        let ask = |sender: &mut Sender<Gathered, LentHold>| sender.ask(request);
        self.queue(&[], ask, effects)?
    }

    /// What the server has said of the stream.
    pub fn answers(&mut self) -> Option<&mut Answers> {
        self.answers.as_deref_mut()
    }

    /// Whether the server's last word on a stream that this client sends has yet to come.
    pub fn is_asking(&self) -> bool {
        self.sender.is_asking()
    }

    /// Whether the server's host has taken the last stream that this client has sent.
    pub fn has_ended_well(&self) -> bool {
        let outcome = self.answers.as_ref().and_then(|it| it.outcome.as_ref());
        outcome.is_some_and(Result::is_ok)
    }

    /// Nobody waits for the server's last word any more.
    pub fn stop_asking(&mut self, effects: &mut EndEffects) {
        if self.sender.is_asking() {
            let text = "the client does not wait any more";
            self.send_failure(Status::Cancelled.code(), text, effects);
        }
    }

    pub(super) fn answered(&mut self, event: SenderEvent<LentHold>, effects: &mut EndEffects) {
        let Some(answers) = self.answers.as_deref_mut() else {
            return;
        };
        answers.is_heard = true;
        match event {
            SenderEvent::Granted { grant, headers, .. } => {
                answers.is_granted = true;
                answers.headers.extend(&headers);
                if let Some(lender) = &self.lender {
                    lender.set_client(grant.lent_limit, grant.device_type, &[]);
                }
            }
            SenderEvent::Result { batches, bytes } => {
                if answers.results.len() >= MOST_RESULTS {
                    answers.results.pop_front();
                }
                answers.results.push_back(HostResult { batches, bytes });
            }
            SenderEvent::Refused { error, headers } => {
                answers.headers.extend(&headers);
                answers.outcome = Some(Err(error.context("the server")));
                effects.lost.clone_from(&self.watch);
                self.let_go(effects);
            }
            SenderEvent::Finished { batches, headers } => {
                answers.headers.extend(&headers);
                answers.outcome = Some(Ok(batches));
                self.let_go(effects);
            }
            _ => {}
        }
    }
}
