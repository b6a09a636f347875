//! What comes back by the number of its message (RETURN, `docs/wire.md`).

use std::collections::VecDeque;

use foldhash::HashMap;

/// A message of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Number {
    pub(super) stream: u64,
    pub(super) seq: u32,
}

impl Number {
    /// The number that comes `count` messages later.
    fn after(self, count: usize) -> Self {
        // Numbers wrap, and so may the count.
        #[expect(clippy::cast_possible_truncation, reason = "it wraps at as many bits")]
        let seq = self.seq.wrapping_add(count as u32);
        Self { seq, ..self }
    }
}

/// What was lent under one number.
#[derive(Debug)]
pub(super) struct LentSpan<K> {
    /// How many lends came before it.
    pub(super) age: u64,
    /// Spans that are not empty.
    pub(super) spans: usize,
    pub(super) hold: K,
}

/// Lends by number.
///
/// A stream's numbers go up by one, and most come back in that order, so the last of them lie one
/// behind another in `run`: a server of hundreds of connections finds in no cache what it lent a
/// window ago, and reads a queue faster than the places of a map. What does not fit there is in
/// `rest`; no number is in both.
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
    /// `None` where nothing was lent, or it is back; the first never is.
    lends: VecDeque<Option<LentSpan<K>>>,
    /// Those that are not `None`.
    out: usize,
}

/// What was lent under one number: wrapped, or by streams that a client names alike, it may be
/// several. Which one a return means is not known then, so all of them must be back.
#[derive(Debug)]
struct Alike<K> {
    first: LentSpan<K>,
    others: Vec<K>,
    returned: usize,
}

/// What has come back.
pub(super) enum Back<K> {
    /// Nothing is lent under this number.
    Unknown,
    /// Others of the number are out.
    Incomplete,
    One(LentSpan<K>),
    /// All of the number.
    All(LentSpan<K>, Vec<K>),
}

/// Messages in a row that lend nothing, which a run may have in it.
const MOST_SKIPPED: usize = 16;
/// Places of a run, beside twice those of what is out: where a consumer keeps one batch of a long
/// stream, that one leaves the run.
const SPARE: usize = 64;
/// Places for which an empty run keeps memory.
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

    /// Places that it has, used or not.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.run.lends.len() + self.rest.len()
    }

    /// Takes all out, in no order: what keeps a lend alive with the lend's age.
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
    /// Whether `number` may be added.
    fn follows(&self, number: Number) -> bool {
        let skipped = number
            .seq
            .wrapping_sub(self.first.after(self.lends.len()).seq);
        self.lends.is_empty()
            || number.stream == self.first.stream && skipped as usize <= MOST_SKIPPED
    }

    /// Adds what [follows](Self::follows).
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

    /// Takes the first lend out where the run has far more places than lends.
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
