//! A connection at a server, over a transport that does as little as each test needs.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::driver::signal::Signal;
use crate::proto::{BODY_KIND_PACKED, Span, StreamInfo, Tags};
use crate::transport::{Incoming, Outgoing, Resolved, Unmapped};

/// A transport whose sends come to their end while it receives, and whose close takes back what the peer
/// has not read, as over UCX.
struct EndsWhileReceiving {
    ready: Arc<OwnedFd>,
    queued: Arc<AtomicU64>,
    /// What is queued lies in memory that was made for it.
    holds: bool,
    /// How often what was queued was written.
    writes: Arc<AtomicU64>,
}

impl Connection for EndsWhileReceiving {
    fn peer(&self) -> &str {
        "a test"
    }

    fn same_user(&self) -> bool {
        true
    }

    fn readiness(&self) -> Readiness {
        Readiness {
            fd: Arc::clone(&self.ready) as _,
            socket: false,
            peer_death: None,
        }
    }

    fn send(&mut self, _: Outgoing) -> Result<()> {
        Ok(())
    }

    fn write_queued(&mut self) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn queued_bytes(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    fn held_bytes(&self) -> u64 {
        if self.holds { self.queued_bytes() } else { 0 }
    }

    fn profile(&self) -> Profile {
        Profile {
            is_read_after_close: false,
            ..Profile::ORDINARY
        }
    }

    fn post_body(&mut self, _: u32, _: u64, _: u64) {}

    fn clear_posted(&mut self) {}

    fn receive(&mut self) -> Result<Option<Incoming>> {
        self.queued.store(0, Ordering::Relaxed);
        Ok(None)
    }

    fn is_waiting(&self) -> bool {
        false
    }

    fn lender(&self) -> Option<Arc<dyn Lender>> {
        None
    }

    fn map_region(&mut self, _: u16, _: &[u8], _: Option<OwnedFd>) -> Result<()> {
        Ok(())
    }

    fn unmap_region(&mut self, _: u16) -> Result<Unmapped> {
        Ok(Unmapped::Now)
    }

    fn resolve(&mut self, _: u32, _: Vec<Span>) -> Result<Resolved> {
        Err(Error::protocol("nothing is lent"))
    }

    fn close(&mut self) {}
}

/// A server that is told nothing.
struct Nobody;

impl Host for Nobody {
    fn requested(&self, _: &Arc<ServedLink>, _: Asked) {}

    fn closed(&self, _: &Arc<ServedLink>) {}
}

/// A connection on the thread `io`, whose queue is `queued`.
fn serve(io: &IoThread, queued: &Arc<AtomicU64>, holds: bool) -> Arc<ServedLink> {
    serve_counted(io, queued, holds, u64::MAX, &Arc::default())
}

/// The same with a bound for the queue, whose writes are counted.
fn serve_counted(
    io: &IoThread,
    queued: &Arc<AtomicU64>,
    holds: bool,
    most_queued: u64,
    writes: &Arc<AtomicU64>,
) -> Arc<ServedLink> {
    let link = EndsWhileReceiving {
        ready: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        queued: Arc::clone(queued),
        holds,
        writes: Arc::clone(writes),
    };
    let (config, idle) = (SenderConfig::default(), Duration::from_secs(1));
    let host = Weak::<Nobody>::new();
    ServedLink::start(1, Box::new(link), config, idle, most_queued, io, host).unwrap()
}

/// Promise of `end_sending`: a baseline peer that has been served is given time to read the end, since it
/// cannot be asked to close first; one that asked for nothing has nothing to read.
#[test]
fn a_baseline_peer_has_time_for_its_end() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let served = serve(&io, &Arc::default(), false);
    assert!(served.end_sending());

    let served = serve(&io, &Arc::default(), false);
    let info = StreamInfo {
        version: 1,
        features: 0,
        device_type: 1,
        device_id: -1,
        body_kinds: BODY_KIND_PACKED,
    };
    let ended = served.act(&[], |sender| {
        sender.handle_tagged(Tags::DEFAULT.want_data, b"t")?;
        sender.accept(info)?;
        sender.send_schema(Vec::new())?;
        sender.end()
    });
    ended.unwrap().unwrap();
    assert!(!served.end_sending());
    while !served.end_sending() {
        std::thread::sleep(Duration::from_millis(1));
    }
    io.shut_down();
}

/// Rule E5: who was refused since too much was queued is told when there is room, by whatever call the
/// sends came to their end in; a baseline peer's stream has nothing else that would wake it.
#[test]
fn room_made_while_receiving_is_told() {
    told_of_room(QUEUE_HIGH_WATER_BYTES, u64::MAX, false);
    told_of_room(1 << 20, 1 << 20, false);
}

/// Of bytes that were made to be sent fewer wait: nobody makes lists that go out of the caches before they
/// are written.
#[test]
fn less_is_made_ahead_than_may_be_queued() {
    told_of_room(HELD_HIGH_WATER_BYTES, u64::MAX, true);
}

/// There is room up to `most` bytes, beyond there is none, and who was told so is told when there is.
fn told_of_room(most: u64, most_queued: u64, holds: bool) {
    let queued = Arc::new(AtomicU64::new(0));
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let served = serve_counted(&io, &queued, holds, most_queued, &Arc::default());
    let signal = Arc::new(Signal::default());
    served.set_signal(Arc::clone(&signal) as Arc<dyn Wake>);
    // As while a stream runs: its own bytes never keep requests from being read.
    served.half.lock().stream_queued = most;

    queued.store(most, Ordering::Relaxed);
    let _ = served.has_room(None, false).unwrap();
    assert!(!served.half.lock().is_full);
    queued.store(most + 1, Ordering::Relaxed);
    let seen = signal.changes();
    assert!(!served.has_room(None, false).unwrap());
    assert!(served.half.lock().is_full);
    served.ready();
    assert_eq!(served.queued_bytes(), 0);
    assert_eq!(signal.changes(), seen + 1);

    // Once: nobody waits any more.
    served.ready();
    assert_eq!(signal.changes(), seen + 1);
    io.shut_down();
}

/// Promise of `cork_briefly` and `cork_opening`: what waits for more is written when that does not come, by the I/O thread, each
/// time; and at once where much waits.
#[test]
fn what_waits_for_more_is_written_without_it() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let (queued, writes) = (Arc::default(), Arc::default());
    let served = serve_counted(&io, &queued, false, u64::MAX, &writes);
    let written = || AtomicU64::load(&writes, Ordering::Relaxed);
    for (pause, opens) in [(0, true), (0, false), (0, false), (1, true), (5, false)] {
        let before = written();
        if opens {
            served.cork_opening();
        } else {
            served.cork_briefly();
        }
        served.act(&[], |_| {}).unwrap();
        let start = clock::now();
        while written() == before {
            assert!(clock::since(start) < Duration::from_secs(10));
            std::thread::sleep(Duration::from_micros(50));
        }
        std::thread::sleep(Duration::from_millis(pause));
    }
    served.cork();
    let before = written();
    served.act(&[], |_| {}).unwrap();
    assert_eq!(written(), before);
    AtomicU64::store(&queued, 1 << 20, Ordering::Relaxed);
    served.act(&[], |_| {}).unwrap();
    assert_eq!(written(), before + 1);
    io.shut_down();
}

/// The same where the thread of the stream before is about to wait for a request, and the I/O thread has read that: the client
/// waits for its schema while the provider takes its time.
#[test]
fn what_a_stream_begins_with_is_written_whoever_parks() {
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let writes = Arc::default();
    let served = serve_counted(&io, &Arc::default(), false, u64::MAX, &writes);
    let asked = served.act(&[], |sender| {
        sender.handle_tagged(Tags::DEFAULT.want_data, b"t")
    });
    asked.unwrap().unwrap();
    served.cork_opening();
    served.act(&[], |_| {}).unwrap();
    let before = AtomicU64::load(&writes, Ordering::Relaxed);
    assert!(!served.park());
    let start = clock::now();
    while AtomicU64::load(&writes, Ordering::Relaxed) == before {
        assert!(clock::since(start) < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    io.shut_down();
}
