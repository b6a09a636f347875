//! Ranks that watch each other over a simulated network.

use std::time::Duration;

use super::network::{Delivery, Network};
use super::{Dice, Rank, index};
use crate::comm::machine::{Message, Tree, Vigil};
use crate::error::Error;
use crate::proto::Timestamp;

pub(super) const STALL: Duration = Duration::from_millis(200);
pub(super) const MOST_DELAY: Duration = Duration::from_millis(1);

/// What comes to a rank.
#[derive(Debug)]
pub(super) enum Input {
    Message(Vec<u8>),
    /// The control stream has ended.
    Closed,
    /// A data connection has broken.
    Broken,
}

#[derive(Debug)]
enum Fate {
    Runs,
    Dead,
    /// The process is stopped; its inputs wait.
    Stopped(Vec<Delivery<Input>>),
}

pub(super) struct Watchers {
    pub(super) vigils: Vec<Vigil>,
    fates: Vec<Fate>,
    /// When a rank learned of the failure.
    pub(super) learned: Vec<Option<Timestamp>>,
    pub(super) network: Network<Input>,
    pub(super) dice: Dice,
    /// Messages of failures that each rank has sent.
    pub(super) told: Vec<usize>,
    /// Ranks that learn of a failure close all their connections.
    pub(super) closes: bool,
}

impl Watchers {
    pub(super) fn new(ranks: Rank, seed: u64) -> Self {
        let network = Network::new(MOST_DELAY);
        let vigils = (0..ranks)
            .map(|me| Vigil::new(me, neighbours(ranks, me), STALL, network.now))
            .collect();
        Self {
            vigils,
            fates: (0..ranks).map(|_| Fate::Runs).collect(),
            learned: vec![None; index(ranks)],
            network,
            dice: Dice(seed),
            told: vec![0; index(ranks)],
            closes: true,
        }
    }

    pub(super) fn ranks(&self) -> Rank {
        Rank::try_from(self.vigils.len()).unwrap()
    }

    /// The longest time in which news pass from one rank to all.
    pub(super) fn flood(&self) -> Duration {
        let tree = Tree::watch(self.ranks());
        let deepest = (0..self.ranks())
            .map(|rank| std::iter::successors(Some(rank), |rank| tree.parent(*rank)).count());
        MOST_DELAY * u32::try_from(2 * deepest.max().unwrap()).unwrap()
    }

    /// The time goes on by `by`.
    pub(super) fn run(&mut self, by: Duration) {
        let end = self.network.now.saturating_add(by);
        loop {
            let timeout = (0..self.ranks())
                .filter(|rank| matches!(self.fates[index(*rank)], Fate::Runs))
                .filter_map(|rank| Some((self.vigils[index(rank)].poll_timeout()?, rank)))
                .min();
            let arrival = self.network.next_at();
            match (timeout, arrival) {
                (Some((at, rank)), _) if at <= end && arrival.is_none_or(|it| at < it) => {
                    self.network.now = self.network.now.max(at);
                    self.vigils[index(rank)].handle_timeout(self.network.now);
                    self.drain(rank);
                }
                (_, Some(at)) if at <= end => {
                    let delivery = self.network.deliver().unwrap();
                    self.take(delivery);
                }
                _ => break,
            }
        }
        self.network.now = end;
    }

    /// The process dies, in the middle of what it sends.
    pub(super) fn kill(&mut self, rank: Rank) {
        self.fates[index(rank)] = Fate::Dead;
        if self.dice.roll(2) == 0 {
            self.network.lose(rank);
        }
        self.close(rank);
    }

    pub(super) fn stop(&mut self, rank: Rank) {
        self.fates[index(rank)] = Fate::Stopped(Vec::new());
    }

    /// A stopped process goes on. First it finds that its timeouts have passed.
    pub(super) fn resume(&mut self, rank: Rank) {
        let fate = std::mem::replace(&mut self.fates[index(rank)], Fate::Runs);
        self.vigils[index(rank)].handle_timeout(self.network.now);
        self.drain(rank);
        if let Fate::Stopped(inputs) = fate {
            inputs.into_iter().for_each(|input| self.take(input));
        }
    }

    /// The connection between two ranks breaks; `rank` finds out.
    pub(super) fn suspect(&mut self, rank: Rank, of: Rank) {
        let why = Error::disconnected("the connection broke");
        self.vigils[index(rank)].handle_suspect(of, why, self.network.now);
        self.drain(rank);
    }

    /// Does what a rank wants to do, and sends its messages.
    pub(super) fn at(&mut self, rank: Rank, act: impl FnOnce(&mut Vigil)) {
        act(&mut self.vigils[index(rank)]);
        self.drain(rank);
    }

    pub(super) fn is_running(&self, rank: Rank) -> bool {
        matches!(self.fates[index(rank)], Fate::Runs)
    }

    /// The ranks that the failures of all running ranks name.
    pub(super) fn named(&self) -> Vec<Option<Option<Rank>>> {
        let running = (0..self.ranks()).filter(|rank| self.is_running(*rank));
        let named = running.map(|rank| self.vigils[index(rank)].failure().map(|it| it.rank));
        named.collect()
    }

    fn take(&mut self, delivery: Delivery<Input>) {
        let rank = delivery.to;
        match &mut self.fates[index(rank)] {
            Fate::Runs => {}
            Fate::Dead => return,
            Fate::Stopped(inputs) => return inputs.push(delivery),
        }
        let vigil = &mut self.vigils[index(rank)];
        let now = self.network.now;
        match delivery.what {
            Input::Message(bytes) => {
                vigil.handle_message(delivery.from, Message::decode(&bytes).unwrap(), now);
            }
            Input::Closed => vigil.handle_closed(delivery.from, "end of stream", now),
            Input::Broken => {
                let why = Error::disconnected("the connection broke");
                vigil.handle_suspect(delivery.from, why, now);
            }
        }
        self.drain(rank);
    }

    fn drain(&mut self, rank: Rank) {
        while let Some((to, message)) = self.vigils[index(rank)].poll_message() {
            self.told[index(rank)] += usize::from(matches!(message, Message::Failed(_)));
            let input = Input::Message(message.encode());
            self.network.send(&mut self.dice, rank, to, input);
        }
        let has_failed = self.vigils[index(rank)].failure().is_some();
        if has_failed && self.learned[index(rank)].is_none() {
            self.learned[index(rank)] = Some(self.network.now);
            if self.closes {
                self.close(rank);
            }
        }
    }

    /// All connections of `rank` end: control streams, and data connections of some ranks.
    pub(super) fn close(&mut self, rank: Rank) {
        for to in neighbours(self.ranks(), rank) {
            self.network.send(&mut self.dice, rank, to, Input::Closed);
        }
        for to in (0..self.ranks()).filter(|to| *to != rank) {
            if self.dice.roll(3) == 0 {
                self.network.send(&mut self.dice, rank, to, Input::Broken);
            }
        }
    }
}

pub(super) fn neighbours(ranks: Rank, me: Rank) -> Vec<Rank> {
    let tree = Tree::watch(ranks);
    let parent = tree.parent(me);
    parent.into_iter().chain(tree.children(me)).collect()
}
