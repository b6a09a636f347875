//! A server that drains: streams under way go on, and new requests are told where else to ask
//! (rule Q8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Server;
use crate::driver::produce::OutStream;
use crate::error::{Advice, Error, Result, Status};
use crate::proto::{ArrivedRequest, Role, Uri};
use crate::server::core::ServerCore;

/// Most URIs that a server which drains can name, and most bytes of one: clients read no more.
const MOST_URIS: usize = 16;
const MOST_URI_BYTES: usize = 1024;

/// Whether a server drains.
#[derive(Default)]
pub(super) struct Draining {
    is_on: AtomicBool,
    /// The answer to new requests.
    refusal: Mutex<Option<Error>>,
}

impl Draining {
    fn begin(&self, elsewhere: Vec<String>) {
        let text = match elsewhere.is_empty() {
            true => "the server drains before it stops, and takes no new requests; ask again later",
            false => {
                "the server drains before it stops, and takes no new requests; ask the servers \
                 that it names"
            }
        };
        let refusal = Error::new(Status::Busy, text).with_advice(Some(Advice {
            elsewhere,
            retry_after: None,
        }));
        *self.refusal.lock() = Some(refusal);
        self.is_on.store(true, Ordering::Release);
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Why new requests are refused, if they are.
    pub(super) fn refusal(&self) -> Option<Error> {
        match self.is_on() {
            true => self.refusal.lock().clone(),
            false => None,
        }
    }
}

impl ServerCore {
    /// Why a request is refused before anything is done for it. The second connection of a stream
    /// under way belongs to the stream.
    pub(super) fn ensure_not_draining(&self, asked: &ArrivedRequest) -> Result<()> {
        match self.draining.refusal() {
            Some(refusal) if self.joinable(asked).is_none() => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The stream under way whose second connection asks (rule E6).
    pub(super) fn joinable(&self, asked: &ArrivedRequest) -> Option<Arc<OutStream>> {
        if !asked.extension || asked.role == Role::Both {
            return None;
        }
        let stream = self.streams.find(asked.request.stream_id)?;
        (stream.ticket == asked.request.ticket).then_some(stream)
    }
}

impl Server {
    /// Refuses new requests from now on, with `Busy`. Streams under way go on, and the server goes
    /// on listening, so that clients hear where else they may ask: at `elsewhere`, best first.
    /// [`stop`](Self::stop) ends what is left. A later call names other URIs.
    ///
    /// Whoever can connect is told the URIs.
    ///
    /// # Errors
    ///
    /// `InvalidUri`; `InvalidArgument` for more than 16 URIs, or one of more than 1024 bytes;
    /// `Stopped`.
    pub fn drain(&self, elsewhere: &[&str]) -> Result<()> {
        self.core.ensure_running()?;
        if elsewhere.len() > MOST_URIS {
            let text = format!("a server that drains names at most {MOST_URIS} other servers");
            return Err(Error::invalid_argument(text));
        }
        for uri in elsewhere {
            if uri.len() > MOST_URI_BYTES {
                let text =
                    format!("the URI of another server has more than {MOST_URI_BYTES} bytes");
                return Err(Error::invalid_argument(text));
            }
            Uri::parse_all(&[uri])?;
        }
        tracing::info!("a server drains; {} others are named", elsewhere.len());
        let elsewhere = elsewhere.iter().map(|uri| (*uri).to_owned());
        self.core.draining.begin(elsewhere.collect());
        Ok(())
    }

    /// Whether the server takes requests: it listens, and neither drains nor was stopped.
    pub fn is_ready(&self) -> bool {
        self.core.ensure_running().is_ok()
            && !self.core.draining.is_on()
            && !self.core.listeners.lock().is_empty()
    }
}
