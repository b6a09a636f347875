//! One direction of a stream on a simulated link: what its sender sends, and its reader takes.

use crate::proto::testing::{batch, schema};
use crate::proto::wires::{Dice, Line, TestBody, TestEnd, Wire};
use crate::proto::{
    Body, Credit, FreeQueue, IncomingStream, OutBody, Return, Span, Tags, Timestamp,
};

/// What one end sends.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// Lengths of the batches' bodies, and whether they are lent.
    pub(super) batches: Vec<(u64, bool)>,
    /// What its reader grants.
    pub(super) window: Credit,
}

/// How far the two ends of one direction are.
pub(super) struct Direction {
    pub(super) table: Table,
    pub(super) sent: usize,
    pub(super) has_schema_left: bool,
    pub(super) has_ended: bool,
    pub(super) taken: usize,
    /// The number of lends without the holds that have come back.
    pub(super) lent: usize,
    /// Bodies that the reader holds.
    pub(super) held: Vec<Return>,
    /// The reader's returns.
    pub(super) frees: FreeQueue,
}

impl Direction {
    pub(super) fn new(table: Table) -> Self {
        Self {
            table,
            sent: 0,
            has_schema_left: false,
            has_ended: false,
            taken: 0,
            lent: 0,
            held: Vec::new(),
            frees: FreeQueue::new(Tags::DEFAULT.free_data.unwrap()),
        }
    }

    /// The next stream begins.
    pub(super) fn again(&mut self) {
        (self.sent, self.taken) = (0, 0);
        (self.has_schema_left, self.has_ended) = (false, false);
    }

    pub(super) fn send_schema(&mut self, end: &mut TestEnd) -> bool {
        end.first_mut().sender().send_schema(schema()).unwrap();
        self.has_schema_left = true;
        true
    }

    /// Sends the next batch if its credit allows, or the end.
    pub(super) fn send(&mut self, end: &mut TestEnd) -> bool {
        let sender = end.first_mut().sender();
        let Some(&(len, lends)) = self.table.batches.get(self.sent) else {
            sender.end().unwrap();
            self.has_ended = true;
            return true;
        };
        let (header, body_len) = batch(&[len]);
        if !sender.may_pull() || !sender.admits(body_len, lends) {
            return false;
        }
        let body = match lends {
            true => OutBody::Lent {
                spans: vec![Span {
                    address: if len == 0 { 0 } else { 4096 },
                    length: len,
                }]
                .into(),
                hold: self.sent,
                in_place: true,
            },
            false => OutBody::Packed {
                len: body_len,
                payload: TestBody {
                    item: self.sent,
                    len: body_len,
                },
            },
        };
        self.lent += usize::from(lends);
        sender.send_batch(header, body_len, body).unwrap();
        self.sent += 1;
        true
    }

    /// The reader takes a batch, or says what it has taken.
    pub(super) fn take(&mut self, stream: &mut IncomingStream<TestBody>) -> bool {
        let Some((message, back)) = stream.next_message() else {
            stream.flush_credit();
            return false;
        };
        // Rules M4, M6: complete, in order, exact.
        let (len, lends) = self.table.batches[self.taken];
        assert_eq!(message.header.bytes(), batch(&[len]).0);
        match message.body {
            Body::Packed(body) => assert_eq!((body.item, lends), (self.taken, false)),
            Body::Lent(_) => {
                assert!(lends);
                self.held.extend(back);
            }
        }
        self.taken += 1;
        true
    }

    /// The reader releases one of its bodies.
    pub(super) fn give_back(&mut self, dice: &mut Dice, now: Timestamp) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let body = self.held.swap_remove(dice.roll(self.held.len()));
        self.frees.push(now, &body);
        true
    }

    /// The reader's returns that are due go on `line`.
    pub(super) fn pass_time(&mut self, now: Timestamp, line: &mut Line) -> bool {
        let message = self.frees.poll(now);
        let is_said = message.is_some();
        message
            .into_iter()
            .map(Wire::of_free)
            .for_each(|wire| line.push(wire));
        is_said || !self.frees.is_empty()
    }

    pub(super) fn has_all(&self) -> bool {
        self.taken == self.table.batches.len()
    }
}
