//! Connections that are kept for the next stream, for a while.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;

use crate::driver::clock;
use crate::driver::link::FetchLink;
use crate::proto::Timestamp;

/// The connections on which no stream is, by the URI that they were made for.
#[derive(Default)]
pub(super) struct Pool {
    /// Of each server the one last: it was used last.
    kept: HashMap<Arc<str>, Vec<Kept>>,
    /// When a timer is set that ends the oldest.
    due: Option<Timestamp>,
}

struct Kept {
    link: Arc<FetchLink>,
    /// Sockets that it has: connections made otherwise are other connections.
    sockets: u16,
    since: Timestamp,
}

impl Pool {
    /// Takes one for the next stream.
    pub(super) fn take(&mut self, uri: &str, sockets: u16) -> Option<Arc<FetchLink>> {
        let kept = self.kept.get_mut(uri)?;
        while let Some(at) = kept.iter().rposition(|kept| kept.sockets == sockets) {
            let Kept { link, .. } = kept.remove(at);
            if link.is_sound() {
                return Some(link);
            }
        }
        None
    }

    /// Keeps one. Gives the one that is kept no longer, where there are `most` for that server.
    pub(super) fn keep(
        &mut self,
        uri: &Arc<str>,
        sockets: u16,
        link: Arc<FetchLink>,
        most: usize,
    ) -> Option<Arc<FetchLink>> {
        if most == 0 {
            return Some(link);
        }
        let kept = self.kept.entry(Arc::clone(uri)).or_default();
        let oldest = (kept.len() >= most).then(|| kept.remove(0).link);
        kept.push(Kept {
            link,
            sockets,
            since: clock::now(),
        });
        oldest
    }

    /// Watches those that are kept, but not those that have ended, and not those that were kept for
    /// `time`: these it gives back.
    pub(super) fn watch(&mut self, time: Duration) -> Vec<Arc<FetchLink>> {
        let now = clock::now();
        let mut expired = Vec::new();
        self.kept.retain(|_, kept| {
            let old = kept.partition_point(|kept| kept.since.saturating_add(time) <= now);
            expired.extend(kept.drain(..old).map(|kept| kept.link));
            kept.retain(|kept| kept.link.watch().is_ok());
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
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<FetchLink>> + use<> {
        let kept = std::mem::take(&mut self.kept);
        kept.into_values().flatten().map(|kept| kept.link)
    }
}

/// A time that does not come.
const FOR_EVER: Timestamp = Timestamp::from_nanos(u64::MAX);
