//! A server that takes a stream of the client (rule Q3). A [`Receiver`](crate::proto::Receiver)
//! reads the stream.

use super::commands::misuse;
use super::{Sender, SenderState};
use crate::error::Error;
use crate::proto::{Control, Grant, MOST_RESULT, StreamInfo};

impl<P, K> Sender<P, K> {
    /// Takes the stream of the request. `info` has the features of the client's stream that are
    /// used from now on. The sender sets the version.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no client waits with a request to send a stream. `Cancelled`: the client
    /// has cancelled the request.
    pub fn grant(&mut self, mut info: StreamInfo, grant: Grant) -> Result<(), Error> {
        let state = self.state;
        let may_grant =
            !self.is_client && matches!(state, SenderState::Requested | SenderState::Streaming);
        self.ensure_wanted()?;
        match &mut self.stream {
            Some(stream) if may_grant && stream.has_source && !stream.is_granted => {
                stream.is_granted = true;
                info.version = stream.version;
            }
            _ => return Err(misuse("grant", state)),
        }
        let headers = self.take_answer_headers();
        self.control_out(&Control::Grant {
            info,
            grant,
            headers,
        });
        // Rule Q5: the server's own stream may run already.
        if state == SenderState::Requested {
            self.state = SenderState::Taking;
        }
        Ok(())
    }

    /// Tells the client that the first `batches` of its stream are safe (rule Q4).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream is taken, or more than [`MOST_RESULT`] bytes.
    pub fn say_result(&mut self, batches: u64, bytes: &[u8]) -> Result<(), Error> {
        let stream = self.taking("say_result")?;
        if bytes.len() > MOST_RESULT {
            return Err(Error::invalid_argument(format!(
                "a result of {} bytes; the limit is {MOST_RESULT}",
                bytes.len()
            )));
        }
        let result = Control::Result {
            stream,
            batches,
            bytes: bytes.to_vec(),
        };
        self.control_out(&result);
        Ok(())
    }

    /// Tells the client that the host has taken the whole stream.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream is taken, or the stream has not come to its end.
    pub fn finish_taking(&mut self, batches: u64) -> Result<(), Error> {
        let stream = self.taking("finish_taking")?;
        if self.state != SenderState::Taking {
            return Err(misuse("finish_taking", self.state));
        }
        if !self.has_incoming_ended() {
            return Err(Error::invalid_argument(
                "the client's stream has not come to its end",
            ));
        }
        let (seq, headers) = (self.next_seq(), self.take_answer_headers());
        let end = Control::End {
            stream,
            seq,
            batches,
            headers,
        };
        self.control_out(&end);
        self.said_last();
        Ok(())
    }

    /// Notes that the client's stream has come to its end: after an end of stream or ABORT nothing
    /// more of the stream comes.
    pub fn incoming_over(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.is_incoming_over = true;
        }
        if self.state == SenderState::Draining {
            self.stream = None;
            self.state = SenderState::Idle;
        }
    }

    /// Names the stream that is asked for or runs ([`Request::mark`](crate::proto::Request::mark)).
    pub fn mark(&self) -> Option<u64> {
        self.stream.as_ref().map(|stream| stream.mark)
    }

    /// Whether a client's stream is asked for, taken, or thrown away.
    pub fn is_taking(&self) -> bool {
        !self.is_client && self.stream.as_ref().is_some_and(|stream| stream.has_source)
    }

    fn has_incoming_ended(&self) -> bool {
        (self.stream.as_ref()).is_some_and(|stream| stream.is_incoming_over)
    }

    fn taking(&self, what: &str) -> Result<u64, Error> {
        match &self.stream {
            Some(stream) if stream.is_granted => Ok(stream.mark),
            _ => Err(misuse(what, self.state)),
        }
    }

    /// The server has said its last word on the stream. A stream that the client sends must still
    /// come to its end before the next request (rule Q10).
    pub(super) fn said_last(&mut self) {
        let drains = (self.stream.as_ref())
            .is_some_and(|stream| stream.has_source && !stream.is_incoming_over);
        if drains {
            self.state = SenderState::Draining;
        } else {
            self.stream = None;
            self.state = SenderState::Idle;
        }
    }
}
