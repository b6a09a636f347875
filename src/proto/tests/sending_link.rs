//! A client that puts or exchanges and a server that takes, on a simulated link, which delays,
//! reorders and cuts. A seed gives every choice, so a failure can be replayed.

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
#[path = "sending_steps.rs"]
mod steps;

const FEATURES: u64 = FEATURE_IN_PLACE | FEATURE_RETURN;

/// How the streams end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Both sides take all batches.
    Taken,
    /// The host refuses the request.
    Refused,
    /// The host fails after so many batches.
    HostFails(usize),
    /// The client gives up before this batch.
    ClientAborts(usize),
    /// The client of an exchange wants no more after so many batches of the server.
    ClientCancels(usize),
    /// The connection is cut after so many deliveries.
    Cut(usize),
}

#[derive(Debug, Clone)]
struct Setup {
    seed: u64,
    verb: Verb,
    up: Table,
    /// The server's table of an exchange.
    down: Table,
    ordered: bool,
    fate: Fate,
}

/// How far the server's host has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    Idle,
    Deciding,
    Taking,
    Answered,
}

/// How far the client has come with the server's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    Reading,
    Left,
}

struct SendingWorld {
    setup: Setup,
    dice: Dice,
    now: Timestamp,
    client: TestEnd,
    server: TestEnd,
    host: HostState,
    reader: ReaderState,
    mark: u64,
    /// Messages of the client, and of the server.
    up_line: Line,
    down_line: Line,
    up: Direction,
    down: Direction,
    deliveries: usize,
    /// Batches that the last result covers.
    results: u64,
    /// The connection is over.
    is_cut: bool,
}

impl SendingWorld {
    fn new(setup: Setup) -> Self {
        let ordered = setup.ordered;
        let times = QuietTimes::default();
        Self {
            dice: Dice(setup.seed),
            now: Timestamp::default(),
            client: Session::client(config(), ordered),
            server: Session::server(config(), ordered, times, Timestamp::default()),
            host: HostState::Idle,
            reader: ReaderState::Reading,
            mark: 0,
            up_line: Line::new(ordered),
            down_line: Line::new(ordered),
            up: Direction::new(setup.up.clone()),
            down: Direction::new(setup.down.clone()),
            deliveries: 0,
            results: 0,
            is_cut: false,
            setup,
        }
    }

    fn request(&self) -> Request {
        Request {
            verb: self.setup.verb,
            source: Some(StreamInfo {
                features: FEATURES,
                ..INFO
            }),
            features: FEATURES,
            stream_id: 7,
            ..Request::new("t", self.setup.down.window)
        }
    }

    fn is_exchange(&self) -> bool {
        self.setup.verb == Verb::Exchange
    }

    /// Runs to the end with random steps.
    fn run(&mut self) {
        let request = self.request();
        self.client.first_mut().ask(&request).unwrap();
        if self.is_exchange() {
            let config = ReceiverConfig::new(request, SideConfig::extended(Tags::DEFAULT));
            let receiver = Receiver::of_exchange(config, self.now).unwrap();
            let stream = IncomingStream::new(receiver, self.setup.ordered);
            self.client
                .first_mut()
                .begin_receiving(self.now, stream)
                .unwrap();
        }
        self.drain();
        let mut idle = 0;
        while idle < 300 {
            let step = match self.dice.roll(12) {
                0 | 1 => self.produce_up(),
                2 => self.produce_down(),
                3 | 4 => self.deliver_up(),
                5 | 6 => self.deliver_down(),
                7 | 8 => self.host_step(),
                9 => self.client_step(),
                10 => {
                    self.up.give_back(&mut self.dice, self.now)
                        || self.down.give_back(&mut self.dice, self.now)
                }
                _ => self.pass_time(),
            };
            self.drain();
            idle = if step { 0 } else { idle + 1 };
            if matches!(self.setup.fate, Fate::Cut(after) if self.deliveries >= after) {
                self.cut();
            }
            if self.is_cut {
                return;
            }
        }
        self.check();
    }

    /// The next request on the same connection (rule E4).
    fn again(&mut self) {
        self.setup.fate = Fate::Taken;
        (self.host, self.reader) = (HostState::Idle, ReaderState::Reading);
        self.results = 0;
        self.up.again();
        self.down.again();
        self.run();
    }

    fn drain(&mut self) {
        while let Some((_, transmit)) = self.client.poll_transmit() {
            self.up_line.push(Wire::of_transmit(transmit).unwrap());
        }
        while let Some((_, transmit)) = self.server.poll_transmit() {
            self.down_line.push(Wire::of_transmit(transmit).unwrap());
        }
        while let Some((_, event)) = self.client.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Freed(_) => self.up.lent -= 1,
                SessionEvent::Requested(_) => panic!("a client is asked"),
                SessionEvent::Bodies(BodiesWork::Abandoned(bodies)) => {
                    self.down.held.extend(bodies)
                }
                SessionEvent::LeftOver => match self.client.first().rest() {
                    Rest::Nothing => self.client.first_mut().end_receiving(),
                    // Rule Q10: more of this stream could come between the messages of the next
                    // one.
                    _ => return self.cut(),
                },
                _ => {}
            }
        }
        while let Some((_, event)) = self.server.poll_event(Timestamp::default) {
            match event {
                SessionEvent::Freed(_) => self.down.lent -= 1,
                SessionEvent::Requested(request) => {
                    // Rule E4: the next stream begins only after the whole stream before it has
                    // come.
                    assert!(self.server.first().incoming().is_none());
                    self.mark = request.request.mark();
                    self.server.first_mut().await_decision();
                    self.host = HostState::Deciding;
                }
                SessionEvent::Bodies(BodiesWork::Abandoned(bodies)) => self.up.held.extend(bodies),
                // Rule Q10: the server has read and dropped the rest, or closes a connection on
                // which more may come.
                SessionEvent::LeftOver => match self.server.first().rest() {
                    Rest::Nothing => self.server.first_mut().end_receiving(),
                    Rest::Late => {
                        let holds = self.server.handle_disconnect(&Error::disconnected("late"));
                        self.down.lent -= holds.len();
                    }
                    rest => panic!("{rest:?}"),
                },
                _ => {}
            }
        }
    }

    /// Rule F4: a cut gives every lend back, at both ends.
    fn cut(&mut self) {
        self.is_cut = true;
        let error = Error::disconnected("cut");
        let ends = [
            (&mut self.client, &mut self.up),
            (&mut self.server, &mut self.down),
        ];
        for (end, direction) in ends {
            direction.lent -= end.handle_disconnect(&error).len();
            assert_eq!((direction.lent, end.first().lent_outstanding()), (0, 0));
            assert!(end.first().ensure_streaming().is_err());
            // Rule Q4: what came before the cut can still be taken; then the stream has failed, and
            // is never finished.
            if let Some(stream) = end.first_mut().incoming_mut() {
                while stream.next_message().is_some() {}
                assert!(stream.is_complete() || stream.error().is_some());
            }
        }
    }

    fn check(&mut self) {
        let stage = self.client.first().put().unwrap().stage;
        let outcome = self.client.first().put().unwrap().outcome.clone();
        let outcome = outcome.unwrap_or_else(|| panic!("deadlock: {stage:?}, {:?}", self.host));
        let all = self.up.table.batches.len();
        let has_failed_with = |text: &str| {
            let error = outcome.as_ref().unwrap_err();
            assert!(error.text().contains(text), "{error}");
        };
        match self.setup.fate {
            Fate::Refused => {
                has_failed_with("not today");
                // Rule Q2: nothing of a body has moved.
                assert_eq!((self.up.sent, stage), (0, PutStage::Heard));
            }
            Fate::HostFails(after) if after <= all => has_failed_with("the disk is full"),
            Fate::ClientAborts(at) if at <= all => has_failed_with("the client gave up"),
            // The whole stream of the server may have come before.
            Fate::ClientCancels(_) if outcome.is_err() => has_failed_with("the client left"),
            // Rule Q4: END says how many batches the host has taken.
            _ => {
                assert_eq!(outcome, Ok(all as u64));
                let is_whole = !self.is_exchange() || self.down.has_all();
                assert!(is_whole || self.reader == ReaderState::Left);
            }
        }
        // Rule Q10: a connection without order ends with the stream, and gives back every lend.
        if !self.is_reusable() {
            return self.cut();
        }
        // Rules F2, F3: every lend has come back, once; the connection is free at both ends.
        for (end, direction) in [(&self.client, &self.up), (&self.server, &self.down)] {
            assert_eq!((direction.lent, end.first().lent_outstanding()), (0, 0));
            assert_eq!(end.first().state(), SenderState::Idle);
            assert!(end.first().incoming().is_none());
        }
    }

    /// Rule Q10: whether the connection may carry the next stream.
    fn is_reusable(&self) -> bool {
        self.client.closed().is_none()
            && (self.setup.ordered || self.client.first().has_ended_well())
    }
}

fn tables() -> impl Strategy<Value = Table> {
    let window = (1_u64..6, prop_oneof![64_u64..2000, Just(u64::MAX)])
        .prop_map(|(batches, bytes)| Credit { batches, bytes });
    let batches = prop::collection::vec((0_u64..400, any::<bool>()), 0..20);
    (batches, window).prop_map(|(batches, window)| Table { batches, window })
}

fn setups_of(
    verb: impl Strategy<Value = Verb>,
    fate: impl Strategy<Value = Fate>,
) -> impl Strategy<Value = Setup> {
    (any::<u64>(), verb, tables(), tables(), any::<bool>(), fate).prop_map(
        |(seed, verb, up, down, ordered, fate)| Setup {
            seed,
            verb,
            up,
            down,
            ordered,
            fate,
        },
    )
}

fn setups(fate: impl Strategy<Value = Fate>) -> impl Strategy<Value = Setup> {
    setups_of(prop_oneof![Just(Verb::Put), Just(Verb::Exchange)], fate)
}

/// Runs a put or an exchange, and a second one if the connection can carry it.
fn run(setup: Setup) {
    let mut world = SendingWorld::new(setup);
    world.run();
    if !world.is_cut && world.is_reusable() {
        world.again();
    }
}

proptest! {
    /// Rules Q2 to Q5, Q11, E5, F2: a put arrives whole, and an exchange at both ends, whenever the
    /// hosts decide and read, in the window of each side. Either direction may end first; END comes
    /// last, every lend comes back, and the connection carries the next stream.
    #[test]
    fn tables_arrive_whole(setup in setups(Just(Fate::Taken))) {
        run(setup);
    }

    /// Rules Q2, Q10: a refusal is known before the first batch, and the connection is free.
    #[test]
    fn refusals_come_first(setup in setups(Just(Fate::Refused))) {
        run(setup);
    }

    /// Rules Q5, Q10: ERROR ends both directions. The rest of the client's stream is read and
    /// dropped.
    #[test]
    fn failures_of_the_host_end_both_sides(
        setup in setups((0_usize..21).prop_map(Fate::HostFails))
    ) {
        run(setup);
    }

    /// Rule Q10: a client that gives up says so in order, by ABORT, and the server answers.
    #[test]
    fn aborts_end_both_sides(setup in setups((0_usize..21).prop_map(Fate::ClientAborts))) {
        run(setup);
    }

    /// Rule Q5: CANCEL ends both directions of an exchange, and the server answers.
    #[test]
    fn cancels_end_both_sides(
        setup in setups_of(Just(Verb::Exchange), (0_usize..21).prop_map(Fate::ClientCancels))
    ) {
        run(setup);
    }

    /// Rules F4, Q4: a cut at any point ends both sides, and gives every lend back.
    #[test]
    fn cuts_end_both_sides(setup in setups((0_usize..120).prop_map(Fate::Cut))) {
        run(setup);
    }
}
