//! Bodies that were copied into memory [made to be fetched](crate::device::HostBuffer::to_be_fetched).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Bounced {
    pub(super) fn add(this: &Arc<Self>, len: u64) -> Bouncing {
        this.bodies.fetch_add(1, Ordering::Relaxed);
        this.bytes.fetch_add(len, Ordering::Relaxed);
        Bouncing {
            all: Arc::clone(this),
            len,
        }
    }

    /// Whether the next is better not made yet.
    pub(super) fn are_enough(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= ENOUGH_BYTES
            && self.bodies.load(Ordering::Relaxed) >= LEAST_BODIES
    }
}

/// One body on its way.
#[derive(Debug)]
pub struct Bouncing {
    all: Arc<Bounced>,
    len: u64,
}

impl Drop for Bouncing {
    fn drop(&mut self) {
        self.all.bodies.fetch_sub(1, Ordering::Relaxed);
        self.all.bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However large bodies are, one is made while another is fetched, and no more than that.
    #[test]
    fn one_is_made_while_another_is_fetched() {
        let bounced = Arc::<Bounced>::default();
        let first = Bounced::add(&bounced, 2 * ENOUGH_BYTES);
        assert!(!bounced.are_enough());
        let second = Bounced::add(&bounced, 2 * ENOUGH_BYTES);
        assert!(bounced.are_enough());
        drop(first);
        assert!(!bounced.are_enough());
        drop(second);
        let many: Vec<_> = (0..)
            .map(|_| Bounced::add(&bounced, ENOUGH_BYTES / 8))
            .take_while(|_| !bounced.are_enough())
            .collect();
        assert_eq!(many.len(), 7);
    }
}
