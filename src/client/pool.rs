//! The pool of idle connections.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;

use crate::driver::clock;
use crate::driver::end::{End, EndLink};
use crate::driver::io::Source;
use crate::driver::turning::Turner;
use crate::proto::Timestamp;

/// The idle connections, by URI.
#[derive(Default)]
pub(super) struct Pool {
    /// For each URI, the most recently used connection is the last.
    kept: HashMap<Arc<str>, Vec<PooledConnection>>,
    /// The time of the timer that ends the oldest connection.
    due: Option<Timestamp>,
    /// The client was freed; requests may still be under way.
    is_closed: bool,
}

struct PooledConnection {
    connection: IdleConnection,
    kind: ConnectionKind,
    since: Timestamp,
}

/// How a connection was made. A stream reuses only a connection of the kind that it would make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKind {
    /// Number of sockets, if the transport can split bodies.
    pub sockets: u16,
    /// Messages have checksums, if the transport needs them.
    pub checksums: bool,
}

/// The key of an idle connection: the URI and the kind.
pub(super) type ConnectionKey = (Arc<str>, ConnectionKind);

/// An idle connection.
pub(super) enum IdleConnection {
    /// The pool owns the connection, and no thread watches it.
    Owned(Turner<End>),
    /// The I/O thread owns the connection.
    Watched(Arc<EndLink>),
}

impl IdleConnection {
    fn link(&self) -> &Arc<EndLink> {
        match self {
            Self::Owned(token) => token.link(),
            Self::Watched(link) => link,
        }
    }

    /// The connection for a stream, if it can serve one.
    fn take(self) -> Option<Turner<End>> {
        let mut token = match self {
            Self::Owned(token) => token,
            Self::Watched(link) => link.acquire()?,
        };
        token.step(|end, _| end.is_sound()).then_some(token)
    }

    /// Hands the connection over to the I/O thread for good. The connection ends with the last
    /// array that uses its memory.
    pub(super) fn retire(self) {
        let link = self.link();
        link.interfere(|end, effects| end.retire(link, effects));
    }
}

impl Pool {
    /// Takes a connection for the next stream.
    pub(super) fn take(&mut self, uri: &str, kind: ConnectionKind) -> Option<Turner<End>> {
        let kept = self.kept.get_mut(uri)?;
        while let Some(at) = kept.iter().rposition(|kept| kept.kind == kind) {
            if let Some(token) = kept.remove(at).connection.take() {
                return Some(token);
            }
        }
        None
    }

    /// Keeps a connection. If the URI has `most` connections, gives the oldest back.
    pub(super) fn keep(
        &mut self,
        uri: &Arc<str>,
        kind: ConnectionKind,
        token: Turner<End>,
        most: usize,
    ) -> Option<IdleConnection> {
        let connection = IdleConnection::Owned(token);
        if most == 0 || self.is_closed {
            return Some(connection);
        }
        let kept = self.kept.entry(Arc::clone(uri)).or_default();
        let oldest = (kept.len() >= most).then(|| kept.remove(0).connection);
        kept.push(PooledConnection {
            connection,
            kind,
            since: clock::now(),
        });
        oldest
    }

    /// Hands the connections over to the I/O thread, which calls this function. Drops ended
    /// connections, and returns those that were idle for `time`.
    pub(super) fn watch(&mut self, time: Duration) -> Vec<IdleConnection> {
        let now = clock::now();
        let mut expired = Vec::new();
        self.kept.retain(|_, kept| {
            let old = kept.partition_point(|kept| kept.since.saturating_add(time) <= now);
            expired.extend(kept.drain(..old).map(|kept| kept.connection));
            kept.retain_mut(|kept| {
                let link = Arc::clone(kept.connection.link());
                let watched = IdleConnection::Watched(Arc::clone(&link));
                if let IdleConnection::Owned(token) =
                    std::mem::replace(&mut kept.connection, watched)
                {
                    token.give_back_here();
                }
                // The server may have closed the connection right after the stream.
                link.ready();
                link.inspect(|end| end.session.closed().is_none())
            });
            !kept.is_empty()
        });
        expired
    }

    /// The time at which the oldest connection has been idle for `time`; `None` without
    /// connections, or if an earlier timer is set.
    pub(super) fn next_look(&mut self, time: Duration) -> Option<Timestamp> {
        let now = clock::now();
        self.due.take_if(|due| *due <= now);
        let oldest = self.kept.values().filter_map(|kept| kept.first());
        let expires = oldest.map(|kept| kept.since.saturating_add(time)).min()?;
        if self.due.is_some_and(|due| due <= expires) || expires == FOR_EVER {
            return None;
        }
        self.due = Some(expires);
        self.due
    }

    /// The number of idle connections.
    pub(super) fn len(&self) -> u64 {
        self.kept.values().map(|kept| kept.len() as u64).sum()
    }

    /// Takes all connections out, and keeps none from now on.
    pub(super) fn close(&mut self) -> impl Iterator<Item = IdleConnection> + use<> {
        self.is_closed = true;
        let kept = std::mem::take(&mut self.kept);
        kept.into_values().flatten().map(|kept| kept.connection)
    }
}

/// A time that never comes.
const FOR_EVER: Timestamp = Timestamp::from_nanos(u64::MAX);
