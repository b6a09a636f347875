//! Trees over the ranks of a communicator.

use super::layout::{Layout, Rank};

/// With more hosts than this, the leaders form a binary tree: the root would send too often.
const MOST_FLAT_HOSTS: usize = 4;

/// Children of each rank in [`Tree::watch`].
const WATCH_ARITY: Rank = 4;

/// A rooted tree over ranks.
#[derive(Debug, Clone)]
pub struct Tree(Shape);

#[derive(Debug, Clone)]
enum Shape {
    /// One leader a host, which is the parent of the other ranks of its host.
    Hosts { layout: Layout, root: Rank },
    /// Each rank has the next [`WATCH_ARITY`] numbers that are free as its children.
    Numbers { ranks: Rank },
}

impl Tree {
    /// The tree in which tables go from `root` to all ranks. Without such a rank, the tree has no
    /// edges.
    ///
    /// Within a host, the leader is the parent of every other rank: memory that a receiver has
    /// mapped cannot be lent on, so only a flat tree copies nothing.
    pub fn new(layout: &Layout, root: Rank) -> Self {
        let layout = layout.clone();
        Self(Shape::Hosts { layout, root })
    }

    /// The tree in which ranks watch each other, without regard to hosts. Parents have lower
    /// numbers than their children; rank 0 is the root.
    pub fn watch(ranks: Rank) -> Self {
        Self(Shape::Numbers { ranks })
    }

    /// The parent of `rank`; `None` for the root and for unknown ranks.
    pub fn parent(&self, rank: Rank) -> Option<Rank> {
        match &self.0 {
            Shape::Hosts { layout, root } => Hosts::new(layout, *root)?.parent(rank),
            Shape::Numbers { ranks } if rank < *ranks => {
                rank.checked_sub(1)?.checked_div(WATCH_ARITY)
            }
            Shape::Numbers { .. } => None,
        }
    }

    /// The children of `rank`; none for unknown ranks.
    pub fn children(&self, rank: Rank) -> Vec<Rank> {
        match &self.0 {
            Shape::Hosts { layout, root } => {
                Hosts::new(layout, *root).map_or_else(Vec::new, |hosts| hosts.children(rank))
            }
            Shape::Numbers { ranks } => {
                let before = rank.saturating_mul(WATCH_ARITY);
                let first = before.saturating_add(1).min(*ranks);
                let end = first.saturating_add(WATCH_ARITY).min(*ranks);
                (first..end).collect()
            }
        }
    }

    /// `rank` and all ranks below it, ascending.
    pub(super) fn subtree(&self, rank: Rank) -> Vec<Rank> {
        let mut found = vec![rank];
        let mut next = 0;
        while let Some(rank) = found.get(next) {
            let children = self.children(*rank);
            found.extend(children);
            next = next.saturating_add(1);
        }
        found.sort_unstable();
        found
    }
}

/// The tree of a root that exists. A host's seat is its place in the tree of leaders: 0 for the
/// root's host, then the others in the order of hosts.
struct Hosts<'a> {
    layout: &'a Layout,
    root: Rank,
    root_host: usize,
}

impl<'a> Hosts<'a> {
    fn new(layout: &'a Layout, root: Rank) -> Option<Self> {
        let root_host = layout.host_of(root)?;
        Some(Self {
            layout,
            root,
            root_host,
        })
    }

    fn parent(&self, rank: Rank) -> Option<Rank> {
        let host = self.layout.host_of(rank)?;
        let leader = self.leader(host)?;
        if rank != leader {
            return Some(leader);
        }
        let before = self.seat_of(host).checked_sub(1)?;
        let parent = match self.is_flat() {
            true => 0,
            false => before >> 1,
        };
        self.leader(self.host_at(parent))
    }

    fn children(&self, rank: Rank) -> Vec<Rank> {
        let Some(host) = self.layout.host_of(rank) else {
            return Vec::new();
        };
        if self.leader(host) != Some(rank) {
            return Vec::new();
        }
        let hosts = self.layout.hosts();
        let seat = self.seat_of(host);
        let first = seat.saturating_mul(2).saturating_add(1);
        let below = match self.is_flat() {
            true if seat == 0 => 1..hosts,
            true => 0..0,
            false => first.min(hosts)..first.saturating_add(2).min(hosts),
        };
        // Other hosts come first: their ranks wait for one hop more.
        let mut children: Vec<Rank> = below
            .filter_map(|seat| self.leader(self.host_at(seat)))
            .collect();
        let others = self.layout.ranks_of(host).iter();
        children.extend(others.filter(|other| **other != rank));
        children
    }

    fn is_flat(&self) -> bool {
        self.layout.hosts() <= MOST_FLAT_HOSTS
    }

    fn leader(&self, host: usize) -> Option<Rank> {
        match host == self.root_host {
            true => Some(self.root),
            false => self.layout.ranks_of(host).first().copied(),
        }
    }

    fn seat_of(&self, host: usize) -> usize {
        match host {
            host if host == self.root_host => 0,
            host if host < self.root_host => host.saturating_add(1),
            host => host,
        }
    }

    fn host_at(&self, seat: usize) -> usize {
        match seat.checked_sub(1) {
            None => self.root_host,
            Some(before) if before < self.root_host => before,
            Some(_) => seat,
        }
    }
}
