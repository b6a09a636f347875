//! Promises of [`Tree`] and [`Routes`], over many layouts.

use std::collections::{BTreeMap, VecDeque};

use super::{Dice, Layout, Rank, index};
use crate::comm::machine::{Pattern, Routes, Tree};

fn patterns(root: Rank) -> [Pattern; 5] {
    [
        Pattern::Broadcast { root },
        Pattern::Gather { root },
        Pattern::AllGather,
        Pattern::Scatter { root },
        Pattern::Shuffle,
    ]
}

/// True if the table of `source`, or a part of it, is due at `rank`.
fn is_due(pattern: Pattern, source: Rank, rank: Rank) -> bool {
    match pattern {
        Pattern::Broadcast { root } | Pattern::Scatter { root } => source == root,
        Pattern::Gather { root } => rank == root,
        Pattern::AllGather | Pattern::Shuffle => true,
    }
}

/// Promise of [`Routes`]: each table arrives exactly once at each rank that is due to get it, over
/// edges on which both ends agree, and nowhere else.
#[test]
fn each_table_arrives_once_where_it_is_due() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let layout = dice.layout(40);
        let ranks = layout.ranks();
        for pattern in patterns(dice.rank(ranks)) {
            let routes: Vec<_> = (0..ranks)
                .map(|me| Routes::new(pattern, &layout, me))
                .collect();
            let arrivals = deliver(&routes);
            for source in 0..ranks {
                for rank in 0..ranks {
                    let kept = usize::from(source == rank && routes[index(rank)].keeps_own);
                    let arrived = arrivals.get(&(source, rank)).copied().unwrap_or(0);
                    let due = usize::from(is_due(pattern, source, rank));
                    assert_eq!(kept + arrived, due, "{pattern:?} {source} {rank}");
                }
            }
            let inlets: usize = routes.iter().map(|it| it.inlets.len()).sum();
            assert_eq!(inlets, arrivals.len(), "{pattern:?}");
        }
    }
}

/// How often the table of a source arrives at a rank.
fn deliver(routes: &[Routes]) -> BTreeMap<(Rank, Rank), usize> {
    let mut arrivals = BTreeMap::new();
    let mut sent = VecDeque::new();
    for (me, route) in (0..).zip(routes) {
        assert!(route.is_source || route.outlets.is_empty());
        sent.extend(route.outlets.iter().map(|to| (me, me, *to)));
    }
    while let Some((source, from, to)) = sent.pop_front() {
        assert_ne!(from, to);
        let inlets = &routes[index(to)].inlets;
        let at = inlets
            .binary_search_by_key(&source, |it| it.source)
            .unwrap();
        assert_eq!(inlets[at].from, from);
        *arrivals.entry((source, to)).or_default() += 1;
        sent.extend(inlets[at].relays.iter().map(|next| (source, to, *next)));
    }
    arrivals
}

/// Promise of [`Routes`]: the ranks that give and get tables are those of the pattern.
#[test]
fn sources_and_results_are_those_of_the_pattern() {
    let layout = Layout::new(["a", "b", "a"]);
    for root in 0..3 {
        for me in 0..3 {
            for pattern in patterns(root) {
                let routes = Routes::new(pattern, &layout, me);
                let gives = (0..3).any(|rank| is_due(pattern, me, rank));
                let gets = (0..3).any(|source| is_due(pattern, source, me));
                let is_source = gives || matches!(pattern, Pattern::Gather { .. });
                assert_eq!(routes.is_source, is_source, "{pattern:?} {me}");
                assert_eq!(routes.has_result, gets, "{pattern:?} {me}");
                assert_eq!(
                    routes.keeps_own,
                    is_due(pattern, me, me),
                    "{pattern:?} {me}"
                );
            }
        }
    }
}

/// Promise of [`Routes::new`] and [`Tree::new`]: ranks that do not exist have no routes.
#[test]
fn unknown_ranks_have_no_routes() {
    let layout = Layout::new(["a", "b"]);
    for pattern in patterns(2) {
        if !matches!(pattern, Pattern::AllGather | Pattern::Shuffle) {
            assert_eq!(Routes::new(pattern, &layout, 0), Routes::default());
        }
        assert_eq!(Routes::new(pattern, &layout, 2), Routes::default());
    }
    for tree in [Tree::new(&layout, 0), Tree::new(&layout, 9), Tree::watch(2)] {
        for rank in [2, 9, Rank::MAX] {
            assert_eq!(tree.parent(rank), None);
            assert_eq!(tree.children(rank), Vec::<Rank>::new());
        }
    }
    assert_eq!(
        Tree::new(&Layout::new([""; 0]), 0).children(0),
        Vec::<Rank>::new()
    );
}

/// Promise of [`Tree`]: parents and children agree, and each rank is below the root.
#[test]
fn a_tree_reaches_each_rank_once() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let layout = dice.layout(60);
        let ranks = layout.ranks();
        let root = dice.rank(ranks);
        for (tree, root) in [(Tree::new(&layout, root), root), (Tree::watch(ranks), 0)] {
            assert_eq!(tree.parent(root), None);
            assert_eq!(tree.subtree(root), (0..ranks).collect::<Vec<_>>());
            for rank in 0..ranks {
                for child in tree.children(rank) {
                    assert_eq!(tree.parent(child), Some(rank));
                }
            }
        }
    }
}

/// Promise of [`Tree::new`]: a table enters each host once, at its leader, which is the parent of
/// every other rank of the host. The root sends to few hosts, and few hops lead to each.
#[test]
fn a_table_enters_each_host_once() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let layout = dice.layout(60);
        let root = dice.rank(layout.ranks());
        let tree = Tree::new(&layout, root);
        let hosts = layout.hosts();
        for host in 0..hosts {
            let ranks = layout.ranks_of(host);
            let leader = match ranks.contains(&root) {
                true => root,
                false => ranks[0],
            };
            for rank in ranks.iter().filter(|rank| **rank != leader) {
                assert_eq!(tree.parent(*rank), Some(leader));
            }
            let parent = tree.parent(leader);
            assert!(parent.is_none_or(|parent| !layout.same_host(parent, leader)));
            let children = tree.children(leader);
            let abroad = children.iter().filter(|it| !layout.same_host(leader, **it));
            let hops = std::iter::successors(Some(leader), |rank| tree.parent(*rank)).count() - 1;
            match hosts <= 4 {
                true => assert!(hops <= 1),
                false => {
                    assert!(abroad.count() <= 2);
                    assert!(hops <= usize::try_from(hosts.ilog2()).unwrap());
                }
            }
        }
    }
}

/// Promise of [`Tree::watch`]: parents have lower numbers, and a rank has at most 4 children.
#[test]
fn the_watch_is_narrow_and_leads_up() {
    for ranks in [1, 2, 5, 6, 1000] {
        let tree = Tree::watch(ranks);
        for rank in 0..ranks {
            assert!(tree.children(rank).len() <= 4);
            assert!(tree.parent(rank).is_none_or(|parent| parent < rank));
        }
    }
}

/// Promise of [`Layout`]: ranks share a host if the texts are equal.
#[test]
fn equal_texts_are_one_host() {
    let layout = Layout::new(["x", "y", "x"]);
    assert_eq!(layout.ranks(), 3);
    assert!(layout.same_host(0, 2) && layout.same_host(1, 1));
    assert!(!layout.same_host(0, 1));
    assert!(!layout.same_host(3, 3), "there is no rank 3");
}
