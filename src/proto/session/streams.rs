//! The streams of a connection, by number (section S).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::role::StreamRole;
use super::{SessionEvent, SessionStream};
use crate::error::{Error, Result, Status};
use crate::proto::{Control, Header, ProtocolError, SenderConfig, Timestamp, Transmit};

/// How many streams a client may have asked for and not ended, beyond twice the limit. This number
/// leaves room for refused puts whose end is still on its way.
const MOST_UNENDED: u32 = 64;

/// The highest number of a stream that the tags of bodies have room for (rule S2).
const HIGHEST_IN_TAGS: u32 = (1 << 24) - 1;

/// How many streams a connection carries at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamLimit {
    /// One stream follows the other (rule E4).
    One,
    /// At a server: most streams, for a client that asks. At a client, which asks: as many as the
    /// server says, up to this number.
    Offered(u32),
    /// The server has said STREAMS.
    Many(u32),
}

/// The streams of a connection. Those with a number other than 0 are there from their beginning to
/// their end; number 0 is there all the time.
#[derive(Debug)]
pub(super) struct Streams<P, K, B> {
    pub(super) first: SessionStream<P, K, B>,
    others: BTreeMap<u32, Box<Numbered<P, K, B>>>,
    /// The highest number so far.
    highest: u32,
    /// How many of `others` count towards the limit (rule S4).
    running: u32,
    pub(super) limit: StreamLimit,
    /// At a client: streams of `others` whose request has not left. Requests leave in the order of
    /// their numbers (rule S2), whichever host asks first.
    unasked: BTreeSet<u32>,
    /// Streams of `others` that may have messages for the transport.
    to_send: VecDeque<u32>,
    /// Streams of `others` that may have events, or have come to their end.
    to_tell: VecDeque<u32>,
    /// Times at which the peer has been silent for too long about a stream of `others`.
    silent_at: BTreeSet<(Timestamp, u32)>,
    pub(super) config: SenderConfig,
    pub(super) is_ordered: bool,
    /// The schema of the stream of `others` that has ended last.
    last_schema: Option<Header>,
    /// A stream that is now forgotten came in here.
    has_come: bool,
}

/// A stream with a number other than 0.
#[derive(Debug)]
struct Numbered<P, K, B> {
    stream: SessionStream<P, K, B>,
    standing: Standing,
    /// Its number is in `to_send`.
    is_to_send: bool,
    /// Its number is in `to_tell`.
    is_to_tell: bool,
    /// Its time in `silent_at`.
    silent_at: Option<Timestamp>,
}

/// Why a stream is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Messages have overtaken its request, perhaps a CANCEL of the stream with this mark.
    Early { cancelled: Option<u64> },
    /// Its host uses it.
    Held,
    /// The host has released it, and one of the two sides has not said its last word.
    Released,
    /// The peer has not returned all memory that it was lent.
    Lent,
}

impl<P, K, B> Streams<P, K, B> {
    pub(super) fn new(role: StreamRole, config: SenderConfig, is_ordered: bool) -> Self {
        Self {
            first: SessionStream::new(role, config, is_ordered),
            others: BTreeMap::new(),
            highest: 0,
            running: 0,
            limit: StreamLimit::One,
            unasked: BTreeSet::new(),
            to_send: VecDeque::new(),
            to_tell: VecDeque::new(),
            silent_at: BTreeSet::new(),
            config,
            is_ordered,
            last_schema: None,
            has_come: false,
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&SessionStream<P, K, B>> {
        match number {
            0 => Some(&self.first),
            _ => self.others.get(&number).map(|it| &it.stream),
        }
    }

    /// The stream. The caller's changes may cause output, so the stream is noted as one with
    /// output.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut SessionStream<P, K, B>> {
        if number == 0 {
            return Some(&mut self.first);
        }
        let numbered = self.others.get_mut(&number)?;
        if !std::mem::replace(&mut numbered.is_to_send, true) {
            self.to_send.push_back(number);
        }
        if !std::mem::replace(&mut numbered.is_to_tell, true) {
            self.to_tell.push_back(number);
        }
        Some(&mut numbered.stream)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &SessionStream<P, K, B>> {
        let others = self.others.values().map(|it| &it.stream);
        std::iter::once(&self.first).chain(others)
    }

    pub(super) fn serving(&self) -> Vec<u32> {
        let others = self.others.iter().map(|(number, it)| (*number, &it.stream));
        let all = std::iter::once((0, &self.first)).chain(others);
        let serving = all.filter(|(_, stream)| stream.is_serving());
        serving.map(|(number, _)| number).collect()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut SessionStream<P, K, B>> {
        let others = self.others.values_mut().map(|it| &mut it.stream);
        std::iter::once(&mut self.first).chain(others)
    }

    /// Whether nothing is asked for, and no side has memory of the other.
    pub(super) fn is_idle(&self) -> bool {
        let first = &self.first;
        self.others.is_empty() && first.is_over() && first.lent_outstanding() == 0
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.first.is_receiving() || self.others.values().any(|it| it.stream.is_receiving())
    }

    /// Whether the peer may announce its memory: streams come in here, or have come.
    pub(super) fn has_come(&self) -> bool {
        self.has_come
            || self.first.has_come()
            || self.others.values().any(|it| it.stream.has_come())
    }

    /// The stream that a message of this number belongs to. `None`: that stream has ended.
    ///
    /// # Errors
    ///
    /// Rule S7: no stream has had the number.
    pub(super) fn at(
        &mut self,
        number: u32,
    ) -> Result<Option<&mut SessionStream<P, K, B>>, ProtocolError> {
        if number == 0 {
            return Ok(Some(&mut self.first));
        }
        if number > self.highest && !self.may_overtake() {
            let highest = self.highest;
            return Err(broken!(
                "S7",
                "message of stream {number}: the highest number is {highest}"
            ));
        }
        if number > self.highest && !self.others.contains_key(&number) {
            self.insert(number, Standing::Early { cancelled: None });
        }
        Ok(self.get_mut(number))
    }

    /// Whether the stream is over, so that its messages come late. If messages keep their order,
    /// the stream itself tells.
    pub(super) fn is_late(&self, number: u32) -> bool {
        if self.is_ordered || !matches!(self.limit, StreamLimit::Many(_)) {
            return false;
        }
        match number {
            0 => self.first.is_over(),
            _ => (self.others.get(&number)).is_some_and(|it| {
                let is_released = matches!(it.standing, Standing::Released | Standing::Lent);
                is_released && it.stream.is_over()
            }),
        }
    }

    /// Whether messages may come before the request of their stream.
    fn may_overtake(&self) -> bool {
        let StreamLimit::Many(limit) = self.limit else {
            return false;
        };
        self.first.is_server() && !self.is_ordered && self.running <= most_unended(limit)
    }

    /// Keeps a CANCEL that has overtaken the request of its stream. Returns whether it has.
    ///
    /// # Errors
    ///
    /// As [`at`](Self::at).
    pub(super) fn keep_early_cancel(
        &mut self,
        number: u32,
        control: &Control,
    ) -> Result<bool, ProtocolError> {
        let Control::Cancel { stream } = control else {
            return Ok(false);
        };
        self.at(number)?;
        let numbered = self.others.get_mut(&number);
        Ok(match numbered.map(|it| &mut it.standing) {
            Some(Standing::Early { cancelled }) => cancelled.replace(*stream).is_none(),
            _ => false,
        })
    }

    /// Makes the stream of a request. Returns the CANCEL that has overtaken the request.
    ///
    /// # Errors
    ///
    /// Rule S2: the number does not ascend.
    pub(super) fn asked_for(&mut self, number: u32) -> Result<Option<Control>, ProtocolError> {
        let is_many = matches!(self.limit, StreamLimit::Many(_));
        let ascends = match number {
            0 => !is_many,
            _ => is_many && number > self.highest,
        };
        if !ascends {
            let highest = self.highest;
            return Err(broken!(
                "S2",
                "request of stream {number} after that of stream {highest}"
            ));
        }
        self.highest = self.highest.max(number);
        if number == 0 {
            return Ok(None);
        }
        let before = self.insert(number, Standing::Held);
        Ok(match before {
            Some(Standing::Early { cancelled }) => {
                cancelled.map(|stream| Control::Cancel { stream })
            }
            _ => None,
        })
    }

    /// Fails, with the reason, if the server has no room for one more stream.
    pub(super) fn ensure_room(&self) -> Result<()> {
        match self.limit {
            StreamLimit::Many(limit) if self.running_with_first() > limit => Err(Error::new(
                Status::Busy,
                format!(
                    "the connection carries {limit} streams, and no more at once: wait for one to \
                     end"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Fails if the client asks for more and more streams and ends none.
    pub(super) fn ensure_ended(&self) -> Result<(), ProtocolError> {
        let StreamLimit::Many(limit) = self.limit else {
            return Ok(());
        };
        if self.running <= most_unended(limit) {
            return Ok(());
        }
        Err(broken!(
            "S4",
            "the client has {} streams that have not ended, where the server takes {limit}",
            self.running
        ))
    }

    fn running_with_first(&self) -> u32 {
        self.running
            .saturating_add(u32::from(!self.first.is_over()))
    }

    /// Makes a stream, or changes why it is kept. Returns why it was kept before.
    fn insert(&mut self, number: u32, standing: Standing) -> Option<Standing> {
        let new = || SessionStream {
            closed: self.first.closed.clone(),
            last_schema: (self.last_schema.as_ref())
                .or(self.first.last_schema.as_ref())
                .cloned(),
            ..SessionStream::new(self.first.role.another(), self.config, self.is_ordered)
        };
        match self.others.entry(number) {
            Entry::Occupied(mut early) => {
                Some(std::mem::replace(&mut early.get_mut().standing, standing))
            }
            Entry::Vacant(vacant) => {
                let stream = new();
                vacant.insert(Box::new(Numbered {
                    stream,
                    standing,
                    is_to_send: false,
                    is_to_tell: false,
                    silent_at: None,
                }));
                self.running = self.running.saturating_add(1);
                None
            }
        }
    }

    /// Whether there is a number, and a place among the running streams, for one more stream.
    pub(super) fn has_room(&self) -> bool {
        let has_place = match self.limit {
            StreamLimit::Many(limit) => self.running_with_first() < limit,
            StreamLimit::One | StreamLimit::Offered(_) => false,
        };
        let most = match self.is_ordered {
            true => u32::MAX,
            false => HIGHEST_IN_TAGS,
        };
        has_place && self.highest < most
    }

    /// The number of a new stream, which was not asked for.
    pub(super) fn open(&mut self) -> u32 {
        let number = self.highest.saturating_add(1);
        self.highest = number;
        self.insert(number, Standing::Held);
        self.unasked.insert(number);
        number
    }

    /// Notes that the host does not need a stream any more.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(numbered) = self.others.get_mut(&number)
            && numbered.standing == Standing::Held
        {
            numbered.standing = Standing::Released;
            // The stream may be over now. A request that waits for its turn still leaves.
            let _ = self.get_mut(number);
        }
    }

    /// The next message of a stream other than the first.
    pub(super) fn poll_transmit(&mut self) -> Option<(u32, Transmit<P>)> {
        while let Some(number) = self.to_send.front().copied() {
            let Some(numbered) = self.others.get_mut(&number) else {
                self.to_send.pop_front();
                continue;
            };
            let is_unasked = !self.unasked.is_empty() && self.unasked.contains(&number);
            // The request waits until all requests with lower numbers have left.
            let waits = is_unasked && self.unasked.first() != Some(&number);
            if !waits && let Some(transmit) = numbered.stream.poll_transmit() {
                if is_unasked {
                    self.asked(number);
                }
                return Some((number, transmit));
            }
            self.to_send.pop_front();
            numbered.is_to_send = false;
            if is_unasked && !waits && numbered.standing != Standing::Held {
                // The host has left before its request was sent.
                self.asked(number);
            }
            self.settle(number);
        }
        None
    }

    /// Notes that the request of a stream has left, or will never leave. Now the next request may
    /// leave.
    fn asked(&mut self, number: u32) {
        if self.unasked.remove(&number)
            && let Some(next) = self.unasked.first().copied()
        {
            let _ = self.get_mut(next);
        }
    }

    /// The next event of a stream other than the first.
    pub(super) fn poll_event(
        &mut self,
        now: impl Fn() -> Timestamp,
    ) -> Option<(u32, SessionEvent<K>)> {
        while let Some(number) = self.to_tell.front().copied() {
            if let Some(numbered) = self.others.get_mut(&number) {
                if let Some(event) = numbered.stream.poll_event(&now) {
                    return Some((number, event));
                }
                numbered.is_to_tell = false;
            }
            self.to_tell.pop_front();
            self.settle(number);
        }
        None
    }

    pub(super) fn has_output(&self) -> bool {
        self.first.has_output() || !self.to_send.is_empty() || !self.to_tell.is_empty()
    }

    /// Forgets a stream that nobody needs, and notes when the stream wants to be called.
    fn settle(&mut self, number: u32) {
        let Some(numbered) = self.others.get_mut(&number) else {
            return;
        };
        let silent_at = numbered.stream.silent_at();
        let before = std::mem::replace(&mut numbered.silent_at, silent_at);
        if before != silent_at {
            let of_number = |at| (at, number);
            if let Some(before) = before.map(of_number) {
                self.silent_at.remove(&before);
            }
            self.silent_at.extend(silent_at.map(of_number));
        }
        if numbered.standing == Standing::Released && numbered.stream.is_over() {
            numbered.standing = Standing::Lent;
            self.running = self.running.saturating_sub(1);
        }
        let is_needed = numbered.stream.has_output() || numbered.stream.lent_outstanding() > 0;
        if numbered.standing == Standing::Lent && !is_needed {
            self.asked(number);
            if let Some(ended) = self.others.remove(&number) {
                // The peer's memory outlives its streams: messages about this memory may come
                // later.
                self.has_come |= ended.stream.has_come();
                self.last_schema = ended.stream.last_schema.or(self.last_schema.take());
            }
        }
    }

    /// The time from which the peer counts as silent for too long about a stream.
    pub(super) fn silent_at(&self) -> Option<Timestamp> {
        let others = self.silent_at.first().map(|(at, _)| *at);
        others.into_iter().chain(self.first.silent_at()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Timestamp) {
        self.first.handle_timeout(now);
        let due = self.silent_at.iter().take_while(|(at, _)| *at <= now);
        for number in due.map(|(_, number)| *number).collect::<Vec<_>>() {
            if let Some(stream) = self.get_mut(number) {
                stream.handle_timeout(now);
            }
        }
    }
}

/// How many streams a client may have asked for and not ended, at a server that takes `limit`
/// streams at once.
fn most_unended(limit: u32) -> u32 {
    limit.saturating_mul(2).saturating_add(MOST_UNENDED)
}
