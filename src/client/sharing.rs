//! Connections that streams share (section S).
//!
//! The first stream of such a connection asks its server to take many. Other streams that want to
//! share wait for the answer, which comes before the server's host decides anything. If the server
//! takes one stream at a time, each stream gets a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFlags, eventfd};

use super::pool::ConnectionKey;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::end::{End, EndLink};
use crate::driver::turning::Turner;
use crate::error::{Advice, Error, Result, Status};
use crate::proto::Timestamp;
use crate::transport::Attempt;

/// How soon to try a request again if no connection has room.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections that streams share.
#[derive(Default)]
pub(super) struct SharedConnections {
    servers: Mutex<HashMap<ConnectionKey, SharedServer>>,
}

/// The connections of one kind to one server.
#[derive(Default)]
struct SharedServer {
    links: Vec<SharedLink>,
    opening: Opening,
}

struct SharedLink {
    link: Arc<EndLink>,
    used: Timestamp,
}

/// Whether there may be one connection more.
#[derive(Debug, Default)]
enum Opening {
    #[default]
    Possible,
    /// A stream asks its server to take many streams. Other streams wait for the answer.
    UnderWay(Waiters),
    /// The server answered at this time that it takes one stream at a time.
    Refused(Timestamp),
}

/// The streams that are told when there may be a place.
#[derive(Debug, Default)]
struct Waiters {
    /// Readable when there may be a place. [`SLEEPERS`] streams share one descriptor; `sleepers`
    /// counts the streams on the last one.
    events: Vec<Arc<OwnedFd>>,
    sleepers: usize,
    bells: Vec<Arc<Bell>>,
}

/// How many sleep on one descriptor. The system limits how many nested epoll instances may watch
/// one descriptor: 500 at the second level, 50 at the fourth.
const SLEEPERS: usize = 50;

impl Waiters {
    fn event(&mut self) -> Result<Arc<OwnedFd>> {
        let last = self.events.last().filter(|_| self.sleepers < SLEEPERS);
        if let Some(event) = last {
            self.sleepers += 1;
            return Ok(Arc::clone(event));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|errno| Error::os("cannot wait for a place", errno))?;
        let event = Arc::new(event);
        self.events.push(Arc::clone(&event));
        self.sleepers = 1;
        Ok(event)
    }

    fn tell(self) {
        for event in &self.events {
            // A first write into an eventfd has room.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
        self.bells.iter().for_each(|bell| bell.ring());
    }
}

/// The place of a stream that wants to share.
pub(super) enum SharedPlace {
    /// On a connection that is open.
    Guest(Turner<End>),
    /// Its own connection is to be the next that streams share.
    Opener(Opener),
    /// Its server takes one stream at a time.
    Alone,
}

/// The right to open the next connection of a server. Dropping it lets another stream try.
pub(super) struct Opener {
    shared: Arc<SharedConnections>,
    key: ConnectionKey,
    /// The outcome of the opening, set at the drop.
    becomes: Opening,
}

impl SharedConnections {
    /// A place for a stream, on one of `most` connections. Waits until `until` for the connection
    /// that another stream opens.
    ///
    /// # Errors
    ///
    /// `Busy`: all connections carry as many streams as the server takes. `Timeout`, `Cancelled`.
    pub(super) async fn place(
        self: &Arc<Self>,
        key: &ConnectionKey,
        most: usize,
        until: Instant,
        attempt: &Attempt,
    ) -> Result<SharedPlace> {
        loop {
            let told = match self.look(key, most, Waiters::event)? {
                Ok(place) => return Ok(place),
                Err(told) => told,
            };
            if !attempt.ready(told, PollFlags::IN, until).await? {
                return Err(not_opened());
            }
        }
    }

    /// A place for a stream, on one of `most` connections. `None`: `later` rings when there may be
    /// one.
    ///
    /// # Errors
    ///
    /// `Busy`, as [`place`](Self::place).
    pub(super) fn place_at_once(
        self: &Arc<Self>,
        key: &ConnectionKey,
        most: usize,
        later: Option<&Arc<Bell>>,
    ) -> Result<Option<SharedPlace>> {
        let wait = |told: &mut Waiters| {
            told.bells.extend(later.cloned());
            Ok(())
        };
        self.look(key, most, wait).map(Result::ok)
    }

    /// A place for a stream. If there is none, the result of `wait`, which gets the list of the
    /// streams that are told of the next place.
    fn look<T>(
        self: &Arc<Self>,
        key: &ConnectionKey,
        most: usize,
        wait: impl FnOnce(&mut Waiters) -> Result<T>,
    ) -> Result<Result<SharedPlace, T>> {
        let mut servers = self.servers.lock();
        let server = servers.entry(key.clone()).or_default();
        if let Some(guest) = server.open_stream() {
            return Ok(Ok(SharedPlace::Guest(guest)));
        }
        match &mut server.opening {
            Opening::Refused(_) => Ok(Ok(SharedPlace::Alone)),
            Opening::Possible if server.links.len() >= most => Err(full(most)),
            Opening::Possible => {
                server.opening = Opening::UnderWay(Waiters::default());
                Ok(Ok(SharedPlace::Opener(Opener {
                    shared: Arc::clone(self),
                    key: key.clone(),
                    becomes: Opening::Possible,
                })))
            }
            Opening::UnderWay(told) => wait(told).map(Err),
        }
    }

    /// Takes out connections that carry no stream and were idle for `time`, and all that can carry
    /// no more streams. Returns when to look again.
    pub(super) fn expire(&self, time: Duration) -> (Vec<Arc<EndLink>>, Option<Timestamp>) {
        let now = clock::now();
        let (mut over, mut next) = (Vec::new(), None);
        let is_old = |since: Timestamp| now >= since.saturating_add(time);
        let mut servers = self.servers.lock();
        servers.retain(|_, server| {
            over.extend(server.links.extract_if(.., |shared| {
                let is_used = shared.link.inspect(|end| end.session.has_streams());
                if is_used {
                    shared.used = now;
                }
                is_old(shared.used) || shared.link.inspect(|end| end.session.is_left())
            }));
            let mut at = match server.opening {
                Opening::Refused(at) => Some(at),
                Opening::Possible | Opening::UnderWay(_) => None,
            };
            if at.take_if(|at| is_old(*at)).is_some() {
                server.opening = Opening::Possible;
            }
            let ends = server.links.iter().map(|shared| shared.used).chain(at);
            let ends = ends.map(|since| since.saturating_add(time));
            next = ends.chain(next).min();
            !server.links.is_empty() || !matches!(server.opening, Opening::Possible)
        });
        drop(servers);
        (over.into_iter().map(|shared| shared.link).collect(), next)
    }

    /// How many connections carry no stream.
    pub(super) fn idle(&self) -> u64 {
        let servers = self.servers.lock();
        let links = servers.values().flat_map(|server| &server.links);
        let is_idle = |shared: &&SharedLink| shared.link.inspect(|end| !end.session.has_streams());
        links.filter(is_idle).count() as u64
    }

    /// Takes all connections out.
    pub(super) fn close(&self) -> Vec<Arc<EndLink>> {
        let mut servers = self.servers.lock();
        let links = (servers.values_mut()).flat_map(|server| server.links.drain(..));
        let links = links.map(|shared| shared.link).collect();
        // Keeps the servers whose connection is being opened: streams may wait for the outcome.
        servers.retain(|_, server| matches!(server.opening, Opening::UnderWay(_)));
        links
    }
}

impl SharedServer {
    /// A new stream on a connection that has room.
    fn open_stream(&mut self) -> Option<Turner<End>> {
        let mut guest = None;
        self.links.retain_mut(|shared| {
            if guest.is_some() {
                return true;
            }
            match shared.link.open_stream() {
                Ok(opened) => {
                    shared.used = clock::now();
                    guest = Some(opened);
                    true
                }
                // Streams that this connection carries already go on.
                Err(error) => error.status() == Status::Busy,
            }
        });
        guest
    }
}

impl Opener {
    /// The server takes many streams over the connection `link`, or one at a time; `None`: it has
    /// not said so.
    pub(super) fn end(mut self, is_many: Option<bool>, link: &Arc<EndLink>) {
        match is_many {
            Some(true) => self.opened(link),
            Some(false) => self.becomes = Opening::Refused(clock::now()),
            None => {}
        }
    }

    fn opened(&self, link: &Arc<EndLink>) {
        let mut servers = self.shared.servers.lock();
        let server = servers.entry(self.key.clone()).or_default();
        server.links.push(SharedLink {
            link: Arc::clone(link),
            used: clock::now(),
        });
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let mut servers = self.shared.servers.lock();
        let server = servers.entry(self.key.clone()).or_default();
        let becomes = std::mem::take(&mut self.becomes);
        let was = std::mem::replace(&mut server.opening, becomes);
        if server.links.is_empty() && matches!(server.opening, Opening::Possible) {
            servers.remove(&self.key);
        }
        drop(servers);
        if let Opening::UnderWay(told) = was {
            told.tell();
        }
    }
}

/// The error of a stream that has waited too long for another stream's connection.
pub(super) fn not_opened() -> Error {
    Error::timeout(
        "no connection to the server was open in time; another stream may be opening the one that \
         this stream is to share",
    )
}

fn full(most: usize) -> Error {
    let text = format!(
        "the connections that streams share, {most} as `connections` allows, carry as many streams \
         as the server takes (max_streams_per_connection): raise one of the two, or give the \
         request a deadline, until which it waits"
    );
    let advice = Advice {
        retry_after: Some(PAUSE),
        ..Advice::default()
    };
    Error::new(Status::Busy, text).with_advice(Some(advice))
}
