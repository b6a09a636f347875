//! Who sends which table to whom in a collective.

use super::layout::{Layout, Rank};
use super::tree::Tree;

/// What a collective does with tables.
#[derive(Debug, Clone, Copy)]
pub enum Pattern {
    /// All ranks get the table of `root`.
    Broadcast {
        /// The rank that gives the table.
        root: Rank,
    },
    /// `root` gets the tables of all ranks.
    Gather {
        /// The rank that gets the tables.
        root: Rank,
    },
    /// All ranks get the tables of all ranks.
    AllGather,
    /// Each rank gets a part of the table of `root`.
    Scatter {
        /// The rank that gives the table.
        root: Rank,
    },
    /// Each rank gets a part of the table of each rank.
    Shuffle,
}

/// What one rank sends and gets in a collective.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// The ranks that this rank sends its own table, or parts of its own table, to. Never itself.
    pub outlets: Vec<Rank>,
    /// What arrives at this rank, in the order of sources.
    pub inlets: Vec<InletRoute>,
    /// True if this rank gives a table.
    pub is_source: bool,
    /// True if this rank gets a table.
    pub has_result: bool,
    /// True if its own table, or the part of its own table, is in its result.
    pub keeps_own: bool,
}

/// One table, or one part of a table, that arrives at a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InletRoute {
    /// The rank that gives the table. Never this rank itself.
    pub source: Rank,
    /// The rank that sends the table to this rank: the source, or a rank that passes it on.
    pub from: Rank,
    /// The ranks that this rank passes the table on to.
    pub relays: Vec<Rank>,
}

impl Routes {
    /// What rank `me` sends and gets. Nothing, if `me` or the root is not a rank of `layout`.
    pub fn new(pattern: Pattern, layout: &Layout, me: Rank) -> Self {
        let ranks = layout.ranks();
        if me >= ranks || pattern.root().is_some_and(|root| root >= ranks) {
            return Self::default();
        }
        let everyone = || (0..ranks).filter(|rank| *rank != me);
        let outlets = match pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } if me != root => Vec::new(),
            Pattern::Broadcast { .. } | Pattern::AllGather => Tree::new(layout, me).children(me),
            Pattern::Gather { root } if me == root => Vec::new(),
            Pattern::Gather { root } => vec![root],
            Pattern::Scatter { .. } | Pattern::Shuffle => everyone().collect(),
        };
        let inlets = match pattern {
            Pattern::Broadcast { root } => {
                InletRoute::by_tree(layout, root, me).into_iter().collect()
            }
            Pattern::AllGather => everyone()
                .filter_map(|source| InletRoute::by_tree(layout, source, me))
                .collect(),
            Pattern::Gather { root } if me != root => Vec::new(),
            Pattern::Scatter { root } if me == root => Vec::new(),
            Pattern::Scatter { root } => vec![InletRoute::direct(root)],
            Pattern::Gather { .. } | Pattern::Shuffle => {
                everyone().map(InletRoute::direct).collect()
            }
        };
        let (is_source, has_result) = match pattern {
            Pattern::Broadcast { root } | Pattern::Scatter { root } => (me == root, true),
            Pattern::Gather { root } => (true, me == root),
            Pattern::AllGather | Pattern::Shuffle => (true, true),
        };
        Self {
            outlets,
            inlets,
            is_source,
            has_result,
            keeps_own: is_source && has_result,
        }
    }
}

impl Pattern {
    fn root(self) -> Option<Rank> {
        match self {
            Self::Broadcast { root } | Self::Gather { root } | Self::Scatter { root } => Some(root),
            Self::AllGather | Self::Shuffle => None,
        }
    }
}

impl InletRoute {
    /// The table comes from its source, and goes no further.
    fn direct(source: Rank) -> Self {
        Self {
            source,
            from: source,
            relays: Vec::new(),
        }
    }

    /// The table comes down the tree of its source; `None` at the source.
    fn by_tree(layout: &Layout, source: Rank, me: Rank) -> Option<Self> {
        let tree = Tree::new(layout, source);
        Some(Self {
            source,
            from: tree.parent(me)?,
            relays: tree.children(me),
        })
    }
}
