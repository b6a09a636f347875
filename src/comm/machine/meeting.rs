//! Where the processes of a communicator meet, and get their ranks.

use std::collections::BTreeSet;

use super::card::Card;
use super::layout::Rank;
use super::ranges::ranges;
use crate::error::{Error, Status};
use crate::proto::Timestamp;

/// Waits until all processes have come. `G` is what the caller keeps of each, as its connection.
///
/// Call order: after each [`join`](Self::join), and at [`poll_timeout`](Self::poll_timeout), call
/// [`poll`](Self::poll).
#[derive(Debug)]
pub struct Meeting<G> {
    size: u32,
    due: Timestamp,
    state: State<G>,
}

#[derive(Debug)]
enum State<G> {
    /// Who has come, in the order of coming.
    Waits(Vec<(Card, G)>),
    Over,
}

/// How a meeting ended.
#[derive(Debug)]
pub enum Verdict<G> {
    /// All have come. In the order of ranks; each card has its rank.
    Complete(Vec<(Card, G)>),
    /// Some did not come in time.
    Late {
        /// Timeout. The text names the missing ranks.
        error: Error,
        /// Who came, in the order of coming.
        guests: Vec<G>,
    },
}

impl<G> Meeting<G> {
    /// A meeting of `size` processes, until `due`.
    pub fn new(size: u32, due: Timestamp) -> Self {
        Self {
            size,
            due,
            state: State::Waits(Vec::new()),
        }
    }

    /// A process comes. A process without a rank gets one once all have come: the lowest free rank,
    /// in the order of coming.
    ///
    /// # Errors
    ///
    /// `guest` comes back. InvalidArgument: the card has another size, or a rank outside it.
    /// AlreadyExists: the rank is taken. Busy: `size` processes have come. Stopped: the meeting is
    /// over.
    pub fn join(&mut self, card: Card, guest: G) -> Result<(), (Error, G)> {
        match self.refusal(&card) {
            Some(error) => Err((error, guest)),
            None => {
                if let State::Waits(guests) = &mut self.state {
                    guests.push((card, guest));
                }
                Ok(())
            }
        }
    }

    /// Forgets the guests for whom `is_gone` is true, and drops them. Their ranks are free again.
    pub fn leave(&mut self, is_gone: impl Fn(&G) -> bool) {
        if let State::Waits(guests) = &mut self.state {
            guests.retain(|(_, guest)| !is_gone(guest));
        }
    }

    /// The verdict, once: all have come, or `due` has passed.
    pub fn poll(&mut self, now: Timestamp) -> Option<Verdict<G>> {
        let State::Waits(guests) = &self.state else {
            return None;
        };
        let is_complete = count(guests) >= self.size;
        if !is_complete && now < self.due {
            return None;
        }
        let State::Waits(guests) = std::mem::replace(&mut self.state, State::Over) else {
            return None;
        };
        Some(match is_complete {
            true => Verdict::Complete(seated(guests)),
            false => Verdict::Late {
                error: self.late(&guests),
                guests: guests.into_iter().map(|(_, guest)| guest).collect(),
            },
        })
    }

    /// When [`poll`](Self::poll) is due without a further guest; `None` once the meeting is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        matches!(self.state, State::Waits(_)).then_some(self.due)
    }

    fn refusal(&self, card: &Card) -> Option<Error> {
        let size = self.size;
        let State::Waits(guests) = &self.state else {
            let text = "the meeting is over: start all ranks of a communicator at about one time";
            return Some(Error::new(Status::Stopped, text));
        };
        if card.size != size {
            return Some(Error::invalid_argument(format!(
                "the meeting is of {size} ranks, and this process expects {}: give all the same \
                 number of ranks",
                card.size
            )));
        }
        if let Some(rank) = card.rank.filter(|rank| *rank >= size) {
            return Some(Error::invalid_argument(format!(
                "rank {rank} is not below the number of ranks, {size}"
            )));
        }
        let of_rank = |(other, _): &&(Card, G)| card.rank.is_some() && other.rank == card.rank;
        if let Some((other, _)) = guests.iter().find(of_rank) {
            return Some(Error::new(
                Status::AlreadyExists,
                format!(
                    "rank {} is taken by a process of host {}: start each rank once",
                    card.rank.unwrap_or_default(),
                    other.host
                ),
            ));
        }
        (count(guests) >= size).then(|| {
            let text = format!("all {size} ranks have come: start no more processes than ranks");
            Error::new(Status::Busy, text)
        })
    }

    fn late(&self, guests: &[(Card, G)]) -> Error {
        let came = guests.len();
        let unnamed = guests.iter().filter(|(card, _)| card.rank.is_none());
        let missing = free(guests).take_while(|rank| *rank < self.size);
        let missing = ranges(missing.skip(unnamed.count()));
        Error::timeout(format!(
            "{came} of {} ranks came in time; missing: {missing}. Start all ranks, or wait longer",
            self.size
        ))
    }
}

/// The ranks that no guest has asked for, ascending.
fn free<G>(guests: &[(Card, G)]) -> impl Iterator<Item = Rank> + use<G> {
    let taken: BTreeSet<Rank> = guests.iter().filter_map(|(card, _)| card.rank).collect();
    (0..=Rank::MAX).filter(move |rank| !taken.contains(rank))
}

/// The guests in the order of ranks. Guests without a rank get the lowest free ranks.
fn seated<G>(mut guests: Vec<(Card, G)>) -> Vec<(Card, G)> {
    let free = free(&guests);
    let unnamed = guests.iter_mut().filter(|(card, _)| card.rank.is_none());
    for ((card, _), rank) in unnamed.zip(free) {
        card.rank = Some(rank);
    }
    guests.sort_by_key(|(card, _)| card.rank);
    guests
}

fn count<G>(guests: &[(Card, G)]) -> u32 {
    u32::try_from(guests.len()).unwrap_or(u32::MAX)
}
