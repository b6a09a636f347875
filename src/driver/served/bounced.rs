//! Bodies that were copied into memory [made to be fetched](crate::device::HostBuffer::to_be_fetched).

mod ways;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

pub use ways::Attempt;
use ways::Ways;

use crate::device::HostBuffer;

/// So many bytes of them on the way are enough for a consumer to have something to fetch while the next is copied. Fewer
/// stay in the caches between the two.
const ENOUGH_BYTES: u64 = 4 << 20;
/// Fewer bodies are not, however large.
const LEAST_BODIES: u64 = 2;

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct Bounced {
    bodies: AtomicU64,
    bytes: AtomicU64,
    ways: Ways,
    /// The connection is being cut.
    cut: AtomicBool,
}

impl Bounced {
    /// How the next body, of `len` bytes, is to be copied.
    pub(super) fn attempt(&self, len: u64) -> Attempt {
        self.ways.begin(len)
    }

    /// One that has been copied so.
    pub(super) fn add(this: &Arc<Self>, body: HostBuffer, mut attempt: Attempt) -> Bouncing {
        attempt.copied();
        this.bodies.fetch_add(1, Ordering::Relaxed);
        this.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        Bouncing {
            all: Arc::clone(this),
            body: Some((body, attempt)),
        }
    }

    /// Whether the next is better not made yet.
    pub(super) fn are_enough(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= ENOUGH_BYTES
            && self.bodies.load(Ordering::Relaxed) >= LEAST_BODIES
    }

    /// Rule F4: what is still on its way is not used again. The client may have been told of it, and fetch it after the
    /// connection's end.
    pub(super) fn abandon(&self) {
        self.cut.store(true, Ordering::Release);
    }
}

/// One body on its way, dropped when it has been fetched.
#[derive(Debug)]
pub struct Bouncing {
    all: Arc<Bounced>,
    /// `None` only while being dropped.
    body: Option<(HostBuffer, Attempt)>,
}

impl Drop for Bouncing {
    fn drop(&mut self) {
        let Some((body, attempt)) = self.body.take() else {
            return;
        };
        let len = body.len() as u64;
        self.all.ways.fetched(&attempt, len, Instant::now());
        self.all.bodies.fetch_sub(1, Ordering::Relaxed);
        self.all.bytes.fetch_sub(len, Ordering::Relaxed);
        if self.all.cut.load(Ordering::Acquire) {
            body.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::device::huge::testing::{ALONE, reads};

    /// Rule F4: what a client may still fetch when its connection is cut is not used again, and cannot be read: it fails there
    /// instead of bringing what another stream has put there.
    #[test]
    fn what_a_cut_client_may_fetch_is_not_used_again() {
        let _alone = ALONE.lock();
        let bounced = Arc::<Bounced>::default();
        let take = || {
            let body = HostBuffer::to_be_fetched(100_000).unwrap();
            let data = NonNull::new(body.as_ref().data.cast_mut()).unwrap();
            (Bounced::add(&bounced, body, bounced.attempt(100_000)), data)
        };
        let (fetched, data) = take();
        drop(fetched);
        assert!(reads(data));
        let (body, data) = take();
        bounced.abandon();
        drop(body);
        assert!(!reads(data));
        assert!(!bounced.are_enough());
    }

    /// However large bodies are, one is made while another is fetched, and no more than that.
    #[test]
    fn one_is_made_while_another_is_fetched() {
        let bounced = Arc::<Bounced>::default();
        let add = |len: u64| {
            let body = HostBuffer::new(usize::try_from(len).unwrap()).unwrap();
            Bounced::add(&bounced, body, bounced.attempt(len))
        };
        let first = add(2 * ENOUGH_BYTES);
        assert!(!bounced.are_enough());
        let second = add(2 * ENOUGH_BYTES);
        assert!(bounced.are_enough());
        drop(first);
        assert!(!bounced.are_enough());
        drop(second);
        let many: Vec<_> = (0..)
            .map(|_| add(ENOUGH_BYTES / 8))
            .take_while(|_| !bounced.are_enough())
            .collect();
        assert_eq!(many.len(), 7);
    }
}
