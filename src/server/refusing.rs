//! Requests that a server refuses, and what it advises their clients (rule Q8).

use std::time::Duration;

use super::core::ServerCore;
use crate::driver::end::{ArrivedRequest, Begun, End};
use crate::driver::turning::Turner;
use crate::error::{Advice, Error, Status};

/// When a client should ask a busy server again: most streams are short.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl ServerCore {
    /// Answers a request by an error. `principal` is the host's name for the client.
    pub(super) fn refuse(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        principal: Option<String>,
        error: &Error,
    ) -> Begun {
        self.note_refusal(turner.link(), asked, principal, error);
        let error = &with_retry(error);
        if asked.request.verb.has_source() {
            match self.refuse_taking(turner, asked, error) {
                Ok(begun) => return begun,
                Err((_, given_back)) => {
                    turner = given_back;
                    // Nobody reads what the client has sent already.
                    turner.step(|served, _| served.end_receiving());
                }
            }
        }
        turner.step(|served, effects| served.send_refusal(error, effects));
        Begun::Here(turner)
    }
}

/// Rule Q8: says when to ask a busy server again, where it advises nothing else.
pub(super) fn with_retry(error: &Error) -> Error {
    let error = error.clone();
    if error.status() != Status::Busy || error.advice().is_some() {
        return error;
    }
    error.with_advice(Some(Advice {
        retry_after: Some(RETRY_AFTER),
        ..Advice::default()
    }))
}
