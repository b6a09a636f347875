//! Promises of [`Converge`].

use std::time::Duration;

use super::network::Network;
use super::{Dice, Rank, index};
use crate::comm::machine::{Converge, Tree};
use crate::error::Status;

/// All ranks of a tree, each with a value.
fn start(tree: &Tree, values: &[Vec<u8>]) -> Vec<Converge> {
    let ranks = Rank::try_from(values.len()).unwrap();
    let ends = (0..ranks).zip(values);
    ends.map(|(me, own)| Converge::new(tree.clone(), ranks, me, own.clone()))
        .collect()
}

/// Runs until nothing is under way.
pub(super) fn settle(network: &mut Network<Vec<u8>>, dice: &mut Dice, ends: &mut [Converge]) {
    for (me, end) in (0..).zip(&mut *ends) {
        while let Some((to, message)) = end.poll_message() {
            network.send(dice, me, to, message);
        }
    }
    while let Some(delivery) = network.deliver() {
        let end = &mut ends[index(delivery.to)];
        end.handle_message(delivery.from, &delivery.what).unwrap();
        while let Some((to, message)) = end.poll_message() {
            network.send(dice, delivery.to, to, message);
        }
    }
}

/// Promise of [`Converge`]: all ranks get the values of all, in whatever order messages arrive,
/// with one message up and one down each edge.
#[test]
fn all_ranks_get_all_values() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let layout = dice.layout(40);
        let ranks = layout.ranks();
        let values: Vec<_> = (0..ranks).map(|_| dice.bytes(20)).collect();
        let root = dice.rank(ranks);
        for tree in [Tree::new(&layout, root), Tree::watch(ranks)] {
            let mut network = Network::new(Duration::from_millis(1));
            let mut ends = start(&tree, &values);
            settle(&mut network, &mut dice, &mut ends);
            for (me, end) in (0..).zip(&ends) {
                assert_eq!(end.result(), Some(&values[..]));
                let edges = tree.children(me).len() + usize::from(tree.parent(me).is_some());
                let messages = network.messages.get(&me).copied().unwrap_or(0);
                assert_eq!(messages, 2 * edges);
            }
        }
    }
}

/// Promise of [`Converge::result`]: no rank has the result before every rank has given its value.
#[test]
fn no_rank_goes_on_before_all_have_come() {
    let tree = Tree::watch(6);
    let mut ends: Vec<_> = (0..5)
        .map(|me| Converge::new(tree.clone(), 6, me, vec![1]))
        .collect();
    settle(&mut Network::new(Duration::ZERO), &mut Dice(1), &mut ends);
    assert!(ends.iter().all(|end| end.result().is_none()));
}

/// Promise of [`Converge::handle_message`]: a message that is not due, or has values of other ranks
/// than it should, is an error that names the sender and changes nothing.
#[test]
fn messages_that_are_not_due_are_refused() {
    let tree = Tree::watch(3);
    let mut ends = start(&tree, &[vec![0], vec![1], vec![2]]);
    let (_, up) = ends[1].poll_message().unwrap();
    let (_, other_up) = ends[2].poll_message().unwrap();
    let refuse = |end: &mut Converge, from: Rank, message: &[u8]| {
        let error = end.handle_message(from, message).unwrap_err();
        assert_eq!(error.status(), Status::Protocol);
        assert!(error.text().contains(&format!("rank {from} ")), "{error}");
        assert_eq!(end.poll_message(), None);
    };
    refuse(&mut ends[0], 2, &up);
    refuse(&mut ends[0], 5, &up);
    refuse(&mut ends[1], 2, &other_up);
    ends[0].handle_message(1, &up).unwrap();
    refuse(&mut ends[0], 1, &up);
    ends[0].handle_message(2, &other_up).unwrap();
    let (_, down) = ends[0].poll_message().unwrap();
    refuse(&mut ends[1], 2, &down);
    refuse(&mut ends[1], 0, &up);
    let of_one_rank = [&down[..1], &up[1..]].concat();
    refuse(&mut ends[1], 0, &of_one_rank);
    ends[1].handle_message(0, &down).unwrap();
    refuse(&mut ends[1], 0, &down);
    for end in &ends[..2] {
        assert_eq!(end.result(), Some(&[vec![0], vec![1], vec![2]][..]));
    }
}

/// Promise of [`Converge::handle_message`]: no bytes cause a panic, and bytes that are refused do
/// not keep the round from its result.
#[test]
fn any_bytes_are_safe() {
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let mut ends = start(&Tree::watch(3), &[vec![0], vec![1, 1], vec![]]);
        let (_, up) = ends[1].poll_message().unwrap();
        let (_, other_up) = ends[2].poll_message().unwrap();
        let bad = super::decoding::damaged(&mut dice, &up);
        if ends[0].handle_message(1, &bad).is_err() {
            ends[0].handle_message(1, &up).unwrap();
        }
        ends[0].handle_message(2, &other_up).unwrap();
        let values = ends[0].result().unwrap();
        assert_eq!((values.len(), &values[0]), (3, &vec![0]));
    }
}
