//! A client's sessions get a stream of a server's over one connection or two, on a simulated link,
//! which delays, reorders and cuts. A seed gives every choice, so a failure can be replayed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wires::{Dice, Line, TestBody, TestEnd, Wire};
use crate::error::{Error, Status};
use crate::proto::testing::{batch, dictionary, schema};
use crate::proto::*;

/// One message that the producer will send.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) dictionary: bool,
    pub(super) lengths: Vec<u64>,
    pub(super) lent: bool,
    /// Address of its first buffer when lent; items may share the address.
    pub(super) address: u64,
}

impl Item {
    fn header(&self) -> (Vec<u8>, u64) {
        if self.dictionary {
            dictionary(&self.lengths)
        } else {
            batch(&self.lengths)
        }
    }

    fn spans(&self) -> Vec<Span> {
        let mut address = self.address;
        let spans = self.lengths.iter().map(|length| match length {
            0 => Span {
                address: 0,
                length: 0,
            },
            _ => {
                address += 4096;
                Span {
                    address,
                    length: *length,
                }
            }
        });
        spans.collect()
    }
}

/// Ways in which a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The producer sends all items.
    Whole,
    /// The producer fails before this item.
    Fails(usize),
    /// The consumer cancels after this many items.
    Cancels(usize),
    /// The connections are cut after this many deliveries.
    Cut(usize),
}

#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) items: Vec<Item>,
    pub(super) window: Credit,
    pub(super) extension: bool,
    pub(super) separate: bool,
    /// Whether messages keep the order in which they were sent (as on a socket).
    pub(super) ordered: bool,
    pub(super) first_seq: u32,
    pub(super) fate: Fate,
}

/// One connection: its ends, and the messages under way.
struct Connection {
    side: Side,
    role: Role,
    server: TestEnd,
    client: TestEnd,
    down: Line,
    up: Line,
    frees: FreeQueue,
    /// The next item to send, and whether the stream is over for the producer.
    next: usize,
    done: bool,
    schema_sent: bool,
    /// Whether a batch is pulled from the producer and not completely sent.
    pulled: bool,
    /// Whether the server cuts the connection after all messages have left.
    closing: bool,
    /// Balance of each item: how often it was lent, minus how often its hold came back.
    lent: BTreeMap<usize, i32>,
}

pub(super) struct World {
    setup: Setup,
    dice: Dice,
    now: Timestamp,
    /// The first session has the stream.
    wires: Vec<Connection>,
    /// Items handed out, and addresses that the consumer still holds.
    taken: usize,
    held: Vec<Return>,
    delivered: usize,
    /// The true state of the window, to compare with the sender's count.
    batches_taken: u64,
    bytes_taken: u64,
    cut: bool,
    most_ready: usize,
    /// Most messages that came for the stream at once.
    most_handed_on: usize,
}

const START: Timestamp = Timestamp::from_nanos(0);

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let roles = match setup.separate {
            true => vec![(Side::Metadata, Role::Metadata), (Side::Data, Role::Data)],
            false => vec![(Side::Metadata, Role::Both)],
        };
        let config = SenderConfig {
            first_seq: setup.first_seq,
            ..SenderConfig::default()
        };
        let wires = roles.iter().map(|(side, role)| Connection {
            side: *side,
            role: *role,
            server: Session::server(config, setup.ordered, QuietTimes::default(), START),
            client: Session::client(SenderConfig::default(), setup.ordered),
            down: Line::new(setup.ordered),
            up: Line::new(setup.ordered),
            frees: FreeQueue::new(Tags::default_for(*role).free_data.unwrap()),
            next: 0,
            done: false,
            schema_sent: false,
            pulled: false,
            closing: false,
            lent: BTreeMap::new(),
        });
        Self {
            dice: Dice(setup.seed),
            now: START,
            wires: wires.collect(),
            taken: 0,
            held: Vec::new(),
            delivered: 0,
            batches_taken: 0,
            bytes_taken: 0,
            cut: false,
            most_ready: 0,
            most_handed_on: 0,
            setup,
        }
    }

    fn receiver_config(setup: &Setup) -> ReceiverConfig {
        let side = |role| SideConfig {
            tags: Tags::default_for(role),
            extension: setup.extension,
        };
        let request = Request {
            stream_id: 7,
            // Half of the clients do not know RETURN.
            features: match setup.seed % 2 {
                0 => FEATURE_IN_PLACE,
                _ => FEATURE_IN_PLACE | FEATURE_RETURN,
            },
            ..Request::new("ticket", setup.window)
        };
        let role = match setup.separate {
            true => Role::Metadata,
            false => Role::Both,
        };
        ReceiverConfig {
            data: setup.separate.then(|| side(Role::Data)),
            first_seq: setup.first_seq,
            ..ReceiverConfig::new(request, side(role))
        }
    }

    /// The next stream on the same connection (rule E4).
    pub(super) fn again(&mut self) {
        assert!(self.is_reusable() && self.held.is_empty());
        self.wires[0].client.first_mut().end_receiving();
        (self.taken, self.delivered) = (0, 0);
        (self.batches_taken, self.bytes_taken) = (0, 0);
        self.setup.fate = Fate::Whole;
        for wire in &mut self.wires {
            (wire.next, wire.done, wire.schema_sent) = (0, false, false);
            wire.pulled = false;
        }
    }

    /// Runs to the end with random steps. If no step changes anything before the stream is over,
    /// the test reports a deadlock.
    pub(super) fn run(&mut self) {
        self.start();
        self.drain();
        let mut idle = 0;
        while idle < 400 {
            let step = match self.dice.roll(9) {
                0 | 1 => self.produce(),
                2 | 3 => self.deliver_down(),
                4 => self.deliver_up(),
                5 => self.consume(),
                6 => self.free(),
                7 => self.hand_on(None),
                _ => self.pass_time(),
            };
            self.drain();
            idle = if step { 0 } else { idle + 1 };
            if let Fate::Cut(after) = self.setup.fate
                && self.delivered >= after
                && !self.cut
            {
                self.cut();
            }
            // Connections of a stream with two are not used again.
            if self.setup.separate
                && !self.cut
                && self.stream().state() == ReceiverState::Cancelled
                && self.wires[0].client.first().rest() != Rest::More
            {
                self.cut();
            }
        }
        self.check();
    }

    fn start(&mut self) {
        let mut receiver = Receiver::new(Self::receiver_config(&self.setup)).unwrap();
        receiver.start(self.now);
        let stream = IncomingStream::new(receiver, self.setup.ordered);
        let (first, others) = self.wires.split_first_mut().unwrap();
        first
            .client
            .first_mut()
            .begin_receiving(self.now, stream)
            .unwrap();
        for wire in others {
            wire.client.first_mut().begin_bodies(u64::MAX);
        }
    }

    fn stream(&mut self) -> &mut IncomingStream<TestBody> {
        self.wires[0].client.first_mut().incoming_mut().unwrap()
    }

    /// Hands on what the connection of the bodies has brought (rule U3), or its end.
    fn hand_on(&mut self, closed: Option<&Error>) -> bool {
        let [first, bodies] = &mut self.wires[..] else {
            return false;
        };
        let messages = bodies.client.first_mut().take_bodies();
        let has_some = !messages.is_empty();
        self.most_handed_on = self.most_handed_on.max(messages.len());
        let handled = first
            .client
            .first_mut()
            .handle_bodies(self.now, messages, closed);
        handled.unwrap();
        has_some
    }

    fn work_for_bodies(&mut self, work: BodiesWork) {
        let up = match work {
            BodiesWork::Request { tag, bytes } => Wire::Tagged(tag, bytes),
            BodiesWork::Control(bytes) => Wire::Control(bytes),
            BodiesWork::Expect(body) => {
                return assert!(body.packed % 64 == 0 && body.list >= 16);
            }
            BodiesWork::Abandoned(bodies) => {
                return bodies.into_iter().for_each(|body| self.hold(body));
            }
        };
        if !self.cut {
            self.wires.last_mut().unwrap().up.push(up);
        }
    }

    fn drain(&mut self) {
        while let Some((_, transmit)) = self.wires[0].client.poll_transmit() {
            let up = Wire::of_transmit(transmit).unwrap();
            if !self.cut {
                self.wires[0].up.push(up);
            }
        }
        while let Some((_, event)) = self.wires[0].client.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Bodies(work) => self.work_for_bodies(work),
                other => panic!("{other:?}"),
            }
        }
        for work in self.stream().take_bodies_work() {
            self.work_for_bodies(work);
        }
        if let Some(header) = self.stream().schema() {
            assert_eq!(header.bytes(), schema());
        }
        for wire in &mut self.wires {
            while let Some((_, transmit)) = wire.server.poll_transmit() {
                match Wire::of_transmit(transmit) {
                    Ok(down) => wire.down.push(down),
                    Err(reason) => {
                        // Rule E7: a baseline peer learns no more than this.
                        assert!(matches!(self.setup.fate, Fate::Fails(_)), "{reason}");
                        wire.closing = true;
                    }
                }
            }
            while let Some((_, event)) = wire.server.poll_event(Timestamp::default) {
                match event {
                    SessionEvent::Requested(arrived) => {
                        let (ticket, role) = (&*arrived.request.ticket, arrived.role);
                        assert_eq!((ticket, role), (&b"ticket"[..], wire.role));
                        assert_eq!(arrived.extension, self.setup.extension);
                        let (device_type, device_id, body_kinds) = (1, -1, 3);
                        let (version, features) = (VERSION, 0);
                        let info = StreamInfo {
                            version,
                            features,
                            device_type,
                            device_id,
                            body_kinds,
                        };
                        wire.server.first_mut().sender().accept(info).unwrap();
                    }
                    SessionEvent::Lost => {
                        // The stream may have ended in the same step.
                        let sender = wire.server.first_mut().sender();
                        if sender.is_cancelled() {
                            sender.fail(Status::Cancelled.code(), "cancelled").unwrap();
                        }
                        wire.done = true;
                    }
                    SessionEvent::Freed(item) => *wire.lent.get_mut(&item).unwrap() -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Records returns: addresses one by one, in any order.
    fn hold(&mut self, body: Return) {
        match body {
            Return::Addresses(addresses) => {
                let single = addresses
                    .iter()
                    .map(|address| Return::Addresses(vec![*address]));
                self.held.extend(single);
            }
            number => self.held.push(number),
        }
    }

    /// Sends one message of one producer, if its credit allows.
    fn produce(&mut self) -> bool {
        let at = self.dice.roll(self.wires.len());
        let wire = &mut self.wires[at];
        if wire.done || wire.server.first().state() != SenderState::Streaming {
            return false;
        }
        if !wire.schema_sent {
            wire.server
                .first_mut()
                .sender()
                .send_schema(schema())
                .unwrap();
            wire.schema_sent = true;
            return true;
        }
        if self.setup.fate == Fate::Fails(wire.next) {
            wire.server
                .first_mut()
                .sender()
                .fail(Status::Provider.code(), "out of luck")
                .unwrap();
            wire.done = true;
            return true;
        }
        let Some(item) = self.setup.items.get(wire.next) else {
            wire.server.first_mut().sender().end().unwrap();
            wire.done = true;
            return true;
        };
        let (header, len) = item.header();
        // With the extension, lent bodies use no bytes of the window.
        let spared = |item: &Item| item.lent && wire.role != Role::Metadata;
        let in_place = spared(item);
        // Works like a driver: pull when any batch may go, then send the batch and its dictionaries
        // one by one as the credit admits their sizes.
        if !wire.pulled && !wire.server.first_mut().sender().may_pull() {
            assert!(len == 0 || in_place || !wire.server.first_mut().sender().admits(len, false));
            return false;
        }
        wire.pulled = true;
        if !wire.server.first_mut().sender().admits(len, in_place) {
            return false;
        }
        if self.setup.extension {
            // Rule E5, against the true state: the messages that the consumer has not taken.
            let sent = &self.setup.items[..wire.next];
            let batches = sent.iter().filter(|item| !item.dictionary).count() as u64;
            let all: u64 = sent.iter().map(|item| item.header().1).sum();
            let batches = batches - self.batches_taken.min(batches);
            let untaken = all - self.bytes_taken.min(all);
            // In order: the consumer has not taken the last messages sent.
            let mut behind = 0;
            let newest = sent.iter().rev().take_while(|item| {
                behind += item.header().1;
                behind <= untaken
            });
            let bytes: u64 = (newest.filter(|item| !spared(item)))
                .map(|item| item.header().1)
                .sum();
            let charged = if in_place { 0 } else { len };
            let within = (item.dictionary || batches < self.setup.window.batches)
                && bytes + charged <= self.setup.window.bytes;
            // Without a limit of bytes, bytes are not counted.
            let nothing = batches == 0 && (untaken == 0 || self.setup.window.bytes == u64::MAX);
            assert!(within || nothing, "credit exceeded");
        }
        let body = match (wire.role, item.lent) {
            (Role::Metadata, _) => OutBody::Elsewhere,
            (_, true) => {
                *wire.lent.entry(wire.next).or_default() += 1;
                OutBody::Lent {
                    spans: item.spans().into(),
                    hold: wire.next,
                    in_place: true,
                }
            }
            (_, false) => OutBody::Packed {
                len,
                payload: TestBody {
                    item: wire.next,
                    len,
                },
            },
        };
        match item.dictionary {
            true => wire
                .server
                .first_mut()
                .sender()
                .send_dictionary(header, len, body)
                .unwrap(),
            false => wire
                .server
                .first_mut()
                .sender()
                .send_batch(header, len, body)
                .unwrap(),
        }
        wire.pulled = item.dictionary;
        wire.next += 1;
        true
    }

    fn deliver_down(&mut self) -> bool {
        let at = self.dice.roll(self.wires.len());
        if self.wires[at].closing && self.wires[at].down.len() == 0 && !self.cut {
            self.cut();
            return true;
        }
        let side = self.wires[at].side;
        let may_read = self.stream().may_read(side);
        let wire = &mut self.wires[at];
        if !may_read || wire.client.first().is_full() {
            return false;
        }
        if !wire
            .down
            .deliver(&mut self.dice, self.now, &mut wire.client)
        {
            return false;
        }
        self.delivered += 1;
        let fate = self.setup.fate;
        if let Some(error) = self.stream().error()
            && error.status() != Status::Cancelled
        {
            assert!(matches!(fate, Fate::Fails(_)), "{error}");
            assert_eq!(error.status(), Status::Provider);
        }
        true
    }

    fn deliver_up(&mut self) -> bool {
        let at = self.dice.roll(self.wires.len());
        let wire = &mut self.wires[at];
        wire.up.deliver(&mut self.dice, self.now, &mut wire.server)
    }

    fn consume(&mut self) -> bool {
        if let Fate::Cancels(after) = self.setup.fate
            && self.taken >= after
            && self.stream().state() == ReceiverState::Streaming
        {
            self.stream().cancel();
            // Messages that are still under way could come between those of the next stream.
            if self.wires[0].client.first().rest() == Rest::Unusable {
                self.cut();
            }
            return true;
        }
        self.most_ready = self.most_ready.max(self.stream().waiting());
        let Some((message, back)) = self.stream().next_message() else {
            // The consumer takes what came before a cut. Now it is about to sleep.
            let _ = self.stream().error();
            self.stream().flush_credit();
            return false;
        };
        // Rules M4, M6: complete, in order, exact.
        let item = &self.setup.items[self.taken];
        let (header, len) = item.header();
        let ahead = u32::try_from(self.taken).unwrap() + 1;
        assert_eq!(message.seq, self.setup.first_seq.wrapping_add(ahead));
        assert_eq!(message.header.bytes(), header);
        match message.body {
            Body::Packed(body) => assert_eq!((body.item, item.lent), (self.taken, false)),
            Body::Lent(spans) => {
                assert!(item.lent);
                assert_eq!(spans, item.spans());
            }
        }
        self.taken += 1;
        self.batches_taken += u64::from(!item.dictionary);
        self.bytes_taken += len;
        back.into_iter().for_each(|body| self.hold(body));
        true
    }

    /// The consumer releases some of its bodies.
    fn free(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.held.len());
        let body = self.held.swap_remove(at);
        let wire = self.wires.last_mut().unwrap();
        if !self.cut {
            wire.frees.push(self.now, &body);
        }
        true
    }

    fn pass_time(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_millis(3));
        let wire = self.wires.last_mut().unwrap();
        // Rule F5: no return waits longer than its deadline.
        let due = wire
            .frees
            .deadline()
            .is_some_and(|deadline| deadline <= self.now);
        let message = wire.frees.poll(self.now);
        assert!(message.is_some() || !due);
        let waiting = !wire.frees.is_empty();
        let sent = message.is_some();
        if let Some(message) = message {
            wire.up.push(Wire::of_free(message));
        }
        sent || waiting
    }

    fn cut(&mut self) {
        self.cut = true;
        let reason = Error::disconnected("cut");
        for wire in &mut self.wires {
            // Rule F4: a disconnect gives back every lend.
            for item in wire.server.handle_disconnect(&reason) {
                *wire.lent.get_mut(&item).unwrap() -= 1;
            }
            assert_eq!(wire.server.first().lent_outstanding(), 0);
            wire.down.clear();
            wire.up.clear();
            wire.frees = FreeQueue::new(1);
            wire.done = true;
            wire.client.handle_disconnect(&reason);
        }
        self.hand_on(Some(&reason));
    }

    fn check(&mut self) {
        let failure = self.stream().error().cloned();
        let state = self.stream().state();
        match self.setup.fate {
            Fate::Whole => assert_eq!(state, ReceiverState::Ended, "deadlock: {self:?}"),
            Fate::Fails(at) if self.setup.extension && at <= self.setup.items.len() => {
                assert_eq!(state, ReceiverState::Failed, "deadlock: {self:?}");
                assert_eq!(failure.unwrap().text(), "the server: out of luck");
                assert_eq!(self.taken, at.min(self.setup.items.len()));
            }
            // Rule E7: a baseline peer is cut off, and may have lost messages under way.
            Fate::Fails(at) if at <= self.setup.items.len() => {
                assert_eq!(state, ReceiverState::Failed, "deadlock: {self:?}");
                assert!(self.taken <= at);
            }
            Fate::Fails(_) => {}
            Fate::Cancels(after) if after <= self.setup.items.len() => {
                assert!(matches!(
                    state,
                    ReceiverState::Cancelled | ReceiverState::Ended
                ));
            }
            Fate::Cancels(_) => {}
            Fate::Cut(_) if self.cut => assert!(
                matches!(state, ReceiverState::Failed | ReceiverState::Ended),
                "{state:?}"
            ),
            Fate::Cut(_) => {}
        }
        if state == ReceiverState::Ended {
            assert!(self.stream().is_complete(), "deadlock: {self:?}");
            assert_eq!(self.taken, self.setup.items.len());
        }
        // Rules F2, F3, F4: every lend has come back, once.
        for wire in &self.wires {
            assert!(
                wire.lent.values().all(|balance| *balance == 0),
                "{:?}",
                wire.lent
            );
            assert_eq!(wire.server.first().lent_outstanding(), 0, "{self:?}");
        }
        // A pause in reading limits a peer that counts no credit.
        if !self.setup.extension && self.setup.ordered {
            let batches = usize::try_from(self.setup.window.batches).unwrap();
            let most = batches.max(1) + 1 + self.most_handed_on;
            assert!(self.most_ready <= most, "{} of {most}", self.most_ready);
        }
    }

    /// Whether the connection can carry the next stream.
    pub(super) fn is_reusable(&self) -> bool {
        let rest = self.wires[0].client.first().rest();
        rest == Rest::Nothing && !self.setup.separate && self.setup.extension
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("client", &self.wires[0].client)
            .field("taken", &self.taken)
            .field("held", &self.held.len())
            .field(
                "wires",
                &self
                    .wires
                    .iter()
                    .map(|w| {
                        (
                            w.next,
                            w.server.first().state(),
                            w.server.first().lent_outstanding(),
                            w.down.len(),
                            w.up.len(),
                        )
                    })
                    .collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let lengths = prop::collection::vec(
            prop_oneof![2 => Just(0_u64), 6 => 1_u64..200, 1 => 200_u64..3000],
            0..4,
        );
        let item = (prop::bool::weighted(0.3), lengths, any::<bool>(), 1_u64..6).prop_map(
            |(dictionary, lengths, lent, place)| Item {
                dictionary,
                lengths,
                lent,
                address: place << 20,
            },
        );
        prop::collection::vec(item, 0..25)
    }

    fn setups(fate: impl Strategy<Value = Fate>) -> impl Strategy<Value = Setup> {
        let window = (
            0_u64..6,
            prop_oneof![Just(0_u64), 64_u64..2000, Just(u64::MAX)],
        )
            .prop_map(|(batches, bytes)| Credit { batches, bytes });
        let first = prop_oneof![Just(0_u32), (u32::MAX - 12)..=u32::MAX, any::<u32>()];
        (
            any::<u64>(),
            items(),
            window,
            any::<[bool; 3]>(),
            first,
            fate,
        )
            .prop_map(
                |(seed, items, window, [extension, separate, ordered], first_seq, fate)| Setup {
                    seed,
                    items,
                    window,
                    extension,
                    separate,
                    ordered,
                    first_seq,
                    fate,
                },
            )
    }

    /// Runs a stream, and a second stream if the connection can carry it.
    fn run(setup: Setup) {
        let mut world = World::new(setup);
        world.run();
        if world.is_reusable() {
            world.again();
            world.run();
        }
    }

    proptest! {
        /// Rules M4, M6, D1, D5, E5, F2, F3, F5: with any order of arrival and any first number, a
        /// stream arrives complete, in order and exact. Credit is never exceeded and never stops
        /// the stream for good. Every lend comes back, and no return waits longer than it may.
        #[test]
        fn streams_arrive_whole(setup in setups(Just(Fate::Whole))) {
            run(setup);
        }

        /// Rules E2, E4: a producer's failure arrives after all messages sent before it.
        #[test]
        fn failures_arrive_in_order(setup in setups((0_usize..26).prop_map(Fate::Fails))) {
            run(setup);
        }

        /// Rules E4, F3: after a cancel at any point every lend comes back, and the connection
        /// serves the next stream.
        #[test]
        fn cancels_leave_nothing_behind(setup in setups((0_usize..26).prop_map(Fate::Cancels))) {
            run(setup);
        }

        /// Rule F4: a cut at any point fails the stream, unless the stream was complete, and gives
        /// every lend back at the server.
        #[test]
        fn cuts_give_everything_back(setup in setups((0_usize..90).prop_map(Fate::Cut))) {
            run(setup);
        }
    }
}
