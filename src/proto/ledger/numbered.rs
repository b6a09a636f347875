//! A lend is the memory that one message lends to the peer. The lends here are returned by the
//! number of that message (RETURN, `docs/wire.md`), not by addresses.

use std::collections::VecDeque;

use foldhash::HashMap;

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Number {
    pub(super) stream: u64,
    pub(super) seq: u32,
}

impl Number {
    /// The number of the message `count` messages later.
    fn after(self, count: usize) -> Self {
        // Numbers wrap, so the count may wrap too.
        #[expect(clippy::cast_possible_truncation, reason = "it wraps at as many bits")]
        let seq = self.seq.wrapping_add(count as u32);
        Self { seq, ..self }
    }
}

/// The lend of one message.
#[derive(Debug)]
pub(super) struct LentSpan<K> {
    /// Number of lends before this lend.
    pub(super) age: u64,
    /// Number of spans that are not empty.
    pub(super) spans: usize,
    pub(super) hold: K,
}

/// Lends by number.
///
/// The numbers of a stream go up by one, and most lends come back in that order. So the latest
/// lends lie in a queue, `run`. A server with many connections finds old lends in no cache, and
/// then a queue is faster to read than a map. Other lends are in `rest`. No number is in both.
#[derive(Debug)]
pub(super) struct Numbered<K> {
    run: SpanRun<K>,
    rest: HashMap<Number, Alike<K>>,
}

/// Lends of consecutive numbers of one stream.
#[derive(Debug)]
struct SpanRun<K> {
    /// The number of the first of `lends`.
    first: Number,
    /// `None`: the message lent nothing, or its lend is back. The first entry is never `None`.
    lends: VecDeque<Option<LentSpan<K>>>,
    /// Number of entries that are not `None`.
    out: usize,
}

/// Lends under one number. Several lends share a number if numbers wrap, or if a client gives two
/// streams the same mark. A return does not say which lend it means, so all must come back.
#[derive(Debug)]
struct Alike<K> {
    first: LentSpan<K>,
    others: Vec<K>,
    returned: usize,
}

/// Result of a return.
pub(super) enum Back<K> {
    /// Nothing is lent under this number.
    Unknown,
    /// Other lends of the number are still out.
    Incomplete,
    One(LentSpan<K>),
    /// All lends of the number.
    All(LentSpan<K>, Vec<K>),
}

/// Most messages in a row without a lend inside a run.
const MOST_SKIPPED: usize = 16;
/// A run has at most this many places more than twice its lends. So a single batch that a consumer
/// keeps for long leaves the run.
const SPARE: usize = 64;
/// Most places for which an empty run keeps its memory.
const MOST_KEPT: usize = 1024;

impl<K> Numbered<K> {
    pub(super) fn new() -> Self {
        Self {
            run: SpanRun {
                first: Number { stream: 0, seq: 0 },
                lends: VecDeque::new(),
                out: 0,
            },
            rest: HashMap::default(),
        }
    }

    pub(super) fn lend(&mut self, number: Number, lent: LentSpan<K>) {
        let is_taken = self.rest.contains_key(&number);
        if !is_taken && self.run.follows(number) {
            self.run.push(number, lent);
            while let Some((number, lent)) = self.run.pop_scattered() {
                self.rest.insert(number, Alike::of(lent));
            }
            return;
        }
        while let Some((number, lent)) = self.run.pop() {
            self.rest.insert(number, Alike::of(lent));
        }
        match self.rest.get_mut(&number) {
            Some(alike) => {
                alike.first.spans = alike.first.spans.saturating_add(lent.spans);
                alike.others.push(lent.hold);
            }
            None => self.run.push(number, lent),
        }
    }

    pub(super) fn take_back(&mut self, number: Number) -> Back<K> {
        if let Some(lent) = self.run.take(number) {
            return Back::One(lent);
        }
        let Some(alike) = self.rest.get_mut(&number) else {
            return Back::Unknown;
        };
        alike.returned = alike.returned.saturating_add(1);
        if alike.returned <= alike.others.len() {
            return Back::Incomplete;
        }
        match self.rest.remove(&number) {
            Some(Alike { first, others, .. }) => Back::All(first, others),
            None => Back::Unknown,
        }
    }

    /// Number of places, used or not.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.run.lends.len() + self.rest.len()
    }

    /// Takes all lends out, in no order: the age and the `K` of each.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, K)> {
        self.run.out = 0;
        let run = std::mem::take(&mut self.run.lends).into_iter().flatten();
        let rest = self.rest.drain().flat_map(|(_, alike)| {
            let age = alike.first.age;
            let all = std::iter::once(alike.first.hold).chain(alike.others);
            all.map(move |hold| (age, hold))
        });
        run.map(|lent| (lent.age, lent.hold)).chain(rest)
    }
}

impl<K> SpanRun<K> {
    /// Whether `number` fits at the end of the run.
    fn follows(&self, number: Number) -> bool {
        let skipped = number
            .seq
            .wrapping_sub(self.first.after(self.lends.len()).seq);
        self.lends.is_empty()
            || number.stream == self.first.stream && skipped as usize <= MOST_SKIPPED
    }

    /// Adds a lend whose number [follows](Self::follows).
    fn push(&mut self, number: Number, lent: LentSpan<K>) {
        if self.lends.is_empty() {
            self.first = number;
        }
        while self.first.after(self.lends.len()) != number {
            self.lends.push_back(None);
        }
        self.lends.push_back(Some(lent));
        self.out = self.out.saturating_add(1);
    }

    /// Takes the first lend out.
    fn pop(&mut self) -> Option<(Number, LentSpan<K>)> {
        let number = self.first;
        let lent = self.take(number)?;
        Some((number, lent))
    }

    /// Takes the first lend out if the run has far more places than lends.
    fn pop_scattered(&mut self) -> Option<(Number, LentSpan<K>)> {
        let enough = self.out.saturating_mul(2).saturating_add(SPARE);
        (self.lends.len() > enough).then(|| self.pop())?
    }

    fn take(&mut self, number: Number) -> Option<LentSpan<K>> {
        if number.stream != self.first.stream {
            return None;
        }
        let at = number.seq.wrapping_sub(self.first.seq);
        let lent = self.lends.get_mut(at as usize)?.take()?;
        self.out = self.out.saturating_sub(1);
        while let Some(None) = self.lends.front() {
            self.lends.pop_front();
            self.first = self.first.after(1);
        }
        if self.lends.is_empty() && self.lends.capacity() > MOST_KEPT {
            self.lends = VecDeque::new();
        }
        Some(lent)
    }
}

impl<K> Alike<K> {
    fn of(first: LentSpan<K>) -> Self {
        Self {
            first,
            others: Vec::new(),
            returned: 0,
        }
    }
}
