//! A connection at a server, over a transport that does as little as each test needs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::sending::{HELD_HIGH_WATER_BYTES, QUEUE_HIGH_WATER_BYTES};
use super::*;
use crate::driver::clock;
use crate::driver::waiting::{Again, Cause};
use crate::proto::{BODY_KIND_PACKED, ExpectedBody, StreamInfo, Tags};
use crate::transport::{Identity, Incoming, Outgoing, PeerOrigin, Profile, Traffic};

/// A transport whose sends come to their end while it receives, and whose close takes back what the
/// peer has not read, as over UCX.
struct EndsWhileReceiving {
    identity: Identity,
    queued: Arc<AtomicU64>,
    /// What is queued lies in memory that was made for it.
    holds: bool,
    /// How often what was queued was written.
    writes: Arc<AtomicU64>,
    /// Messages that have come. The descriptor does not tell of them.
    unread: Arc<AtomicU64>,
}

impl Connection for EndsWhileReceiving {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, _: u32, _: Outgoing) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<bool> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn traffic(&self) -> Traffic {
        let queued = self.queued.load(Ordering::Relaxed);
        Traffic {
            queued,
            held: if self.holds { queued } else { 0 },
            received: 0,
        }
    }

    fn post_body(&mut self, _: u32, _: ExpectedBody) {}

    fn forget_bodies(&mut self, _: u32) {}

    fn receive(&mut self) -> Result<Option<(u32, Incoming)>> {
        self.queued.store(0, Ordering::Relaxed);
        let one = |left: u64| left.checked_sub(1);
        let unread = self
            .unread
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one);
        // Rule E3: one of an unknown kind, which is ignored.
        let (bytes, fd) = (vec![255].into(), None);
        Ok(unread.ok().map(|_| (0, Incoming::Control { bytes, fd })))
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        lent
    }
}

/// A server that is told nothing.
struct Nobody;

impl Host for Nobody {
    fn requested(&self, turner: Turner<End>, _: ArrivedRequest) {
        turner.give_back_here();
    }

    fn closed(&self, _: &Arc<EndLink>) {}
}

/// A connection on the thread `io`, whose queue is `queued`.
fn serve(io: &IoThread, queued: &Arc<AtomicU64>, holds: bool) -> Arc<EndLink> {
    serve_counted(
        io,
        queued,
        holds,
        u64::MAX,
        &Arc::default(),
        &Arc::default(),
    )
}

/// The same with a bound for the queue, whose writes are counted, and with messages to be read.
fn serve_counted(
    io: &IoThread,
    queued: &Arc<AtomicU64>,
    holds: bool,
    most_queued: u64,
    writes: &Arc<AtomicU64>,
    unread: &Arc<AtomicU64>,
) -> Arc<EndLink> {
    let link = EndsWhileReceiving {
        identity: Identity {
            origin: PeerOrigin::default(),
            peer: "a test".to_owned(),
            same_user: true,
            readiness: ConnectionReadiness {
                fd: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
                socket: false,
                peer_death: None,
                peer_machine: None,
            },
            descriptors: 1,
            profile: Profile {
                is_read_after_close: false,
                ..Profile::SOCKET
            },
        },
        queued: Arc::clone(queued),
        holds,
        writes: Arc::clone(writes),
        unread: Arc::clone(unread),
    };
    let config = SenderConfig::default();
    let limits = ServedLimits {
        most_queued,
        ..ServedLimits::default()
    };
    let host = Weak::<Nobody>::new();
    EndLink::start(1, Box::new(link), config, limits, io, host).unwrap()
}

fn wait_until(done: impl Fn() -> bool) {
    let start = clock::now();
    while !done() {
        assert!(
            clock::since(start) < Duration::from_secs(30),
            "it never happens"
        );
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Begins a stream of a baseline peer.
fn begin_stream(served: &mut End, effects: &mut EndEffects) {
    let info = StreamInfo {
        version: 1,
        features: 0,
        device_type: 1,
        device_id: -1,
        body_kinds: BODY_KIND_PACKED,
    };
    let asks = |sender: &mut OutSender| {
        sender.handle_tagged(Tags::DEFAULT.want_data, b"t").unwrap();
    };
    served.send(0, Writes::AtOnce, asks, effects).unwrap();
    served.take_request(effects).unwrap();
    served.begin(0, info, [].into(), effects).unwrap();
}

/// Promise of `end_sending`: a baseline peer that has been served is given time to read the end,
/// since it cannot be asked to close first; one that asked for nothing has nothing to read.
#[test]
fn a_baseline_peer_has_time_for_its_end() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let served = serve(&io, &Arc::default(), false);
    assert!(served.end_sending());

    let served = serve(&io, &Arc::default(), false);
    served.interfere(|served, effects| {
        begin_stream(served, effects);
        let end = served.send(0, Writes::AtOnce, |sender| sender.end(), effects);
        end.unwrap().unwrap();
    });
    assert!(!served.end_sending());
    while !served.end_sending() {
        std::thread::sleep(Duration::from_millis(1));
    }
    io.shut_down();
}

/// Rule E5: a baseline peer gives no credit, so the bytes that are queued and not written bound it.
/// There is room again once these are written, in any turn of the connection.
#[test]
fn what_is_queued_is_bounded() {
    ensure_bounded(QUEUE_HIGH_WATER_BYTES, u64::MAX, false);
    ensure_bounded(1 << 20, 1 << 20, false);
}

/// Fewer bytes may wait if they were made to be sent: lists must not leave the caches before they
/// are written.
#[test]
fn less_is_made_ahead_than_may_be_queued() {
    ensure_bounded(HELD_HIGH_WATER_BYTES, u64::MAX, true);
}

/// There is room up to `most` bytes, beyond there is none, and a turn that writes them makes room.
fn ensure_bounded(most: u64, most_queued: u64, holds: bool) {
    let queued = Arc::new(AtomicU64::new(0));
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let served = serve_counted(
        &io,
        &queued,
        holds,
        most_queued,
        &Arc::default(),
        &Arc::default(),
    );
    let mut turner = served.acquire().unwrap();
    turner.step(begin_stream);
    let may_pull =
        |turner: &mut Turner<End>| turner.step(|served, _| served.room(0).may_pull().unwrap());
    queued.store(most, Ordering::Relaxed);
    assert!(may_pull(&mut turner));
    queued.store(most + 1, Ordering::Relaxed);
    assert!(!may_pull(&mut turner));
    turner.step(|served, effects| served.turn(Cause::Ready, effects));
    assert!(may_pull(&mut turner));
    io.shut_down();
}

/// Promise of `Writes::Later`: if no more messages follow, the I/O thread writes what waits,
/// whether the holder stays in the host's code or has given the connection back. If much waits, it
/// is written at once.
#[test]
fn what_waits_for_more_is_written_without_it() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let (queued, writes) = (Arc::default(), Arc::default());
    let served = serve_counted(&io, &queued, false, u64::MAX, &writes, &Arc::default());
    let written = || AtomicU64::load(&writes, Ordering::Relaxed);
    let later = |served: &mut End, effects: &mut EndEffects| {
        AtomicU64::fetch_max(&queued, 1, Ordering::Relaxed);
        served.send(0, Writes::Later, |_| {}, effects).unwrap();
    };
    for pause in [0, 0, 1, 5] {
        let mut turner = served.acquire().unwrap();
        let before = written();
        turner.step_to_host(later);
        wait_until(|| written() > before);
        std::thread::sleep(Duration::from_millis(pause));
        turner.step(later);
        let before = written();
        turner.give_back_later();
        wait_until(|| written() > before);
    }
    let mut turner = served.acquire().unwrap();
    let before = written();
    turner.step(later);
    assert_eq!(written(), before);
    AtomicU64::store(&queued, 1 << 20, Ordering::Relaxed);
    turner.step(later);
    assert_eq!(written(), before + 1);
    io.shut_down();
}

/// design.md, "One owner per connection": a request that comes while a holder is in the host's code
/// is answered once the connection is given back.
#[test]
fn a_request_waits_for_the_holder() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let served = serve(&io, &Arc::default(), false);
    let mut turner = served.acquire().unwrap();
    assert!(served.acquire().is_none());
    let request = turner.step(|served, effects| {
        let asks = |sender: &mut OutSender| {
            sender.handle_tagged(Tags::DEFAULT.want_data, b"t").unwrap();
        };
        served.send(0, Writes::AtOnce, asks, effects).unwrap();
        let request = served.take_request(effects).unwrap();
        let ticket = request.request.ticket.clone();
        served.put_back(request);
        assert_eq!(served.wants().again, Again::Now);
        ticket
    });
    assert_eq!(request, b"t");
    drop(turner);
    // `Nobody` takes it, by the I/O thread.
    wait_until(|| served.inspect(|served| !served.session.first().has_waiting()));
    io.shut_down();
}

/// Promise of `Again::Now`: messages that the bounds of the last turn have left are read although
/// no descriptor announces them, whether the holder sleeps or gives the connection back.
#[test]
fn messages_past_the_bounds_are_read() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let unread = Arc::default();
    let nothing = Arc::default();
    let served = serve_counted(&io, &nothing, false, u64::MAX, &Arc::default(), &unread);
    let mut turner = served.acquire().unwrap();
    AtomicU64::store(&unread, 200, Ordering::SeqCst);
    let wants = turner.step(|served, effects| {
        served.turn_without_request(Cause::Look, effects);
        served.wants()
    });
    assert_eq!(wants.again, Again::Now);
    turner.step_to_host(|served, effects| served.read(Cause::Look, effects));
    assert!(AtomicU64::load(&unread, Ordering::SeqCst) > 0);
    drop(turner);
    wait_until(|| AtomicU64::load(&unread, Ordering::SeqCst) == 0);
    wait_until(|| served.inspect(|served| served.wants().again != Again::Now));
    io.shut_down();
}
