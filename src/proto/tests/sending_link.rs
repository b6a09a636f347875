//! A client's session that puts and a server's session that takes, on a simulated link, which
//! delays, reorders and cuts. A seed gives every choice, so a failure can be replayed.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proto::wires::{Dice, Line, TestEnd, Wire};
use crate::proto::{
    FEATURE_IN_PLACE, FEATURE_RETURN, PutStage, Receiver, ReceiverConfig, SideConfig, Tags, Verb,
};
use direction::{Direction, Table};

#[path = "direction.rs"]
mod direction;

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
    table: Table,
    ordered: bool,
    fate: PutFate,
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
    dice: Dice,
    now: Timestamp,
    client: TestEnd,
    server: TestEnd,
    host: HostState,
    mark: u64,
    up: Line,
    down: Line,
    direction: Direction,
    deliveries: usize,
}

impl PutWorld {
    fn new(setup: PutSetup) -> Self {
        let config = || SenderConfig::only(Role::Both, Tags::DEFAULT);
        let ordered = setup.ordered;
        let times = QuietTimes::default();
        Self {
            dice: Dice(setup.seed),
            now: Timestamp::default(),
            client: Session::client(config(), ordered),
            server: Session::server(config(), ordered, times, Timestamp::default()),
            host: HostState::Idle,
            mark: 0,
            up: Line::new(ordered),
            down: Line::new(ordered),
            direction: Direction::new(setup.table.clone()),
            deliveries: 0,
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

    /// Runs to the end with random steps.
    fn run(&mut self) {
        self.client.ask(&self.request()).unwrap();
        self.drain();
        let mut idle = 0;
        while idle < 300 {
            let step = match self.dice.roll(9) {
                0 | 1 => self.produce(),
                2 | 3 => self.deliver_up(),
                4 => self.deliver_down(),
                5 | 6 => self.host_step(),
                7 => self.direction.give_back(&mut self.dice, self.now),
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
        self.direction.again();
        self.run();
    }

    fn produce(&mut self) -> bool {
        if self.direction.has_ended || self.client.ensure_streaming().is_err() {
            return false;
        }
        if !self.direction.has_schema_left {
            // Rule Q3: it follows the request at once.
            return self.direction.send_schema(&mut self.client);
        }
        if self.client.put().unwrap().stage < PutStage::Granted {
            return false;
        }
        if self.setup.fate == PutFate::ClientAborts(self.direction.sent) {
            let code = Status::Provider.code();
            self.client.sender().fail(code, "out of luck").unwrap();
            self.direction.has_ended = true;
            return true;
        }
        self.direction.send(&mut self.client)
    }

    fn deliver_up(&mut self) -> bool {
        if self.server.is_full() || self.server.closed().is_some() {
            return false;
        }
        let is_there = (self.up).deliver(&mut self.dice, self.now, &mut self.server);
        self.deliveries += usize::from(is_there);
        is_there
    }

    fn deliver_down(&mut self) -> bool {
        let is_there = (self.down).deliver(&mut self.dice, self.now, &mut self.client);
        self.deliveries += usize::from(is_there);
        is_there
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
            credit: self.setup.table.window,
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
            credit: self.setup.table.window,
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
        if matches!(self.setup.fate, PutFate::HostFails(after) if self.direction.taken >= after) {
            self.answer_failure("the disk is full");
            return true;
        }
        let stream = self.server.stream_mut();
        stream.is_some_and(|stream| self.direction.take(stream))
    }

    fn end_taking(&mut self) -> bool {
        let Some(stream) = self.server.stream_mut() else {
            return false;
        };
        if stream.is_complete() {
            let taken = self.direction.taken as u64;
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

    fn pass_time(&mut self) -> bool {
        self.now = self.now.saturating_add(Duration::from_millis(3));
        self.direction.pass_time(self.now, &mut self.down)
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.client.poll_transmit() {
            self.up.push(Wire::of_transmit(transmit).unwrap());
        }
        while let Some(transmit) = self.server.poll_transmit() {
            self.down.push(Wire::of_transmit(transmit).unwrap());
        }
        while let Some(event) = self.client.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Freed(_) => self.direction.lent -= 1,
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
                SessionEvent::Bodies(BodiesWork::Abandoned(bodies)) => {
                    self.direction.held.extend(bodies)
                }
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
        self.direction.lent -= self.client.handle_disconnect(error.clone()).len();
        assert_eq!(
            (self.direction.lent, self.client.lent_outstanding()),
            (0, 0)
        );
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
        let all = self.setup.table.batches.len();
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
                assert_eq!((self.direction.sent, stage), (0, PutStage::Heard));
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
        assert_eq!(
            (self.direction.lent, self.client.lent_outstanding()),
            (0, 0)
        );
        assert_eq!(self.client.state(), SenderState::Idle);
        assert_eq!(self.server.state(), SenderState::Idle);
        assert!(self.server.stream().is_none());
    }

    /// Rule Q10: whether the connection may carry the next stream.
    fn is_reusable(&self) -> bool {
        self.client.closed().is_none() && (self.setup.ordered || self.client.has_ended_well())
    }
}

fn setups(fate: impl Strategy<Value = PutFate>) -> impl Strategy<Value = PutSetup> {
    let window = (1_u64..6, prop_oneof![64_u64..2000, Just(u64::MAX)])
        .prop_map(|(batches, bytes)| Credit { batches, bytes });
    let batches = prop::collection::vec((0_u64..400, any::<bool>()), 0..20);
    (any::<u64>(), batches, window, any::<bool>(), fate).prop_map(
        |(seed, batches, window, ordered, fate)| PutSetup {
            seed,
            table: Table { batches, window },
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
