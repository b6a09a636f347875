//! One stream of a connection, for threads that do not turn the connection.

use std::ops::Deref;
use std::sync::Arc;

use super::{Awaited, End, EndLink, OutSender};
use crate::driver::client_watch::ClientWatch;
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{Grant, Headers, StreamInfo};

/// One stream of a connection.
#[derive(Clone)]
pub struct StreamLink {
    link: Arc<EndLink>,
    number: u32,
}

impl Deref for StreamLink {
    type Target = Arc<EndLink>;

    fn deref(&self) -> &Arc<EndLink> {
        &self.link
    }
}

impl Turner<End> {
    /// The stream of the token.
    pub fn stream(&self) -> StreamLink {
        StreamLink::new(Arc::clone(self.link()), self.number())
    }
}

impl StreamLink {
    /// The stream of this number.
    pub fn new(link: Arc<EndLink>, number: u32) -> Self {
        Self { link, number }
    }

    /// Number of the stream on its connection (rule S2).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Adds headers to the next answer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the headers are too long, or no stream is asked for or runs. If the
    /// stream is over: the error that ended it.
    pub fn add_answer_headers(&self, headers: &Headers) -> Result<()> {
        self.interfere(|end, _| end.stream_mut(self.number)?.add_answer_headers(headers))
    }

    /// Fails if something ended the stream.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.inspect(|end| end.stream(self.number)?.ensure_streaming())
    }

    /// Informs `watch` once the client of the stream that begins now has gone or has cancelled.
    pub fn set_watch(&self, watch: &Arc<ClientWatch>) {
        let set = self.interfere(|end, _| {
            end.stream(self.number)?.ensure_streaming()?;
            end.attached.make(self.number).watch = Some(Arc::clone(watch));
            Ok(())
        });
        let set: Result<()> = set;
        if set.is_err() {
            watch.lost();
        }
    }

    /// Whether the stream waits for its client, and how far it has come.
    pub fn awaited(&self) -> Option<Awaited> {
        self.inspect(|end| end.awaited(self.number))
    }

    /// Takes the stream `mark` that the client has described.
    ///
    /// # Errors
    ///
    /// `Cancelled`, or the connection is over.
    pub fn grant(&self, mark: u64, info: StreamInfo, grant: Grant) -> Result<()> {
        self.answer(mark, |sender| sender.grant(info, grant))
    }

    /// Tells the client that the first `batches` record batches of its stream are safe, as the host
    /// says.
    ///
    /// # Errors
    ///
    /// As [`Sender::say_result`](crate::proto::Sender::say_result), or the connection is over.
    pub fn say_result(&self, mark: u64, batches: u64, bytes: &[u8]) -> Result<()> {
        self.answer(mark, |sender| sender.say_result(batches, bytes))
    }

    /// Tells the client that the host has taken its stream of `batches` record batches.
    ///
    /// # Errors
    ///
    /// As [`Sender::finish_taking`](crate::proto::Sender::finish_taking), or the connection is
    /// over.
    pub fn finish_taking(&self, mark: u64, batches: u64) -> Result<()> {
        self.answer(mark, |sender| sender.finish_taking(batches))
    }

    fn answer(&self, mark: u64, answer: impl FnOnce(&mut OutSender) -> Result<()>) -> Result<()> {
        self.interfere(|end, effects| end.answer(self.number, mark, answer, effects))
    }

    /// Refuses or fails the client's stream. Tells nothing to a client that has gone.
    pub fn fail_taking(&self, mark: u64, status: i32, text: &str) {
        self.interfere(|end, effects| {
            let stream = end.stream_mut(self.number);
            // The client's next request may have come already.
            if stream.is_ok_and(|stream| stream.sender().mark() == Some(mark)) {
                end.send_failure(self.number, status, text, effects);
            }
        });
    }

    /// Ends a stream whose client kept it waiting for too long. Also ends the connection if it
    /// carries no other stream.
    pub fn cut_stream(&self, error: &Error) {
        self.interfere(|end, effects| match end.session.is_many() {
            true => end.cut_stream(self.number, error, effects),
            false => end.cut(error, effects),
        });
    }
}
