//! Promises of all machines together, with 1,000 ranks.

use std::time::Duration;

use super::converging::settle;
use super::meetings::card;
use super::network::Network;
use super::{Dice, Rank, index};
use crate::comm::machine::{Card, Converge, Layout, Meeting, Pattern, Routes, Tree, Verdict};

const RANKS: Rank = 1000;
const RANKS_PER_HOST: usize = 8;
/// The number of the meeting point: it is no rank.
const MEETING: Rank = Rank::MAX;

/// Most messages that a rank sends and gets: twice log2 of the ranks, and one for each rank of its
/// host.
fn most() -> usize {
    2 * usize::try_from(RANKS.ilog2() + 1).unwrap() + RANKS_PER_HOST
}

fn assert_few(messages: &Network<impl Sized>) {
    for (rank, messages) in &messages.messages {
        assert!(
            *rank == MEETING || *messages <= most(),
            "{rank}: {messages}"
        );
    }
}

/// Processes of 125 hosts come to a meeting in any order; every second one asks for a rank. Gives
/// the layout of the ranks.
fn meet(dice: &mut Dice) -> Layout {
    let mut network: Network<Vec<u8>> = Network::new(Duration::from_millis(5));
    let mut meeting = Meeting::new(RANKS, network.now.saturating_add(Duration::from_secs(60)));
    for process in 0..RANKS {
        let wish = (process % 2 == 0).then_some(process);
        let host = format!("host {}", index(process) / RANKS_PER_HOST);
        let card = card(wish, RANKS, &host).encode();
        network.send(dice, process, MEETING, card);
    }
    let mut layout = None;
    let mut welcomed = vec![None; index(RANKS)];
    while let Some(delivery) = network.deliver() {
        if delivery.to == MEETING {
            let card = Card::decode(&delivery.what).unwrap();
            meeting.join(card, delivery.from).unwrap();
        } else {
            welcomed[index(delivery.to)] = Card::decode(&delivery.what).unwrap().rank;
        }
        if let Some(Verdict::Complete(guests)) = meeting.poll(network.now) {
            for (card, process) in &guests {
                network.send(dice, MEETING, *process, card.encode());
            }
            layout = Some(Layout::new(guests.iter().map(|(card, _)| &card.host)));
        }
    }
    assert_few(&network);
    let mut ranks: Vec<_> = welcomed.into_iter().map(Option::unwrap).collect();
    ranks.sort_unstable();
    assert!(ranks.into_iter().eq(0..RANKS));
    layout.unwrap()
}

/// Promise of the communicator: 1,000 ranks of 125 hosts meet, converge and broadcast, each step
/// with a number of messages a rank that grows as the logarithm of the ranks, and as the ranks of a
/// host.
#[test]
fn a_thousand_ranks_need_few_messages_each() {
    let mut dice = Dice(52);
    let layout = meet(&mut dice);
    assert_eq!((layout.ranks(), layout.hosts()), (RANKS, 125));

    let values: Vec<_> = (0..RANKS).map(|rank| rank.to_le_bytes().to_vec()).collect();
    let mut network = Network::new(Duration::from_millis(5));
    let mut ends: Vec<_> = (0..RANKS)
        .zip(&values)
        .map(|(me, own)| Converge::new(Tree::new(&layout, 0), RANKS, me, own.clone()))
        .collect();
    settle(&mut network, &mut dice, &mut ends);
    assert!(ends.iter().all(|end| end.result() == Some(&values[..])));
    assert_few(&network);

    let root = dice.rank(RANKS);
    let pattern = Pattern::Broadcast { root };
    let routes: Vec<_> = (0..RANKS)
        .map(|me| Routes::new(pattern, &layout, me))
        .collect();
    let mut network = Network::new(Duration::from_millis(5));
    let mut got = vec![0; index(RANKS)];
    for to in &routes[index(root)].outlets {
        network.send(&mut dice, root, *to, "table");
    }
    while let Some(delivery) = network.deliver() {
        got[index(delivery.to)] += 1;
        for to in &routes[index(delivery.to)].inlets[0].relays {
            network.send(&mut dice, delivery.to, *to, delivery.what);
        }
    }
    for (rank, got) in (0..).zip(got) {
        assert_eq!(got, i32::from(rank != root));
    }
    assert_few(&network);
}
