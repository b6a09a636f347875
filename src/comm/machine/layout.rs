//! Which ranks share a host.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::HashMap;

/// The number of a process in a communicator, from 0.
pub type Rank = u32;

/// The most ranks of a communicator.
pub const MOST_RANKS: Rank = 1 << 20;

/// Which ranks share a host. Clones share their memory.
#[derive(Debug, Clone)]
pub struct Layout {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Index: rank.
    places: Vec<usize>,
    /// The ranks of each host, ascending. Hosts are in the order of their lowest ranks.
    hosts: Vec<Vec<Rank>>,
}

impl Layout {
    /// The layout of ranks whose hosts have these identities, in the order of ranks. Equal texts
    /// mean one host. Texts after [`MOST_RANKS`] are left out.
    pub fn new(hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut known: HashMap<Box<str>, usize> = HashMap::default();
        let mut inner = Inner {
            places: Vec::new(),
            hosts: Vec::new(),
        };
        for (rank, host) in (0..MOST_RANKS).zip(hosts) {
            let place = match known.entry(host.as_ref().into()) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    inner.hosts.push(Vec::new());
                    *entry.insert(inner.hosts.len().saturating_sub(1))
                }
            };
            inner.places.push(place);
            if let Some(ranks) = inner.hosts.get_mut(place) {
                ranks.push(rank);
            }
        }
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> Rank {
        Rank::try_from(self.inner.places.len()).unwrap_or(MOST_RANKS)
    }

    /// True if both ranks exist and are on one host.
    pub fn same_host(&self, a: Rank, b: Rank) -> bool {
        self.host_of(a)
            .is_some_and(|host| self.host_of(b) == Some(host))
    }

    /// The number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.inner.hosts.len()
    }

    /// The number of the host of `rank`: hosts are in the order of their lowest ranks.
    pub(super) fn host_of(&self, rank: Rank) -> Option<usize> {
        let index = usize::try_from(rank).ok()?;
        self.inner.places.get(index).copied()
    }

    /// The ranks of a host, ascending; none for an unknown host.
    pub(super) fn ranks_of(&self, host: usize) -> &[Rank] {
        self.inner.hosts.get(host).map_or(&[], Vec::as_slice)
    }
}
