//! A client's session that puts and a server's session that takes, on a simulated link, which
//! delays, reorders and cuts. A seed gives every choice, so a failure can be replayed.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proto::testing::{batch, schema};
use crate::proto::{
    Body, Bytes, FEATURE_IN_PLACE, FEATURE_RETURN, FreeMessage, FreeQueue, OutBody, PutStage,
    Receiver, ReceiverConfig, Return, SideConfig, Span, Tags, Verb, body_of_tag,
};

/// How a put ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutFate {
    /// The host takes all batches.
    Taken,
    /// The host refuses the request.
    Refused,
    /// The host fails after so many batches.
    HostFails(usize),
    /// The client gives up before this batch.
    ClientAborts(usize),
    /// The connection is cut after so many deliveries.
    Cut(usize),
}

#[derive(Debug, Clone)]
struct PutSetup {
    seed: u64,
    /// Lengths of the batches' bodies, and whether they are lent.
    batches: Vec<(u64, bool)>,
    window: Credit,
    ordered: bool,
    fate: PutFate,
}

/// A message of either direction. The payload of a packed body is the number of its batch.
#[derive(Debug, Clone)]
enum Wire {
    Metadata(Vec<u8>),
    Control(Vec<u8>),
    Tagged(u64, Vec<u8>),
    Body(u64, usize),
}

/// How far the server's host has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    Idle,
    Deciding,
    Taking,
    Answered,
}

struct PutWorld {
    setup: PutSetup,
    dice: u64,
    now: Timestamp,
    client: Session<usize, usize, usize>,
    server: Session<usize, usize, usize>,
    host: HostState,
    mark: u64,
    up: VecDeque<Wire>,
    down: VecDeque<Wire>,
    frees: FreeQueue,
    held: Vec<Return>,
    sent: usize,
    has_schema_left: bool,
    has_ended: bool,
    taken: usize,
    deliveries: usize,
    /// Lends, less the holds that have come back.
    lent: usize,
}

impl PutWorld {
    fn new(setup: PutSetup) -> Self {
        let config = || SenderConfig::only(Role::Both, Tags::DEFAULT);
        let ordered = setup.ordered;
        let times = QuietTimes::default();
        Self {
            dice: setup.seed,
            now: Timestamp::default(),
            client: Session::client(config(), ordered),
            server: Session::server(config(), ordered, times, Timestamp::default()),
            host: HostState::Idle,
            mark: 0,
            up: VecDeque::new(),
            down: VecDeque::new(),
            frees: FreeQueue::new(Tags::DEFAULT.free_data.unwrap()),
            held: Vec::new(),
            sent: 0,
            has_schema_left: false,
            has_ended: false,
            taken: 0,
            deliveries: 0,
            lent: 0,
            setup,
        }
    }

    fn request(&self) -> Request {
        Request {
            verb: Verb::Put,
            source: Some(StreamInfo {
                features: FEATURE_IN_PLACE | FEATURE_RETURN,
                ..INFO
            }),
            stream_id: 7,
            ..Request::new("t", WINDOW)
        }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice = (self.dice)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.dice >> 33).unwrap() % sides.max(1)
    }

    /// Runs to the end with random steps.
    fn run(&mut self) {
        self.client.ask(&self.request()).unwrap();
        self.drain();
        let mut idle = 0;
        while idle < 300 {
            let step = match self.roll(9) {
                0 | 1 => self.produce(),
                2 | 3 => self.deliver_up(),
                4 => self.deliver_down(),
                5 | 6 => self.host_step(),
                7 => self.give_back(),
                _ => self.pass_time(),
            };
            self.drain();
            idle = if step { 0 } else { idle + 1 };
            if matches!(self.setup.fate, PutFate::Cut(after) if self.deliveries >= after) {
                return self.cut();
            }
        }
        self.check();
    }

    /// The next put on the same connection (rule E4).
    fn again(&mut self) {
        self.setup.fate = PutFate::Taken;
        self.host = HostState::Idle;
        (self.sent, self.taken) = (0, 0);
        (self.has_schema_left, self.has_ended) = (false, false);
        self.run();
    }

    fn produce(&mut self) -> bool {
        if self.has_ended || self.client.ensure_streaming().is_err() {
            return false;
        }
        if !self.has_schema_left {
            // Rule Q3: it follows the request at once.
            self.client.sender().send_schema(schema()).unwrap();
            self.has_schema_left = true;
            return true;
        }
        if self.client.put().unwrap().stage < PutStage::Granted {
            return false;
        }
        let sender = self.client.sender();
        if self.setup.fate == PutFate::ClientAborts(self.sent) {
            sender.fail(Status::Provider.code(), "out of luck").unwrap();
            self.has_ended = true;
            return true;
        }
        let Some(&(len, lends)) = self.setup.batches.get(self.sent) else {
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
                payload: packed(self.sent, body_len),
            },
        };
        self.lent += usize::from(lends);
        sender.send_batch(header, body_len, body).unwrap();
        self.sent += 1;
        true
    }

    fn deliver_up(&mut self) -> bool {
        if self.up.is_empty() || self.server.is_full() || self.server.closed().is_some() {
            return false;
        }
        // Control messages and requests keep their order, as on every transport.
        let loose = |wire: &Wire| matches!(wire, Wire::Metadata(_) | Wire::Body(..));
        let mut index = 0;
        if !self.setup.ordered {
            index = self.roll(self.up.len());
            if !loose(&self.up[index]) {
                index = self.up.iter().position(|wire| !loose(wire)).unwrap();
            }
        }
        let wire = self.up.remove(index).unwrap();
        self.deliveries += 1;
        let handled = hand_in(&mut self.server, self.now, message_of(wire)).unwrap();
        assert_eq!(handled, Handled::Done);
        true
    }

    fn deliver_down(&mut self) -> bool {
        let Some(wire) = self.down.pop_front() else {
            return false;
        };
        self.deliveries += 1;
        let handled = hand_in(&mut self.client, self.now, message_of(wire)).unwrap();
        assert_eq!(handled, Handled::Done);
        true
    }

    /// The server's host decides, reads, and answers.
    fn host_step(&mut self) -> bool {
        match self.host {
            HostState::Idle => false,
            HostState::Deciding => self.decide(),
            HostState::Taking => self.take() || self.end_taking(),
            HostState::Answered => false,
        }
    }

    fn decide(&mut self) -> bool {
        let request = Request {
            features: FEATURE_IN_PLACE | FEATURE_RETURN,
            credit: self.setup.window,
            ..self.request()
        };
        let config = ReceiverConfig::new(request, SideConfig::extended(Tags::DEFAULT));
        let receiver = Receiver::of_client(config, self.now).unwrap();
        let stream = IncomingStream::new(receiver, self.setup.ordered);
        self.server.begin_receiving(self.now, stream).unwrap();
        if self.setup.fate == PutFate::Refused {
            self.answer_failure("not today");
            return true;
        }
        let info = StreamInfo {
            features: FEATURE_IN_PLACE | FEATURE_RETURN,
            ..INFO
        };
        let grant = Grant {
            credit: self.setup.window,
            ..GRANT
        };
        let granted = self
            .server
            .answer(self.mark, |sender| sender.grant(info, grant));
        // The client may have given up.
        self.host = match granted {
            Ok(()) => HostState::Taking,
            Err(_) => HostState::Answered,
        };
        true
    }

    fn answer_failure(&mut self, text: &str) {
        let code = Status::Provider.code();
        let told = self
            .server
            .answer(self.mark, |sender| sender.fail(code, text));
        // A client that has given up is told all the same.
        if told.is_err() {
            let _ = self.server.sender().fail(code, text);
        }
        self.leave();
        self.host = HostState::Answered;
    }

    /// The host wants no more of the stream.
    fn leave(&mut self) {
        if let Some(stream) = self.server.stream_mut() {
            stream.cancel();
            stream.leave(self.now, Duration::from_secs(60));
        }
    }

    fn take(&mut self) -> bool {
        let Some(stream) = self.server.stream_mut() else {
            return false;
        };
        if matches!(self.setup.fate, PutFate::HostFails(after) if self.taken >= after) {
            self.answer_failure("the disk is full");
            return true;
        }
        let Some((message, back)) = stream.next_message() else {
            stream.flush_credit();
            return false;
        };
        // Rules M4, M6: complete, in order, exact.
        let (len, lends) = self.setup.batches[self.taken];
        assert_eq!(message.header.bytes(), batch(&[len]).0);
        match message.body {
            Body::Packed(number) => assert_eq!((number, lends), (self.taken, false)),
            Body::Lent(_) => {
                assert!(lends);
                self.held.extend(back);
            }
        }
        self.taken += 1;
        true
    }

    fn end_taking(&mut self) -> bool {
        let Some(stream) = self.server.stream_mut() else {
            return false;
        };
        if stream.is_complete() {
            let taken = self.taken as u64;
            let finish = self
                .server
                .answer(self.mark, |sender| sender.finish_taking(taken));
            finish.unwrap();
            self.leave();
        } else if let Some(error) = stream.error() {
            // Rule Q10: the client gave up.
            assert!(
                matches!(self.setup.fate, PutFate::ClientAborts(_)),
                "{error}"
            );
            assert!(error.text().contains("out of luck"), "{error}");
            self.answer_failure("the client gave up");
        } else {
            return false;
        }
        self.host = HostState::Answered;
        true
    }

    /// The host releases some of its bodies.
    fn give_back(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let at = self.roll(self.held.len());
        let body = self.held.swap_remove(at);
        self.frees.push(self.now, &body);
        true
    }

    fn pass_time(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_millis(3));
        let message = self.frees.poll(self.now);
        let is_waiting = !self.frees.is_empty();
        let is_said = message.is_some();
        self.down.extend(message.map(|message| match message {
            FreeMessage::Tagged { tag, bytes } => Wire::Tagged(tag, bytes),
            FreeMessage::Control(bytes) => Wire::Control(bytes),
        }));
        is_said || is_waiting
    }

    fn drain(&mut self) {
        self.up.extend(transmits(&mut self.client));
        self.down.extend(transmits(&mut self.server));
        while let Some(event) = self.client.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Freed(_) => self.lent -= 1,
                SessionEvent::Requested(_) => panic!("a client is asked"),
                _ => {}
            }
        }
        while let Some(event) = self.server.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Requested(request) => {
                    // Rule E4: not before everything of the stream before it has come.
                    assert!(self.server.stream().is_none());
                    self.mark = request.request.mark();
                    self.server.await_decision();
                    self.host = HostState::Deciding;
                }
                SessionEvent::Bodies(BodiesWork::Abandoned(bodies)) => self.held.extend(bodies),
                // Rule Q10: the server has read and dropped the rest, or closes a connection on which
                // more may come.
                SessionEvent::LeftOver => match self.server.rest() {
                    Rest::Nothing => self.server.end_receiving(),
                    Rest::Late => drop(self.server.handle_disconnect(Error::disconnected("late"))),
                    rest => panic!("{rest:?}"),
                },
                _ => {}
            }
        }
    }

    /// Rule F4: a cut gives every lend back.
    fn cut(&mut self) {
        let error = Error::disconnected("cut");
        self.lent -= self.client.handle_disconnect(error.clone()).len();
        assert_eq!((self.lent, self.client.lent_outstanding()), (0, 0));
        assert!(self.client.ensure_streaming().is_err());
        self.server.handle_disconnect(error.clone());
        assert!(self.server.ensure_streaming().is_err());
        // What came before the cut can still be taken.
        if let Some(stream) = self.server.stream_mut() {
            while stream.next_message().is_some() {}
            assert!(stream.is_complete() || stream.error().is_some());
        }
    }

    fn check(&mut self) {
        let stage = self.client.put().unwrap().stage;
        let outcome = self.client.put().unwrap().outcome.clone();
        let outcome = outcome.unwrap_or_else(|| panic!("deadlock: {stage:?}, {:?}", self.host));
        let all = self.setup.batches.len();
        let failed_with = |text: &str| {
            let error = outcome.as_ref().unwrap_err();
            assert!(error.text().contains(text), "{error}");
        };
        match self.setup.fate {
            // Rule Q4: END says how many batches the host has taken.
            PutFate::Taken | PutFate::Cut(_) => assert_eq!(outcome, Ok(all as u64)),
            PutFate::Refused => {
                failed_with("not today");
                // Rule Q2: nothing of a body has moved.
                assert_eq!((self.sent, stage), (0, PutStage::Heard));
            }
            PutFate::HostFails(after) if after <= all => failed_with("the disk is full"),
            PutFate::ClientAborts(at) if at <= all => failed_with("the client gave up"),
            PutFate::HostFails(_) | PutFate::ClientAborts(_) => assert_eq!(outcome, Ok(all as u64)),
        }
        // Rule Q10: a connection without order ends with the stream, and gives back every lend.
        if !self.is_reusable() {
            return self.cut();
        }
        // Rules F2, F3: every lend has come back, once; the connection is free at both ends.
        assert_eq!((self.lent, self.client.lent_outstanding()), (0, 0));
        assert_eq!(self.client.state(), SenderState::Idle);
        assert_eq!(self.server.state(), SenderState::Idle);
        assert!(self.server.stream().is_none());
    }

    /// Rule Q10: whether the connection may carry the next stream.
    fn is_reusable(&self) -> bool {
        self.client.closed().is_none() && (self.setup.ordered || self.client.has_ended_well())
    }
}

fn message_of(wire: Wire) -> InMessage<Bytes, usize> {
    match wire {
        Wire::Metadata(bytes) => InMessage::Metadata(bytes.into()),
        Wire::Control(bytes) => InMessage::Control(bytes.into()),
        Wire::Tagged(tag, bytes) => InMessage::Tagged {
            tag,
            bytes: bytes.into(),
        },
        Wire::Body(tag, memory) => InMessage::Body {
            seq: body_of_tag(tag).unwrap().0,
            len: memory_len(memory),
            memory: memory_number(memory),
        },
    }
}

/// A packed body: its number and its length.
fn packed(number: usize, len: u64) -> usize {
    number | usize::try_from(len).unwrap() << 16
}

fn memory_number(memory: usize) -> usize {
    memory & 0xffff
}

fn memory_len(memory: usize) -> u64 {
    (memory >> 16) as u64
}

fn transmits(session: &mut Session<usize, usize, usize>) -> Vec<Wire> {
    let next = || {
        Some(match session.poll_transmit()? {
            Transmit::Metadata { prefix, header } => {
                Wire::Metadata([&prefix[..], header.as_deref().unwrap_or_default()].concat())
            }
            Transmit::Control { bytes, .. } => Wire::Control(bytes),
            Transmit::Request { tag, bytes } | Transmit::List { tag, bytes } => {
                Wire::Tagged(tag, bytes.into_vec())
            }
            Transmit::Body { tag, packed } => Wire::Body(tag, packed),
            Transmit::Disconnect { reason } => panic!("{reason}"),
        })
    };
    std::iter::from_fn(next).collect()
}

fn setups(fate: impl Strategy<Value = PutFate>) -> impl Strategy<Value = PutSetup> {
    let window = (1_u64..6, prop_oneof![64_u64..2000, Just(u64::MAX)])
        .prop_map(|(batches, bytes)| Credit { batches, bytes });
    let batches = prop::collection::vec((0_u64..400, any::<bool>()), 0..20);
    (any::<u64>(), batches, window, any::<bool>(), fate).prop_map(
        |(seed, batches, window, ordered, fate)| PutSetup {
            seed,
            batches,
            window,
            ordered,
            fate,
        },
    )
}

/// Runs a put, and a second one if the connection can carry it.
fn run(setup: PutSetup) {
    let mut world = PutWorld::new(setup);
    world.run();
    if world.is_reusable() {
        world.again();
    }
}

proptest! {
    /// Rules Q2 to Q4, Q11, E5, F2: a put arrives whole, whenever the host decides and reads. END
    /// comes last, every lend comes back, and the connection carries the next stream.
    #[test]
    fn puts_arrive_whole(setup in setups(Just(PutFate::Taken))) {
        run(setup);
    }

    /// Rules Q2, Q10: a refused put is known before its first batch, and the connection is free.
    #[test]
    fn refusals_come_first(setup in setups(Just(PutFate::Refused))) {
        run(setup);
    }

    /// Rule Q10: after a failure of the server's host the rest of the stream is read and dropped.
    #[test]
    fn failures_of_the_host_end_both_sides(
        setup in setups((0_usize..21).prop_map(PutFate::HostFails))
    ) {
        run(setup);
    }

    /// Rule Q10: a client that gives up says so in order, and the server answers.
    #[test]
    fn aborts_end_both_sides(setup in setups((0_usize..21).prop_map(PutFate::ClientAborts))) {
        run(setup);
    }

    /// Rule F4: a cut at any point ends both sides, and gives every lend back.
    #[test]
    fn cuts_end_both_sides(setup in setups((0_usize..60).prop_map(PutFate::Cut))) {
        run(setup);
    }
}
