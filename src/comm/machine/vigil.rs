//! Finds out that a rank has died or has stopped, and tells all ranks.

use std::collections::VecDeque;
use std::time::Duration;

use super::layout::Rank;
use super::message::{Failure, Message};
use crate::error::{Error, Status};
use crate::proto::Timestamp;

/// The longest time for which a suspicion waits for news of another failure.
const MOST_SETTLING: Duration = Duration::from_secs(1);

/// A shorter stall time would make a rank do nothing but send beats.
const LEAST_STALL: Duration = Duration::from_millis(4);

/// One rank's watch over its neighbours in a tree of control streams.
///
/// Each stream is reliable and ordered until it closes. A neighbour that closes its stream without
/// a word has died. A neighbour that says nothing for the stall time has stopped. The first failure
/// that a rank learns of goes to all its other neighbours, so that all ranks learn of it. The tree
/// without the failed rank falls into parts, each of which has a neighbour of that rank, so all
/// ranks name it.
///
/// [`leave`](Self::leave) is for ranks that all leave at about the same time: a rank that has
/// left passes no failure on.
#[derive(Debug)]
pub struct Vigil {
    me: Rank,
    /// Ascending by rank.
    neighbours: Vec<Neighbour>,
    stall: Duration,
    /// When the next beats are due.
    beat: Timestamp,
    state: State,
    messages: VecDeque<(Rank, Message)>,
}

#[derive(Debug)]
struct Neighbour {
    rank: Rank,
    state: NeighbourState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeighbourState {
    /// The control stream is open, and had its last message then.
    Heard(Timestamp),
    /// The neighbour has left the communicator.
    Left,
    /// The control stream has closed.
    Closed,
}

#[derive(Debug)]
enum State {
    Watches,
    Suspects(Suspicion),
    Failed(Failure),
    Left,
}

#[derive(Debug)]
struct Suspicion {
    rank: Rank,
    why: Error,
    due: Timestamp,
}

impl Vigil {
    /// The watch of rank `me`. A neighbour that says nothing for `stall` has stopped; a `stall`
    /// below 4 ms counts as 4 ms. All ranks use the same `stall`. `neighbours` are the parent and
    /// the children of `me` in a tree that all ranks share.
    pub fn new(me: Rank, neighbours: Vec<Rank>, stall: Duration, now: Timestamp) -> Self {
        let stall = stall.max(LEAST_STALL);
        let mut ranks = neighbours;
        ranks.sort_unstable();
        ranks.dedup();
        let neighbours = ranks.into_iter().filter(|rank| *rank != me);
        let state = NeighbourState::Heard(now);
        Self {
            me,
            neighbours: neighbours.map(|rank| Neighbour { rank, state }).collect(),
            stall,
            beat: now.saturating_add(beat_time(stall)),
            state: State::Watches,
            messages: VecDeque::new(),
        }
    }

    /// Takes one message of the control stream from the neighbour `from`. Messages of other ranks
    /// are ignored.
    pub fn handle_message(&mut self, from: Rank, message: Message, now: Timestamp) {
        self.look(now);
        let Some(neighbour) = self.neighbours.iter_mut().find(|it| it.rank == from) else {
            return;
        };
        let NeighbourState::Heard(heard) = &mut neighbour.state else {
            return;
        };
        *heard = now.max(*heard);
        match message {
            Message::Beat => {}
            Message::Left => neighbour.state = NeighbourState::Left,
            Message::Failed(failure) => self.fail(failure, Some(from)),
        }
    }

    /// The control stream of the neighbour `from` has ended; `why` in words. The neighbour has
    /// died, unless it has left before.
    pub fn handle_closed(&mut self, from: Rank, why: &str, now: Timestamp) {
        self.look(now);
        let Some(neighbour) = self.neighbours.iter_mut().find(|it| it.rank == from) else {
            return;
        };
        if let NeighbourState::Heard(_) = neighbour.state {
            neighbour.state = NeighbourState::Closed;
            let text = format!("rank {from} died: its control stream ended: {why}");
            self.fail(Failure::new(Some(from), Status::Disconnected, &text), None);
        }
    }

    /// A data connection to `rank` broke because of `why`. This may be a consequence of another
    /// failure, of which this rank will hear soon. So the verdict waits for 1 s, or for the stall
    /// time if that is shorter, and then names `rank`. The first suspicion counts.
    pub fn handle_suspect(&mut self, rank: Rank, why: Error, now: Timestamp) {
        self.look(now);
        if let State::Watches = self.state {
            let due = now.saturating_add(self.settling());
            self.state = State::Suspects(Suspicion { rank, why, due });
        }
    }

    /// This rank ends the communicator for all ranks.
    pub fn abort(&mut self, why: Error) {
        let text = format!("rank {} aborted: {}", self.me, why.text());
        self.fail(Failure::new(Some(self.me), why.status(), &text), None);
    }

    /// This rank leaves the communicator. Later inputs are ignored.
    pub fn leave(&mut self) {
        if let State::Watches | State::Suspects(_) = self.state {
            self.state = State::Left;
            self.messages.clear();
            self.send(&Message::Left, None);
        }
    }

    /// The next message to send, and the neighbour that gets it; `None` if there is none for now.
    pub fn poll_message(&mut self) -> Option<(Rank, Message)> {
        self.messages.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` for never.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let suspicion = match &self.state {
            State::Watches => None,
            State::Suspects(suspicion) => Some(suspicion.due),
            State::Failed(_) | State::Left => return None,
        };
        let stopped = self
            .most_silent()
            .map(|(_, heard)| heard.saturating_add(self.stall).min(self.beat));
        [suspicion, stopped].into_iter().flatten().min()
    }

    /// Sends beats that are due, and gives the verdicts that are due. Nothing is wrong with a call
    /// that comes early.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.look(now);
        let (State::Watches | State::Suspects(_)) = self.state else {
            return;
        };
        if let Some((rank, heard)) = self.most_silent()
            && now >= heard.saturating_add(self.stall)
        {
            let text = format!(
                "rank {rank} stopped: it sent nothing for {:?}; it hangs, or the network does",
                self.stall
            );
            self.fail(Failure::new(Some(rank), Status::Timeout, &text), None);
            return;
        }
        if let State::Suspects(suspicion) = &self.state
            && now >= suspicion.due
        {
            let failure = self.verdict(suspicion);
            self.fail(failure, None);
            return;
        }
        if now >= self.beat {
            self.beat = now.saturating_add(beat_time(self.stall));
            self.send_beats();
        }
    }

    /// The failure of the communicator; `None` while all is well.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Failed(failure) => Some(failure),
            State::Watches | State::Suspects(_) | State::Left => None,
        }
    }

    /// Looks whether this call comes late. A rank that was stopped itself has not read what its
    /// neighbours sent, so their silence says nothing, and a suspicion waits for news again.
    fn look(&mut self, now: Timestamp) {
        let Some(due) = self.poll_timeout() else {
            return;
        };
        if now.saturating_since(due) <= beat_time(self.stall) {
            return;
        }
        for neighbour in &mut self.neighbours {
            if let NeighbourState::Heard(heard) = &mut neighbour.state {
                *heard = now;
            }
        }
        let due = now.saturating_add(self.settling());
        if let State::Suspects(suspicion) = &mut self.state {
            suspicion.due = due;
        }
    }

    fn settling(&self) -> Duration {
        self.stall.min(MOST_SETTLING)
    }

    /// The open neighbour whose last message is the oldest, and when that came.
    fn most_silent(&self) -> Option<(Rank, Timestamp)> {
        let open = self.neighbours.iter().filter_map(|it| match it.state {
            NeighbourState::Heard(heard) => Some((it.rank, heard)),
            NeighbourState::Left | NeighbourState::Closed => None,
        });
        open.min_by_key(|(_, heard)| *heard)
    }

    fn verdict(&self, suspicion: &Suspicion) -> Failure {
        let Suspicion { rank, why, .. } = suspicion;
        let has_left =
            (self.neighbours.iter()).any(|it| it.rank == *rank && it.state == NeighbourState::Left);
        let (status, text) = match has_left {
            true => (
                Status::Disconnected,
                format!("rank {rank} has left the communicator: {}", why.text()),
            ),
            false => (
                why.status(),
                format!("the connection to rank {rank} broke: {}", why.text()),
            ),
        };
        Failure::new(Some(*rank), status, &text)
    }

    /// Takes the first failure, and tells it to all neighbours but `source`, which told it.
    fn fail(&mut self, failure: Failure, source: Option<Rank>) {
        if let State::Watches | State::Suspects(_) = self.state {
            self.messages.clear();
            self.send(&Message::Failed(failure.clone()), source);
            self.state = State::Failed(failure);
        }
    }

    /// Sends `message` to all open neighbours but `except`. A rank that seems to have stopped is
    /// told too: it may go on.
    fn send(&mut self, message: &Message, except: Option<Rank>) {
        let open = (self.neighbours.iter())
            .filter(|it| matches!(it.state, NeighbourState::Heard(_)) && Some(it.rank) != except);
        self.messages
            .extend(open.map(|it| (it.rank, message.clone())));
    }

    /// Beats that the caller has not taken yet are enough.
    fn send_beats(&mut self) {
        if self.messages.is_empty() {
            self.send(&Message::Beat, None);
        }
    }
}

/// The time from beat to beat. Three may be late before a rank seems to have stopped.
fn beat_time(stall: Duration) -> Duration {
    stall.checked_div(4).unwrap_or(stall)
}
