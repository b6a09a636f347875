//! A stream on its way out, as its connections, its request and its thread share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use crate::driver::bell::Bell;
use crate::driver::client_watch::ClientWatch;
use crate::driver::end::{End, StreamLink};
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{Headers, Role};
use crate::transport::PeerOrigin;

/// A stream as its connections, its request and its thread share it.
pub struct OutStream {
    /// The ticket asked for.
    pub ticket: Vec<u8>,
    /// Who asked first.
    pub peer: String,
    /// The peer as data.
    pub origin: PeerOrigin,
    /// Learns that the consumer has gone or has cancelled.
    pub watch: Arc<ClientWatch>,
    pub(super) outlets: Mutex<Outlets>,
    /// Wakes the thread that drives the stream; made when that thread first sleeps.
    bell: OnceCell<Arc<Bell>>,
    /// Another thread is about to fail the stream, and waits for the thread that drives it.
    given_up: AtomicBool,
}

/// The connections of a stream.
pub(super) struct Outlets {
    links: Vec<StreamLink>,
    /// The part that another connection may still bring (rule E6).
    pub(super) absent: Option<Role>,
    /// Connections that the stream's thread has not taken over yet.
    pub(super) joined: Vec<(Turner<End>, Role)>,
    /// Headers of the answer, which a connection that joins later sends too.
    headers: Headers,
}

impl OutStream {
    /// A stream asked for over the connection of `turner`. `joinable`: another connection may ask
    /// for the part that this one does not carry.
    pub fn new(ticket: Vec<u8>, turner: Turner<End>, role: Role, joinable: bool) -> Arc<Self> {
        let link = turner.stream();
        let absent = other_part(role).filter(|_| joinable);
        Self::over(ticket, link, Some((turner, role)), absent)
    }

    /// The answer to a client that sends the stream `link`: it has no batches.
    pub fn without_batches(ticket: Vec<u8>, link: StreamLink) -> Arc<Self> {
        Self::over(ticket, link, None, None)
    }

    fn over(
        ticket: Vec<u8>,
        link: StreamLink,
        joined: Option<(Turner<End>, Role)>,
        absent: Option<Role>,
    ) -> Arc<Self> {
        let watch = Arc::new(ClientWatch::default());
        link.set_watch(&watch);
        Arc::new(Self {
            ticket,
            peer: link.peer().to_owned(),
            origin: link.origin().clone(),
            watch,
            outlets: Mutex::new(Outlets {
                links: vec![link],
                absent,
                joined: joined.into_iter().collect(),
                headers: Headers::new(),
            }),
            bell: OnceCell::new(),
            given_up: AtomicBool::new(false),
        })
    }

    /// Adds the connection for the other part of the stream. Gives it back if it is not wanted.
    pub fn join(&self, turner: Turner<End>, role: Role) -> Result<(), Turner<End>> {
        let link = turner.stream();
        {
            let mut outlets = self.outlets.lock();
            if outlets.absent.take_if(|absent| *absent == role).is_none() {
                return Err(turner);
            }
            if !outlets.headers.is_empty() {
                // Added before the stream's thread answers on this connection. If the headers do
                // not fit, the other connection has sent them in two answers.
                let _ = link.add_answer_headers(&outlets.headers);
            }
            outlets.links.push(link.clone());
            outlets.joined.push((turner, role));
        }
        link.set_watch(&self.watch);
        self.ring();
        Ok(())
    }

    /// The stream is to fail: ends each wait for the consumer, on any thread, now and later.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// The stream is over: no connection may join, and its connections may carry other streams.
    pub(super) fn close(&self) {
        let mut outlets = self.outlets.lock();
        outlets.absent = None;
        outlets.links.clear();
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Wakes the thread that drives the stream. Changes before the first call rang no bell, so the
    /// caller looks once more.
    pub(super) fn bell(&self) -> Result<&Arc<Bell>> {
        self.bell.get_or_try_init(|| Bell::new().map(Arc::new))
    }

    /// Makes `bell` ring, unless another bell is set already. Then returns that one.
    pub(super) fn set_bell(&self, bell: Bell) -> Option<Arc<Bell>> {
        let set = self.bell.set(Arc::new(bell));
        set.is_err().then(|| self.bell.get().cloned()).flatten()
    }

    /// Adds headers to the server's next answer, on each connection of the stream: the client reads
    /// the headers on the connection of the metadata, which may be the last to come.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the headers are too long, or the stream is over.
    pub fn add_answer_headers(&self, headers: &Headers) -> Result<()> {
        // Locked throughout, so that a connection that joins at this moment gets each header once.
        let mut outlets = self.outlets.lock();
        if outlets.links.is_empty() {
            return Err(Error::invalid_argument("the stream is over"));
        }
        for link in &outlets.links {
            link.add_answer_headers(headers)?;
        }
        if outlets.absent.is_some() {
            outlets.headers.extend(headers);
        }
        Ok(())
    }

    /// Whether the consumer has gone or has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.links()
            .iter()
            .any(|link| link.ensure_streaming().is_err())
            || self.watch.is_lost()
    }

    pub(super) fn links(&self) -> Vec<StreamLink> {
        self.outlets.lock().links.clone()
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }
}

/// The part that another connection carries (rule U3).
fn other_part(role: Role) -> Option<Role> {
    match role {
        Role::Metadata => Some(Role::Data),
        Role::Data => Some(Role::Metadata),
        Role::Both => None,
    }
}
