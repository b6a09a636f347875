//! A client and a server with many streams on one simulated connection, which delays, reorders (on
//! transports without order) and cuts. A seed gives every choice, so a failure can be replayed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proto::testing::{batch, schema};
use crate::proto::wires::{Dice, TestBody, TestEnd, Wire, hand_in_at};
use crate::proto::{Body, FEATURE_STREAMS, FreeMessage, FreeQueue, Message, OutBody, Return, Span};

#[derive(Debug, Clone)]
struct ManySetup {
    seed: u64,
    /// Messages keep their order.
    ordered: bool,
    /// Most streams at once, as the server says.
    limit: u32,
    /// For each stream, its batches.
    streams: Vec<u32>,
    /// Deliveries before the server says GOAWAY, and before the connection is cut.
    goes_away: Option<usize>,
    cut: Option<usize>,
}

/// A stream, as the client's host sees it.
#[derive(Debug)]
struct Wanted {
    batches: u32,
    /// Batches that the consumer has taken.
    taken: u32,
    fate: WantedFate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedFate {
    Running,
    Complete,
    /// Its consumer has left.
    Left,
    /// The server's host does not know of the stream.
    Busy,
    Cut,
}

/// A stream, as the server's host sees it.
#[derive(Debug)]
struct Served {
    batches: u32,
    sent: u32,
}

struct ManyWorld {
    setup: ManySetup,
    dice: Dice,
    client: TestEnd,
    server: TestEnd,
    up: VecDeque<(u32, Wire)>,
    down: VecDeque<(u32, Wire)>,
    /// Streams that the client has not opened.
    next: usize,
    /// Streams that have a number but that the server was not asked for; with their batches.
    unasked: Vec<(u32, u32)>,
    wanted: BTreeMap<u32, Wanted>,
    served: BTreeMap<u32, Served>,
    /// Lent bodies that arrays hold, and those on their way back.
    held: Vec<(u32, Return)>,
    lent: usize,
    deliveries: usize,
}

const NOW: fn() -> Timestamp = Timestamp::default;

impl ManyWorld {
    fn new(setup: ManySetup) -> Self {
        let config = || SenderConfig::only(Role::Both, Tags::DEFAULT);
        let mut client = TestEnd::client(config(), setup.ordered);
        let times = QuietTimes::default();
        let mut server = TestEnd::server(config(), setup.ordered, times, NOW());
        client.offer_streams(100);
        server.offer_streams(setup.limit);
        Self {
            dice: Dice(setup.seed),
            client,
            server,
            up: VecDeque::new(),
            down: VecDeque::new(),
            next: 0,
            unasked: Vec::new(),
            wanted: BTreeMap::new(),
            served: BTreeMap::new(),
            held: Vec::new(),
            lent: 0,
            deliveries: 0,
            setup,
        }
    }

    fn run(&mut self) {
        let mut idle = 0;
        while idle < 200 {
            let moved = match self.dice.roll(9) {
                0 => self.open(),
                8 => self.ask(),
                1 | 2 => self.deliver_up(),
                3 | 4 => self.deliver_down(),
                5 => self.serve(),
                6 => self.consume(),
                _ => self.give_back(),
            };
            self.drain();
            idle = if moved { 0 } else { idle + 1 };
        }
    }

    fn is_cut(&self) -> bool {
        self.client.closed().is_some()
    }

    /// The client's host wants one more stream.
    fn open(&mut self) -> bool {
        let Some(batches) = self.setup.streams.get(self.next).copied() else {
            return false;
        };
        let number = match self.next {
            0 => 0,
            _ => match self.client.open() {
                Ok(number) => number,
                Err(_) => return false,
            },
        };
        self.next += 1;
        self.unasked.push((number, batches));
        if number == 0 {
            self.ask();
        }
        true
    }

    /// The client's host asks for one of the streams that have numbers, in any order, or leaves the
    /// stream before it has asked.
    fn ask(&mut self) -> bool {
        if self.unasked.is_empty() || self.is_cut() {
            return false;
        }
        let at = self.dice.roll(self.unasked.len());
        let (number, batches) = self.unasked.remove(at);
        if number > 0 && self.dice.roll(10) == 0 {
            self.client.release(number);
            return true;
        }
        let request = Request {
            number,
            stream_id: u128::from(number) + 1,
            features: FEATURE_STREAMS | FEATURE_RETURN | FEATURE_IN_PLACE,
            ticket: batches.to_le_bytes().to_vec(),
            ..Request::new("", WINDOW)
        };
        let side = SideConfig {
            tags: Tags::DEFAULT,
            extension: true,
        };
        let receiver = Receiver::new(ReceiverConfig::new(request, side)).unwrap();
        let mut incoming = IncomingStream::new(receiver, self.setup.ordered);
        incoming.start(NOW());
        let stream = self.client.stream_mut(number).unwrap();
        stream.begin_receiving(NOW(), incoming).unwrap();
        let fate = WantedFate::Running;
        let taken = 0;
        self.wanted.insert(
            number,
            Wanted {
                batches,
                taken,
                fate,
            },
        );
        true
    }

    /// The server's host goes on with a stream.
    fn serve(&mut self) -> bool {
        let numbers: Vec<_> = self.served.keys().copied().collect();
        if numbers.is_empty() {
            return false;
        }
        let number = numbers[self.dice.roll(numbers.len())];
        let stream = self.server.stream_mut(number).unwrap();
        let served = self.served.get_mut(&number).unwrap();
        if stream.ensure_streaming().is_err() {
            let _ = stream.sender().fail(Status::Cancelled.code(), "gone");
            self.host_returns(number);
            return true;
        }
        if stream.state() == SenderState::Requested {
            if self.dice.roll(10) == 0 {
                stream.sender().refuse(-5, "no").unwrap();
                self.host_returns(number);
                return true;
            }
            stream.sender().accept(INFO).unwrap();
            stream.sender().send_schema(schema()).unwrap();
            return true;
        }
        if served.sent == served.batches {
            stream.sender().end().unwrap();
            self.host_returns(number);
            return true;
        }
        // The number of the batch is in its length: a batch of another stream would show.
        let (header, len) = batch(&[64 * u64::from(served.sent + 1)]);
        if !stream.room().unwrap().admits(len, true) {
            return false;
        }
        let body = match self.dice.roll(2) {
            0 => OutBody::Packed {
                len,
                payload: TestBody { item: 0, len },
            },
            _ => {
                self.lent += 1;
                let span = Span {
                    address: 4096,
                    length: 64 * u64::from(served.sent + 1),
                };
                OutBody::Lent {
                    spans: vec![span].into(),
                    hold: number as usize,
                    in_place: true,
                }
            }
        };
        stream.sender().send_batch(header, len, body).unwrap();
        served.sent += 1;
        true
    }

    fn host_returns(&mut self, number: u32) {
        self.served.remove(&number);
        self.server.release(number);
    }

    /// The client's host goes on with a stream.
    fn consume(&mut self) -> bool {
        let is_running = |(_, wanted): &(&u32, &Wanted)| wanted.fate == WantedFate::Running;
        let running = self.wanted.iter().filter(is_running);
        let running: Vec<_> = running.map(|(number, _)| *number).collect();
        if running.is_empty() {
            return false;
        }
        let number = running[self.dice.roll(running.len())];
        let leaves = self.dice.roll(40) == 0;
        let stream = self.client.stream_mut(number).unwrap();
        let incoming = stream.incoming_mut().unwrap();
        let wanted = self.wanted.get_mut(&number).unwrap();
        if leaves {
            incoming.cancel();
            incoming.leave_one(NOW(), Duration::from_secs(60));
            wanted.fate = WantedFate::Left;
            // The turns read the rest.
            self.client.release(number);
            return true;
        }
        if let Some((message, back)) = incoming.next_message() {
            wanted.taken += 1;
            assert_eq!(
                message.header.body_len(),
                batch_len(wanted.taken),
                "{number}"
            );
            if let Message {
                body: Body::Lent(_),
                ..
            } = message
            {
                self.held.extend(back.map(|back| (number, back)));
            }
            incoming.flush_credit();
            return true;
        }
        if incoming.is_complete() {
            assert_eq!(wanted.taken, wanted.batches, "stream {number}");
            wanted.fate = WantedFate::Complete;
            incoming.flush_credit();
            self.done(number);
            return true;
        }
        if let Some(error) = incoming.error() {
            wanted.fate = match error.status() {
                Status::Busy => WantedFate::Busy,
                _ => WantedFate::Cut,
            };
            if error.status() != Status::Disconnected {
                incoming.leave_one(NOW(), Duration::from_secs(60));
            }
            return true;
        }
        false
    }

    /// Everything of a stream has come.
    fn done(&mut self, number: u32) {
        if let Some(stream) = self.client.stream_mut(number) {
            stream.end_receiving();
        }
        self.client.release(number);
    }

    fn give_back(&mut self) -> bool {
        if self.held.is_empty() || self.is_cut() {
            return false;
        }
        let at = self.dice.roll(self.held.len());
        let (number, back) = self.held.remove(at);
        let mut frees = FreeQueue::new(Tags::DEFAULT.free_data.unwrap());
        frees.push(NOW(), &back);
        let later = NOW().saturating_add(Duration::from_secs(1));
        while let Some(message) = frees.poll(later) {
            let FreeMessage::Control { number: of, bytes } = message else {
                panic!("what is lent comes back by number");
            };
            assert_eq!(of, number);
            self.up.push_back((number, Wire::Control(bytes)));
        }
        true
    }

    fn deliver_up(&mut self) -> bool {
        // Over ucx nothing follows the first request before the server's first control message.
        let ordered = self.setup.ordered || !self.server.is_many();
        let Some((number, wire)) = next(&mut self.up, ordered, &mut self.dice) else {
            return false;
        };
        hand_in_at(&mut self.server, number, wire).unwrap();
        true
    }

    fn deliver_down(&mut self) -> bool {
        if self.down.is_empty() {
            return false;
        }
        self.deliveries += 1;
        if self.setup.cut == Some(self.deliveries) {
            let error = Error::disconnected("cut");
            self.client.handle_disconnect(&error);
            self.lent -= self.server.handle_disconnect(&error).len();
            self.up.clear();
            self.down.clear();
            return true;
        }
        if self.setup.goes_away == Some(self.deliveries) {
            self.server.go_away().unwrap();
        }
        let next = next(&mut self.down, self.setup.ordered, &mut self.dice);
        let (number, wire) = next.unwrap();
        hand_in_at(&mut self.client, number, wire).unwrap();
        true
    }

    /// Takes the outputs of both ends.
    fn drain(&mut self) {
        while let Some((number, transmit)) = self.client.poll_transmit() {
            self.up
                .push_back((number, Wire::of_transmit(transmit).unwrap()));
        }
        while let Some((number, event)) = self.client.poll_event(NOW) {
            match event {
                SessionEvent::LeftOver => self.done(number),
                SessionEvent::Bodies(BodiesWork::Abandoned(bodies)) => {
                    self.held
                        .extend(bodies.into_iter().map(|back| (number, back)));
                }
                SessionEvent::Bodies(_) => {}
                event => panic!("{event:?}"),
            }
        }
        while let Some((number, transmit)) = self.server.poll_transmit() {
            self.down
                .push_back((number, Wire::of_transmit(transmit).unwrap()));
        }
        while let Some((number, event)) = self.server.poll_event(NOW) {
            match event {
                SessionEvent::Requested(asked) => {
                    let ticket = asked.request.ticket[..].try_into().unwrap();
                    let batches = u32::from_le_bytes(ticket);
                    self.served.insert(number, Served { batches, sent: 0 });
                    // Rule S4.
                    assert!(self.served.len() <= self.setup.limit.max(1) as usize);
                }
                SessionEvent::Freed(_) => self.lent -= 1,
                SessionEvent::Lost => {}
                event => panic!("{event:?}"),
            }
        }
    }

    fn check(&self) {
        if self.is_cut() {
            assert_eq!(self.lent, 0);
            return;
        }
        let stuck = (self.up.len(), self.down.len(), self.served.len());
        assert_eq!(stuck, (0, 0, 0), "{:?}", self.wanted);
        for (number, wanted) in &self.wanted {
            assert_ne!(wanted.fate, WantedFate::Running, "{number}: {wanted:?}");
            if *number > 0 {
                assert!(
                    self.client.stream(*number).is_none(),
                    "{number}: {wanted:?}"
                );
                assert!(
                    self.server.stream(*number).is_none(),
                    "{number}: {wanted:?}"
                );
            }
        }
        assert_eq!((self.lent, self.held.len()), (0, 0));
    }
}

/// Length of the body of the batch `number` of a stream, from 1.
fn batch_len(number: u32) -> u64 {
    batch(&[64 * u64::from(number)]).1
}

/// The next message that arrives. Without order, messages of different classes overtake one
/// another. Metadata and bodies also overtake messages of their own class.
fn next(line: &mut VecDeque<(u32, Wire)>, ordered: bool, dice: &mut Dice) -> Option<(u32, Wire)> {
    let mut index = 0;
    if !ordered && line.len() > 1 {
        index = dice.roll(line.len());
        let wire = &line[index].1;
        if !wire.is_loose() {
            let class = std::mem::discriminant(wire);
            let is_alike = |(_, other): &(u32, Wire)| {
                !other.is_loose() && std::mem::discriminant(other) == class
            };
            index = line.iter().position(is_alike).unwrap();
        }
    }
    line.remove(index)
}

fn setup() -> impl Strategy<Value = ManySetup> {
    (
        any::<(u64, bool)>(),
        1_u32..6,
        prop::collection::vec(0_u32..8, 1..12),
        prop::option::of(1_usize..60),
        prop::option::weighted(0.3, 1_usize..80),
    )
        .prop_map(
            |((seed, ordered), limit, streams, goes_away, cut)| ManySetup {
                seed,
                ordered,
                // Without order, a connection with room for only one stream ends when that stream
                // is left.
                limit: limit + u32::from(!ordered),
                streams,
                goes_away: goes_away.filter(|at| at % 3 == 0),
                cut,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Rules S1 to S4, S7, S8, in any order of events: each stream gets all of its own batches, in
    /// order. The server's host has no more streams than the limit. Ended streams are forgotten,
    /// and all lent memory comes back.
    #[test]
    fn many_streams_end_each_on_its_own(setup in setup()) {
        let mut world = ManyWorld::new(setup);
        world.run();
        world.check();
    }
}
