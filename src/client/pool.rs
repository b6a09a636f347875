//! Connections that are kept for the next stream, for a while.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;

use crate::driver::clock;
use crate::driver::fetch::{ClientEnd, ClientLink};
use crate::driver::io::Source;
use crate::driver::turning::Turner;
use crate::proto::Timestamp;

/// The connections without a stream, by the URI that they were made for.
#[derive(Default)]
pub(super) struct Pool {
    /// Of each server the one last that was used last.
    kept: HashMap<Arc<str>, Vec<Kept>>,
    /// When a timer is set that ends the oldest.
    due: Option<Timestamp>,
}

struct Kept {
    connection: Unused,
    /// Sockets that it has: connections made otherwise are other connections.
    sockets: u16,
    since: Timestamp,
}

/// A connection without a stream.
pub(super) enum Unused {
    /// The pool owns it. Nobody watches it.
    Owned(Turner<ClientEnd>),
    /// The I/O thread owns it.
    Watched(Arc<ClientLink>),
}

impl Unused {
    fn link(&self) -> &Arc<ClientLink> {
        match self {
            Self::Owned(token) => token.link(),
            Self::Watched(link) => link,
        }
    }

    /// The connection for a stream, if it can serve one.
    fn take(self) -> Option<Turner<ClientEnd>> {
        let mut token = match self {
            Self::Owned(token) => token,
            Self::Watched(link) => link.take()?,
        };
        token.step(|end, _| end.is_sound()).then_some(token)
    }

    /// Hands it over to the I/O thread for good: arrays may point into its memory, and it ends with
    /// the last of those.
    pub(super) fn retire(self) {
        self.link().interfere(|end, _| end.retire());
    }
}

impl Pool {
    /// Takes one for the next stream.
    pub(super) fn take(&mut self, uri: &str, sockets: u16) -> Option<Turner<ClientEnd>> {
        let kept = self.kept.get_mut(uri)?;
        while let Some(at) = kept.iter().rposition(|kept| kept.sockets == sockets) {
            if let Some(token) = kept.remove(at).connection.take() {
                return Some(token);
            }
        }
        None
    }

    /// Keeps one. Gives the one that is kept no longer, where there are `most` for that server.
    pub(super) fn keep(
        &mut self,
        uri: &Arc<str>,
        sockets: u16,
        token: Turner<ClientEnd>,
        most: usize,
    ) -> Option<Unused> {
        let connection = Unused::Owned(token);
        if most == 0 {
            return Some(connection);
        }
        let kept = self.kept.entry(Arc::clone(uri)).or_default();
        let oldest = (kept.len() >= most).then(|| kept.remove(0).connection);
        kept.push(Kept {
            connection,
            sockets,
            since: clock::now(),
        });
        oldest
    }

    /// Hands the connections over to the I/O thread, which calls this. Drops those that have ended,
    /// and returns those that were kept for `time`.
    pub(super) fn watch(&mut self, time: Duration) -> Vec<Unused> {
        let now = clock::now();
        let mut expired = Vec::new();
        self.kept.retain(|_, kept| {
            let old = kept.partition_point(|kept| kept.since.saturating_add(time) <= now);
            expired.extend(kept.drain(..old).map(|kept| kept.connection));
            kept.retain_mut(|kept| {
                let link = Arc::clone(kept.connection.link());
                let watched = Unused::Watched(Arc::clone(&link));
                if let Unused::Owned(token) = std::mem::replace(&mut kept.connection, watched) {
                    token.give_back_here();
                }
                // The end of the server may have come with the last message of a stream.
                link.ready();
                link.look(|end| end.closed().is_none())
            });
            !kept.is_empty()
        });
        expired
    }

    /// When the oldest was kept for `time`, if there is one and no timer is set before that.
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

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.kept.values().map(|kept| kept.len() as u64).sum()
    }

    /// All of them: none is kept any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Unused> + use<> {
        let kept = std::mem::take(&mut self.kept);
        kept.into_values().flatten().map(|kept| kept.connection)
    }
}

/// A time that does not come.
const FOR_EVER: Timestamp = Timestamp::from_nanos(u64::MAX);
