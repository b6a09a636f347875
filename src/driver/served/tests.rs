//! A connection at a server, over a transport that does as little as each test needs.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::driver::signal::Signal;
use crate::proto::Span;
use crate::transport::{Incoming, Outgoing, Resolved, Unmapped};

/// A transport whose sends come to their end while it receives, as they may over UCX.
struct EndsWhileReceiving {
    ready: Arc<OwnedFd>,
    queued: Arc<AtomicU64>,
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
            fd: Arc::clone(&self.ready),
            socket: false,
            peer_death: None,
        }
    }

    fn send(&mut self, _: Outgoing) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn queued_bytes(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
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

    fn resolve(&mut self, _: u32, _: &[Span]) -> Result<Resolved> {
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

/// Rule E5: who was refused since too much was queued is told when there is room, by whatever call the
/// sends came to their end in; a baseline peer's stream has nothing else that would wake it.
#[test]
fn room_made_while_receiving_is_told() {
    let queued = Arc::new(AtomicU64::new(0));
    let link = EndsWhileReceiving {
        ready: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
        queued: Arc::clone(&queued),
    };
    let io = IoThread::start("test", Duration::ZERO).unwrap();
    let (config, idle) = (SenderConfig::default(), Duration::from_secs(1));
    let host = Weak::<Nobody>::new();
    let served = ServedLink::start(1, Box::new(link), config, idle, &io, host).unwrap();
    let signal = Arc::new(Signal::default());
    served.set_signal(Arc::clone(&signal) as Arc<dyn Wake>);
    // As while a stream runs: its own bytes never keep requests from being read.
    served.half.lock().stream_queued = QUEUE_HIGH_WATER_BYTES;

    queued.store(QUEUE_HIGH_WATER_BYTES + 1, Ordering::Relaxed);
    let seen = signal.changes();
    assert!(!served.has_room(None, false).unwrap());
    served.ready();
    assert_eq!(served.queued_bytes(), 0);
    assert_eq!(signal.changes(), seen + 1);

    // Once: nobody waits any more.
    served.ready();
    assert_eq!(signal.changes(), seen + 1);
    io.shut_down();
}
