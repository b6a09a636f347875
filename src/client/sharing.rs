//! Connections that streams share (section S).
//!
//! The first stream of such a connection asks its server for many. Others that want to share wait
//! for the answer meanwhile, which comes before the server's host has decided anything. A server
//! that takes one stream at a time gets a connection for each.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex};

use super::core::ConnectionKey;
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::driver::end::{End, EndLink};
use crate::driver::turning::Turner;
use crate::driver::waiting::RETRY;
use crate::error::{Advice, Error, Result, Status};
use crate::proto::Timestamp;

/// How soon a request is made again for which no connection has room.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections that streams share.
#[derive(Default)]
pub(super) struct SharedConnections {
    servers: Mutex<HashMap<ConnectionKey, SharedServer>>,
    /// One more connection is open, or it is known that there will be none.
    changed: Condvar,
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
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Opening {
    #[default]
    Possible,
    /// A stream asks its server for many.
    UnderWay,
    /// The server took one stream at a time, when it was asked at this time.
    Refused(Timestamp),
}

/// Where a stream goes that wants to share.
pub(super) enum SharedPlace<'a> {
    /// On a connection that is open.
    Guest(Turner<End>),
    /// Its own connection is to be the next that streams share.
    Opener(Opener<'a>),
    /// Its server takes one stream at a time.
    Alone,
}

/// The right to open the next connection of a server. Dropping it lets another stream try.
pub(super) struct Opener<'a> {
    shared: &'a SharedConnections,
    key: ConnectionKey,
}

impl SharedConnections {
    /// A place for a stream, on one of `most` connections. Waits until `until` for the connection
    /// that another stream opens.
    ///
    /// # Errors
    ///
    /// `Busy`: all connections carry as many streams as the server takes. `Timeout`, `Cancelled`.
    pub(super) fn place(
        &self,
        key: &ConnectionKey,
        most: usize,
        until: Timestamp,
        cancel: Option<&Cancel>,
    ) -> Result<SharedPlace<'_>> {
        let mut servers = self.servers.lock();
        loop {
            let server = servers.entry(key.clone()).or_default();
            if let Some(guest) = server.open_stream() {
                return Ok(SharedPlace::Guest(guest));
            }
            match server.opening {
                Opening::Refused(_) => return Ok(SharedPlace::Alone),
                Opening::Possible if server.links.len() >= most => return Err(full(most)),
                Opening::Possible => {
                    server.opening = Opening::UnderWay;
                    return Ok(SharedPlace::Opener(Opener {
                        shared: self,
                        key: key.clone(),
                    }));
                }
                Opening::UnderWay => {}
            }
            if clock::now() >= until {
                return Err(Error::timeout(
                    "another stream opens the connection that this one is to share, and its server \
                     has not answered",
                ));
            }
            cancel.map_or(Ok(()), Cancel::check)?;
            // A token cannot end the wait.
            let pause = clock::until(until).min(RETRY);
            self.changed.wait_for(&mut servers, pause);
        }
    }

    /// A place on a connection that is open.
    pub(super) fn guest(&self, key: &ConnectionKey) -> Option<Turner<End>> {
        self.servers.lock().get_mut(key)?.open_stream()
    }

    /// Takes out connections that carry nothing, and have been used for nothing for `time`, and all
    /// that can carry nothing more. Returns when to look again.
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
            if let Opening::Refused(at) = server.opening
                && is_old(at)
            {
                server.opening = Opening::Possible;
            }
            let at = match server.opening {
                Opening::Refused(at) => Some(at),
                Opening::Possible | Opening::UnderWay => None,
            };
            let ends = server.links.iter().map(|shared| shared.used).chain(at);
            let ends = ends.map(|since| since.saturating_add(time));
            next = ends.chain(next).min();
            !server.links.is_empty() || server.opening != Opening::Possible
        });
        drop(servers);
        (over.into_iter().map(|shared| shared.link).collect(), next)
    }

    /// How many carry no stream.
    pub(super) fn idle(&self) -> u64 {
        let servers = self.servers.lock();
        let links = servers.values().flat_map(|server| &server.links);
        let is_idle = |shared: &&SharedLink| shared.link.inspect(|end| !end.session.has_streams());
        links.filter(is_idle).count() as u64
    }

    /// Takes all connections out.
    pub(super) fn close(&self) -> Vec<Arc<EndLink>> {
        let servers = std::mem::take(&mut *self.servers.lock());
        let links = servers.into_values().flat_map(|server| server.links);
        links.map(|shared| shared.link).collect()
    }
}

impl SharedServer {
    /// A stream of a connection that has room.
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
                // Its streams go on.
                Err(error) => error.status() == Status::Busy,
            }
        });
        guest
    }
}

impl Opener<'_> {
    /// The connection carries many streams.
    pub(super) fn opened(self, link: &Arc<EndLink>) {
        self.end(|server| {
            server.links.push(SharedLink {
                link: Arc::clone(link),
                used: clock::now(),
            });
        });
    }

    /// The server takes one stream at a time.
    pub(super) fn refused(self) {
        let now = clock::now();
        self.end(|server| server.opening = Opening::Refused(now));
    }

    fn end(&self, end: impl FnOnce(&mut SharedServer)) {
        let mut servers = self.shared.servers.lock();
        let server = servers.entry(self.key.clone()).or_default();
        end(server);
        if server.links.is_empty() && server.opening == Opening::Possible {
            servers.remove(&self.key);
        }
    }
}

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.end(|server| {
            if server.opening == Opening::UnderWay {
                server.opening = Opening::Possible;
            }
        });
        self.shared.changed.notify_all();
    }
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
