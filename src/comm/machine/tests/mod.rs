//! Promises of the communicator's machines, on a simulated network. A seed gives every choice, so a
//! failure can be replayed.

mod converging;
mod decoding;
mod failures;
mod meetings;
mod network;
mod routing;
mod scale;
mod watchers;

use super::{Layout, Rank};

/// Random choices of a seed.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }

    fn rank(&mut self, ranks: Rank) -> Rank {
        Rank::try_from(self.roll(index(ranks))).unwrap()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.roll(most + 1);
        (0..len)
            .map(|_| u8::try_from(self.roll(256)).unwrap())
            .collect()
    }

    /// The items in another order.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.roll(last + 1));
        }
    }

    /// 1 to `most` ranks on hosts of any sizes, in any order.
    fn layout(&mut self, most: usize) -> Layout {
        let ranks = 1 + self.roll(most);
        let hosts = 1 + self.roll(ranks);
        Layout::new((0..ranks).map(|_| format!("host {}", self.roll(hosts))))
    }
}

fn index(rank: Rank) -> usize {
    usize::try_from(rank).unwrap()
}
