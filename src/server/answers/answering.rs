//! One stream on the thread that sends what producers have brought.

use std::sync::Arc;
use std::time::Duration;

use super::offers::{Offers, wrong};
use crate::arrow::async_consumer::Produced;
use crate::arrow::format::parse_pairs;
use crate::driver::stream_loop::{LoopStream, Next, Watcher};
use crate::error::{Error, Result, Status};
use crate::proto::Headers;
use crate::server::request::ServerRequest;

/// The most steps of a stream before another stream goes on.
const AT_ONCE: usize = 16;
/// The key of a status in the metadata of a failure.
const STATUS_KEY: &[u8] = b"dipc_status";

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerPhase {
    /// It has no schema yet.
    Opening,
    Sending,
    /// The producer has brought everything.
    Ending,
}

/// A request, and what its producer brings. The drop cancels the producer first.
pub(super) struct Answering {
    request: ServerRequest,
    offers: Arc<Offers>,
    phase: AnswerPhase,
    watches_room: bool,
}

impl Answering {
    pub(super) fn new(request: ServerRequest, offers: Arc<Offers>) -> Self {
        Self {
            request,
            offers,
            phase: AnswerPhase::Opening,
            watches_room: false,
        }
    }

    /// Sends what the producer has brought.
    fn handle(&mut self, produced: Produced) -> Result<()> {
        match produced {
            Produced::Schema {
                schema,
                device_type,
                metadata,
            } => {
                self.add_headers(metadata.as_deref(), None)?;
                self.request.start(&schema, device_type)?;
                self.phase = AnswerPhase::Sending;
            }
            Produced::Task(task, metadata) => {
                let failed = |errno| {
                    let why = std::io::Error::from_raw_os_error(errno);
                    wrong(&format!("cannot give a batch: {why}"))
                };
                let array = task.extract().map_err(failed)?;
                let now = Some(Duration::ZERO);
                let pushed = self.request.push(array, metadata.as_deref(), now);
                pushed.map_err(|(error, _)| error)?;
            }
            Produced::End => self.phase = AnswerPhase::Ending,
            Produced::Failure { text, metadata, .. } => {
                let status = self.named_status(metadata.as_deref());
                if self.phase == AnswerPhase::Opening {
                    self.add_headers(metadata.as_deref(), Some(STATUS_KEY))?;
                }
                return Err(Error::new(status, text));
            }
            Produced::Release => {
                return Err(wrong("was released before the end of its stream"));
            }
        }
        Ok(())
    }

    /// Asks the producer for what the client has room for. Returns whether there is room.
    fn ask(&self) -> Result<bool> {
        let room = self.request.room()?;
        self.offers.ask(room);
        Ok(room > 0)
    }

    /// The status that the metadata of a failure name. A client's handler finds the status in its
    /// metadata in the same way.
    fn named_status(&self, metadata: Option<&[u8]>) -> Status {
        let pairs = metadata.map(parse_pairs).and_then(Result::ok);
        let named = pairs.iter().flatten().find(|(key, _)| *key == STATUS_KEY);
        let code = named.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
        code.and_then(Status::from_code).unwrap_or(Status::Provider)
    }

    /// Adds metadata to the headers of the answer. Leaves out pairs that cannot be headers.
    fn add_headers(&self, metadata: Option<&[u8]>, but: Option<&[u8]>) -> Result<()> {
        let Some(metadata) = metadata else {
            return Ok(());
        };
        let pairs = parse_pairs(metadata).map_err(Error::invalid_data)?;
        let mut headers = Headers::new();
        for (key, value) in pairs {
            if Some(key) != but
                && let Ok(key) = std::str::from_utf8(key)
            {
                let _ = headers.add(key, value);
            }
        }
        self.request.add_headers(&headers)
    }
}

impl LoopStream for Answering {
    type Word = ();

    fn hear(&mut self, (): ()) {}

    fn advance(&mut self) -> Result<Next> {
        for _ in 0..AT_ONCE {
            if self.request.is_cancelled() {
                return Ok(Next::Over);
            }
            if self.phase == AnswerPhase::Ending || self.request.is_complete() {
                return match self.request.finish(Some(Duration::ZERO)) {
                    Err(error) if error.status() == Status::Timeout => Ok(Next::Sleep),
                    finished => finished.map(|()| Next::Over),
                };
            }
            let has_room = self.phase == AnswerPhase::Opening || self.ask()?;
            match self.offers.next(has_room) {
                Some(produced) => self.handle(produced)?,
                None if self.offers.is_wrong() => {
                    return Err(wrong("brings more than it was asked for, or out of order"));
                }
                None if has_room => return Ok(Next::Idle),
                // No other thread reads the client's messages until the next call.
                None => return Ok(Next::Sleep),
            }
        }
        Ok(Next::More)
    }

    fn fail(&mut self, error: &Error) {
        self.request.fail(error.status().code(), error.text());
    }

    fn watch(&mut self, next: Next, watcher: Watcher<'_>) -> Result<()> {
        match (next, self.watches_room) {
            (Next::Sleep, false) => {
                // The descriptor is readable at first.
                self.request.with_fd(|fd| watcher.add_fd(fd))??;
                self.watches_room = true;
            }
            (Next::Idle, true) => {
                self.watches_room = false;
                self.request.with_fd(|fd| watcher.remove_fd(fd))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn unwatch(&mut self, watcher: Watcher<'_>) {
        if std::mem::take(&mut self.watches_room) {
            let _ = self.request.with_fd(|fd| watcher.remove_fd(fd));
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // Closed before the request is dropped, because that drop lets a stop of the server go on.
        self.offers.close();
    }
}
