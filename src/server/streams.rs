//! The running streams of a server: their counts, and the streams that a connection can join.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::driver::clock;
use crate::driver::end::{Awaited, EndLink, StreamLink};
use crate::driver::produce::OutStream;
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;
use crate::server::errors::stopped;
use crate::server::peers::{Bounds, PeerKey};

/// How often streams are checked within the time for which a stream may wait for its client while
/// others want its place. The pause between two checks is at most [`LONGEST_PAUSE`].
const CHECKS: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The running streams.
#[derive(Default)]
pub struct StreamTable {
    counts: Mutex<StreamCounts>,
    ended: Condvar,
}

#[derive(Default)]
struct StreamCounts {
    /// Streams with a client whose last message is not sent yet, by the numbers of their slots.
    running: HashMap<u64, RunningStream>,
    /// How many of these streams each peer has.
    peers: HashMap<PeerKey, usize>,
    /// Streams with a thread, or with a request that the host has; a stop waits for them.
    active: usize,
    /// Running streams whose requests granted no credit.
    ungranted: usize,
    /// Active streams of providers and of the pull form; at most `max_providers`.
    provided: usize,
    /// Active streams whose clients have gone.
    lost: usize,
    /// How many such streams each peer has left: they count towards the peer's own bound.
    left: HashMap<PeerKey, usize>,
    served: u64,
    /// When to check next which streams wait for their clients.
    next_check: Option<Timestamp>,
    /// No more streams begin.
    closed: bool,
    /// Streams on two connections, by the id that their requests share (rule E6).
    joinable: HashMap<u128, Weak<OutStream>>,
}

struct RunningStream {
    peer: PeerKey,
    is_granted: bool,
    link: Weak<EndLink>,
    /// Number of the stream on its connection.
    on_link: u32,
    waits: Option<StreamWait>,
}

/// A wait of a stream for its client.
#[derive(Clone, Copy)]
struct StreamWait {
    /// When it was first seen.
    since: Timestamp,
    /// What [`StreamLink::awaited`] gave then.
    awaited: Awaited,
}

/// How many streams there may be.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    pub bounds: Bounds,
    /// Whether the request grants credit. Streams without credit get only few of the places.
    pub is_granted: bool,
    /// The bound on streams of providers and of the pull form, if the new stream is one of them.
    pub most_provided: Option<usize>,
    /// How long a stream may wait for its client while others want its place; `None`: for ever.
    pub credit_time: Option<Duration>,
}

/// How many streams a server has.
#[derive(Debug, Clone, Copy)]
pub struct StreamTotals {
    /// Active streams whose clients have not gone.
    pub with_client: usize,
    /// Streams begun since the start.
    pub begun: u64,
}

impl StreamTable {
    /// Gives a slot to one more stream, which the peer of `link` has asked for. If there is no
    /// slot, a stream that has waited too long for its client ends.
    ///
    /// # Errors
    ///
    /// `Busy` if too many streams are running or have providers, `Stopped` after
    /// [`close`](Self::close).
    pub fn acquire(self: &Arc<Self>, link: &StreamLink, limits: StreamLimits) -> Result<Arc<Slot>> {
        self.try_acquire(link, limits).or_else(|error| {
            let patience = limits
                .credit_time
                .filter(|_| error.status() == Status::Busy);
            match patience.is_some_and(|time| self.end_waiting(link, limits.bounds, time)) {
                true => self.try_acquire(link, limits),
                false => Err(error),
            }
        })
    }

    fn try_acquire(self: &Arc<Self>, link: &StreamLink, limits: StreamLimits) -> Result<Arc<Slot>> {
        let mut counts = self.counts.lock();
        if counts.closed {
            return Err(stopped());
        }
        let peer = PeerKey::of(link.origin());
        counts.ensure_place(peer, limits.bounds)?;
        let most_ungranted = limits.bounds.reserve().max(1);
        if !limits.is_granted && counts.ungranted >= most_ungranted {
            let text = format!(
                "the server has its most streams ({most_ungranted}) whose clients granted no \
                 credit when they asked; grant credit with the request"
            );
            return Err(Error::new(Status::Busy, text));
        }
        if let Some(most) = limits.most_provided
            && counts.provided >= most
        {
            let text = format!(
                "the server's providers are busy with {} streams, its most (max_providers), and \
                 the clients of {} of these have gone; raise it at the server, or give the request \
                 a deadline: until then it waits for a place",
                counts.provided, counts.lost
            );
            return Err(Error::new(Status::Busy, text));
        }
        let number = counts.served;
        let stream = RunningStream {
            peer,
            is_granted: limits.is_granted,
            link: Arc::downgrade(link),
            on_link: link.number(),
            waits: None,
        };
        counts.running.insert(number, stream);
        *counts.peers.entry(peer).or_default() += 1;
        counts.ungranted += usize::from(!limits.is_granted);
        counts.active += 1;
        counts.provided += usize::from(limits.most_provided.is_some());
        counts.served += 1;
        Ok(Arc::new(Slot {
            streams: Arc::clone(self),
            number,
            peer,
            provided: limits.most_provided.is_some(),
            is_lost: Mutex::new(false),
        }))
    }

    /// Ends the stream that has waited longest for its client, if it has waited for `patience` and
    /// its end makes a place for the peer of `link`. Returns whether a stream was ended.
    fn end_waiting(&self, link: &EndLink, bounds: Bounds, patience: Duration) -> bool {
        let Some(links) = self
            .counts
            .lock()
            .due_for_check((patience / CHECKS).min(LONGEST_PAUSE))
        else {
            return false;
        };
        // Called without the lock of the counts, because a stream that ends takes that lock under
        // the lock of its connection.
        let awaited = links.into_iter().filter_map(|(number, link)| {
            let awaited = link.awaited()?;
            Some((number, (awaited, link)))
        });
        let awaited = awaited.collect();
        let peer = PeerKey::of(link.origin());
        let longest = (self.counts.lock()).longest_waiting(awaited, peer, bounds, patience);
        let Some(waiting) = longest else {
            return false;
        };
        let text = format!(
            "the client let its stream wait for more than {} s while others wanted its place",
            patience.as_secs_f64()
        );
        tracing::warn!("a stream of {} ends: {text}", waiting.peer());
        waiting.cut_stream(&Error::timeout(text));
        true
    }

    /// Refuses further streams.
    pub fn close(&self) {
        self.counts.lock().closed = true;
    }

    /// Offers `stream` to its second connection.
    pub fn offer(&self, id: u128, stream: &Arc<OutStream>) {
        let mut counts = self.counts.lock();
        counts.joinable.retain(|_, known| known.strong_count() > 0);
        counts.joinable.insert(id, Arc::downgrade(stream));
    }

    /// The running stream with this id.
    pub fn find(&self, id: u128) -> Option<Arc<OutStream>> {
        self.counts.lock().joinable.get(&id).and_then(Weak::upgrade)
    }

    /// How many streams there are.
    pub fn counts(&self) -> StreamTotals {
        let counts = self.counts.lock();
        StreamTotals {
            with_client: counts.active - counts.lost,
            begun: counts.served,
        }
    }

    /// The number of active streams, with or without a client.
    pub fn active(&self) -> usize {
        self.counts.lock().active
    }

    /// Waits until no stream is active. Returns false after `deadline`.
    pub fn wait_idle(&self, deadline: Timestamp) -> bool {
        let mut counts = self.counts.lock();
        while counts.active > 0 {
            let left = clock::until(deadline);
            if left == Duration::ZERO {
                return false;
            }
            self.ended.wait_for(&mut counts, left);
        }
        true
    }
}

impl StreamCounts {
    fn ensure_place(&self, peer: PeerKey, bounds: Bounds) -> Result<()> {
        let of_peer = self.peers.get(&peer).copied().unwrap_or(0);
        let of_peer = of_peer + self.left.get(&peer).copied().unwrap_or(0);
        bounds.ensure_place(peer, self.running.len(), of_peer)
    }

    /// The connections of the running streams; `Some` at most once in each `pause`, so that a flood
    /// of requests costs no more checks than a few requests.
    fn due_for_check(&mut self, pause: Duration) -> Option<Vec<(u64, StreamLink)>> {
        let now = clock::now();
        if self.next_check.is_some_and(|next| now < next) {
            return None;
        }
        self.next_check = Some(now.saturating_add(pause));
        let linked = |(number, stream): (&u64, &RunningStream)| {
            let link = stream.link.upgrade()?;
            Some((*number, StreamLink::new(link, stream.on_link)))
        };
        Some(self.running.iter().filter_map(linked).collect())
    }

    /// Notes which streams wait for their clients now. Returns the connection of the stream that
    /// has waited longest, if it has waited for at least `patience` and its end would make a place
    /// for `peer`.
    fn longest_waiting(
        &mut self,
        mut awaited: HashMap<u64, (Awaited, StreamLink)>,
        peer: PeerKey,
        bounds: Bounds,
        patience: Duration,
    ) -> Option<StreamLink> {
        let now = clock::now();
        // If the peer itself has too many streams, only the end of one of its own makes a place.
        let of_peer = self.peers.get(&peer).copied().unwrap_or(0);
        let only_own = bounds.ensure_place(peer, 0, of_peer).is_err();
        let mut longest = None;
        for (number, stream) in &mut self.running {
            let Some((awaited, link)) = awaited.remove(number) else {
                stream.waits = None;
                continue;
            };
            let since = match stream.waits {
                Some(wait) if wait.awaited == awaited => wait.since,
                _ => now,
            };
            stream.waits = Some(StreamWait { since, awaited });
            if (!only_own || stream.peer == peer)
                && now >= since.saturating_add(patience)
                && longest.as_ref().is_none_or(|(longest, _)| since < *longest)
            {
                longest = Some((since, link));
            }
        }
        longest.map(|(_, link)| link)
    }

    fn end_running(&mut self, number: u64) {
        let Some(stream) = self.running.remove(&number) else {
            return;
        };
        self.ungranted -= usize::from(!stream.is_granted);
        remove_one(&mut self.peers, stream.peer);
    }
}

fn remove_one(counts: &mut HashMap<PeerKey, usize>, peer: PeerKey) {
    if let Some(count) = counts.get_mut(&peer) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&peer);
        }
    }
}

/// The slot of one stream. Its drop frees the slot.
pub struct Slot {
    streams: Arc<StreamTable>,
    number: u64,
    peer: PeerKey,
    /// The stream counts towards `max_providers`.
    provided: bool,
    /// Always locked before the streams' counts.
    is_lost: Mutex<bool>,
}

impl Slot {
    /// Called just before the stream's last message is sent: after that message the client may ask
    /// for the next stream.
    pub fn ending(&self) {
        self.streams.counts.lock().end_running(self.number);
    }

    /// Called when the stream's client has gone: another stream may run, even if the provider has
    /// not returned. Until then the stream counts as one of its peer.
    pub fn lost(&self) {
        self.ending();
        let mut is_lost = self.is_lost.lock();
        if !std::mem::replace(&mut *is_lost, true) {
            let mut counts = self.streams.counts.lock();
            counts.lost += 1;
            *counts.left.entry(self.peer).or_default() += 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let lost = *self.is_lost.get_mut();
        let mut counts = self.streams.counts.lock();
        counts.end_running(self.number);
        counts.active -= 1;
        counts.provided -= usize::from(self.provided);
        if lost {
            counts.lost -= 1;
            remove_one(&mut counts.left, self.peer);
        }
        drop(counts);
        self.streams.ended.notify_all();
    }
}

/// Frees the stream's place among `max_streams` just before its last message.
pub fn ending(slot: &Arc<Slot>) -> Box<dyn FnOnce() + Send> {
    let slot = Arc::downgrade(slot);
    Box::new(move || {
        if let Some(slot) = slot.upgrade() {
            slot.ending();
        }
    })
}

/// Informs the slot of a stream when the client has gone.
pub fn lose_with(stream: &OutStream, slot: &Arc<Slot>) {
    let slot = Arc::downgrade(slot);
    stream.watch.when_lost(Box::new(move || {
        if let Some(slot) = slot.upgrade() {
            slot.lost();
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::server::peers::STREAMS;

    /// Rule Q8: streams that a peer has left count towards its bound until they end, and towards
    /// no other peer's.
    #[test]
    fn streams_that_a_peer_has_left_are_its_own() {
        let peers = [1, 2].map(|last| PeerKey::Machine(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))));
        let bounds = Bounds::new(&STREAMS, 100, Some(3));
        let mut counts = StreamCounts::default();
        counts.peers.insert(peers[0], 1);
        counts.left.insert(peers[0], 2);
        let error = counts.ensure_place(peers[0], bounds).unwrap_err();
        assert_eq!(error.status(), Status::Busy);
        counts.ensure_place(peers[1], bounds).unwrap();
        remove_one(&mut counts.left, peers[0]);
        counts.ensure_place(peers[0], bounds).unwrap();
    }
}
