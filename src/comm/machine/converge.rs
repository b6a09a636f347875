//! Small values of all ranks, told to all ranks.

use std::collections::VecDeque;

use super::layout::Rank;
use super::text::{put_bytes, take_bytes};
use super::tree::Tree;
use crate::error::Error;
use crate::proto::Fields;

/// First byte of a message to the parent, with the values of the sender's subtree.
const UP: u8 = 1;
/// First byte of a message to a child, with the values of all ranks.
const DOWN: u8 = 2;

/// One round in which each rank gives a value and gets the values of all.
///
/// Values go up a tree and come down the same tree: each rank sends one message to its parent and
/// one to each of its children. The connections are reliable; the order of messages from different
/// ranks is free. Rounds after each other need connections, or numbers, of their own.
#[derive(Debug)]
pub struct Converge {
    tree: Tree,
    me: Rank,
    /// Index: rank.
    values: Vec<Option<Vec<u8>>>,
    /// Children whose messages have not come.
    awaited: Vec<Rank>,
    state: State,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

#[derive(Debug)]
enum State {
    /// Values of children are missing.
    Gathers,
    /// The parent has, or will have, the values of the subtree.
    Waits,
    /// The values of all ranks, by rank.
    Done(Vec<Vec<u8>>),
}

impl Converge {
    /// The round of rank `me` with its value `own`. `tree` reaches every one of the `ranks`, from
    /// the same root at all ranks.
    pub fn new(tree: Tree, ranks: Rank, me: Rank, own: Vec<u8>) -> Self {
        let mut values: Vec<_> = (0..ranks).map(|_| None).collect();
        if let Some(value) = slot(&mut values, me) {
            *value = Some(own);
        }
        let awaited = tree.children(me);
        let mut converge = Self {
            tree,
            me,
            values,
            awaited,
            state: State::Gathers,
            messages: VecDeque::new(),
        };
        converge.advance();
        converge
    }

    /// Takes one message that rank `from` has sent.
    ///
    /// # Errors
    ///
    /// Protocol, naming `from`: the message is malformed, is not due from this rank, or has values
    /// of other ranks than the sender's. Nothing has changed.
    pub fn handle_message(&mut self, from: Rank, message: &[u8]) -> Result<(), Error> {
        let bad = |what: &str| Error::protocol(format!("rank {from} sent {what}"));
        let malformed = || bad("a malformed message of small values");
        let (kind, rest) = message.split_first().ok_or_else(malformed)?;
        let values = parse(rest).ok_or_else(malformed)?;
        let ranks = values.iter().map(|(rank, _)| *rank);
        match (*kind, &self.state) {
            (UP, State::Gathers) if self.awaited.contains(&from) => {
                if !ranks.eq(self.tree.subtree(from)) {
                    return Err(bad("values of other ranks than those below it"));
                }
                self.awaited.retain(|child| *child != from);
                self.keep(values);
                self.advance();
            }
            (DOWN, State::Waits) if self.tree.parent(self.me) == Some(from) => {
                if !ranks.map(index_of).eq(0..self.values.len()) {
                    return Err(bad("values of other ranks than all"));
                }
                self.keep(values);
                self.finish();
            }
            (UP | DOWN, _) => return Err(bad("small values that are not due")),
            _ => return Err(malformed()),
        }
        Ok(())
    }

    /// The next message to send, and the rank that gets it; `None` if there is none for now.
    pub fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// The values of all ranks, by rank; `None` while some are missing.
    pub fn result(&self) -> Option<&[Vec<u8>]> {
        match &self.state {
            State::Done(values) => Some(values),
            State::Gathers | State::Waits => None,
        }
    }

    fn keep(&mut self, values: Vec<(Rank, &[u8])>) {
        for (rank, value) in values {
            if let Some(kept) = slot(&mut self.values, rank) {
                *kept = Some(value.to_vec());
            }
        }
    }

    /// Goes on once all children have sent their values.
    fn advance(&mut self) {
        if !self.awaited.is_empty() {
            return;
        }
        match self.tree.parent(self.me) {
            Some(parent) => {
                self.state = State::Waits;
                self.messages.push_back((parent, self.message(UP)));
            }
            None => self.finish(),
        }
    }

    /// Passes the values of all ranks on to the children.
    fn finish(&mut self) {
        let children = self.tree.children(self.me);
        if !children.is_empty() {
            let message = self.message(DOWN);
            let copies = children.into_iter().map(|child| (child, message.clone()));
            self.messages.extend(copies);
        }
        let values = std::mem::take(&mut self.values);
        self.state = State::Done(values.into_iter().map(Option::unwrap_or_default).collect());
    }

    /// All values that are known: at this time those of the subtree, or all.
    fn message(&self, kind: u8) -> Vec<u8> {
        let known = || {
            let values = (0_u32..).zip(&self.values);
            values.filter_map(|(rank, value)| Some((rank, value.as_ref()?)))
        };
        let mut bytes = vec![kind];
        let count = u32::try_from(known().count()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_le_bytes());
        for (rank, value) in known() {
            bytes.extend_from_slice(&rank.to_le_bytes());
            put_bytes(&mut bytes, value);
        }
        bytes
    }
}

fn slot(values: &mut [Option<Vec<u8>>], rank: Rank) -> Option<&mut Option<Vec<u8>>> {
    values.get_mut(index_of(rank))
}

fn index_of(rank: Rank) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

/// The values of a message, each with its rank, in the order of the message.
fn parse(bytes: &[u8]) -> Option<Vec<(Rank, &[u8])>> {
    let mut fields = Fields::new(bytes);
    let count: u32 = fields.take()?;
    // The count sizes no memory: a message can name any count.
    let mut values = Vec::new();
    for _ in 0..count {
        values.push((fields.take()?, take_bytes(&mut fields)?));
    }
    fields.end()?;
    Some(values)
}
