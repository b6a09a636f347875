//! Listeners that fail, in every way that they can.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::lines::{MOST_LINES, testing};
use crate::proto::Uri;
use crate::transport::{LinkOptions, Watched, by_scheme};

/// More calls than this, and nobody will end them.
const FOR_EVER: usize = 100_000;

type Accepted = Result<Option<Box<dyn Connection>>>;
type Accept = dyn FnMut() -> Accepted + Send;
type ToRefuse = dyn FnMut() -> Box<dyn Connection> + Send;
type Peers = Arc<Mutex<Vec<Box<dyn Connection>>>>;

/// A listener whose descriptor is always ready, and that does what a test says.
struct Scripted {
    fd: Arc<dyn Watched>,
    calls: Arc<AtomicUsize>,
    accept: Box<Accept>,
    /// Gives those that it refuses; none of them without it.
    to_refuse: Option<Box<ToRefuse>>,
    /// The last call of `accept` has refused somebody.
    has_refused: bool,
}

impl Listener for Scripted {
    fn fd(&self) -> Arc<dyn Watched> {
        Arc::clone(&self.fd)
    }

    fn address(&self) -> String {
        "test:".into()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        assert!(calls < FOR_EVER, "it is called for ever");
        let accepted = (self.accept)();
        let refuses = |error: &Error| error.status() == Status::Permission;
        self.has_refused = accepted.as_ref().err().is_some_and(refuses);
        accepted
    }

    fn refused(&mut self) -> Option<(Box<dyn Connection>, Error)> {
        let give = self.to_refuse.as_mut().filter(|_| self.has_refused)?;
        Some((give(), Error::new(Status::Permission, "not you")))
    }
}

/// A thread, an acceptor there, and the calls that its listener and its owner have had.
struct Subject {
    io: IoThread,
    acceptor: Arc<Acceptor>,
    accepts: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
}

impl Subject {
    fn new(accept: impl FnMut() -> Accepted + Send + 'static) -> Self {
        Self::at(always_ready(), accept, None)
    }

    fn at(
        fd: Arc<dyn Watched>,
        accept: impl FnMut() -> Accepted + Send + 'static,
        to_refuse: Option<Box<ToRefuse>>,
    ) -> Self {
        let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
        let (accepts, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let listener = Scripted {
            fd,
            calls: Arc::clone(&accepts),
            accept: Box::new(accept),
            to_refuse,
            has_refused: false,
        };
        let count = Arc::clone(&accepted);
        let on_accept = move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let acceptor = Acceptor::start(
            Box::new(listener),
            &io,
            RoleTags::DEFAULT,
            Box::new(on_accept),
        )
        .unwrap();
        Self {
            io,
            acceptor,
            accepts,
            accepted,
        }
    }

    /// Asserts that over several pauses the listener is called now and then only.
    fn assert_does_not_spin(&self) {
        let before = self.accepts.load(Ordering::SeqCst);
        std::thread::sleep(PAUSE * 4);
        let calls = self.accepts.load(Ordering::SeqCst) - before;
        assert!(calls > 0, "it is not tried again");
        assert!(calls < 20 * CALLS_AT_ONCE, "{calls} calls");
    }
}

fn always_ready() -> Arc<dyn Watched> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Arc::new(eventfd(1, flags).unwrap())
}

fn wait_until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "it never happens"
        );
        std::thread::yield_now();
    }
}

/// A connection of a peer that hangs up at once.
fn connection() -> Box<dyn Connection> {
    pair().0
}

/// A connection, and its peer.
fn pair() -> (Box<dyn Connection>, Box<dyn Connection>) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let uri = Uri::parse(&format!("mem:@acceptor-{number}")).unwrap();
    let mem = by_scheme("mem").unwrap();
    let mut listener = mem.listen(&uri, &LinkOptions::default()).unwrap();
    let peer = mem.connect(&uri, &LinkOptions::default()).unwrap();
    (listener.accept().unwrap().unwrap(), peer)
}

/// Gives connections whose peers say nothing, and these.
fn silent() -> (Box<ToRefuse>, Peers) {
    let peers = Peers::default();
    let kept = Arc::clone(&peers);
    let give = move || {
        let (connection, peer) = pair();
        kept.lock().push(peer);
        connection
    };
    (Box::new(give), peers)
}

/// `Listener::accept`: whatever error a listener returns and however long, the I/O thread does not
/// spin, and goes on once the cause is gone.
#[test]
fn a_listener_that_fails_is_left_alone_for_a_while() {
    for status in Status::ALL {
        let broken = Arc::new(AtomicBool::new(true));
        let is_broken = Arc::clone(&broken);
        let subject = Subject::new(move || match is_broken.load(Ordering::SeqCst) {
            true => Err(Error::new(*status, "it fails")),
            false => Ok(Some(connection())),
        });
        if matches!(status, Status::OutOfResources | Status::Io) {
            subject.assert_does_not_spin();
        }
        assert_eq!(subject.accepted.load(Ordering::SeqCst), 0);
        broken.store(false, Ordering::SeqCst);
        wait_until(|| subject.accepted.load(Ordering::SeqCst) > 0);
        subject.acceptor.close();
    }
}

/// Peers that connect again and again get the turns of the listener only.
#[test]
fn others_have_their_turn_however_many_peers_connect() {
    struct Other(AtomicBool);
    impl Source for Other {
        fn ready(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let subject = Subject::new(|| Ok(Some(connection())));
    let other = Arc::new(Other(AtomicBool::new(false)));
    let source: Weak<dyn Source> = Arc::downgrade(&other) as Weak<Other>;
    let fd = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    let fd: Arc<dyn Watched> = Arc::new(fd);
    let watched = subject.io.register(source, [fd], EventFlags::IN);
    wait_until(|| other.0.load(Ordering::SeqCst));
    drop(watched);
    subject.acceptor.close();
}

/// No number of failed connections of a peer fills the log.
#[test]
fn refusals_are_logged_in_a_bounded_number_of_lines() {
    let said = Lines::new();
    let logged = testing::count(|| {
        for _ in 0..1000 {
            warn_not_accepted(&said, &Error::new(Status::Permission, "another user"));
        }
    });
    assert_eq!(logged, MOST_LINES as usize);
}

/// Only a few refused peers that say nothing are kept at a time, and they are closed after a while.
#[test]
fn few_refused_peers_are_waited_for() {
    let (give, peers) = silent();
    let mut left = 3 * MOST_REFUSED;
    let accept = move || {
        left = left.saturating_sub(1);
        match left {
            0 => Ok(None),
            _ => Err(Error::new(Status::Permission, "another user")),
        }
    };
    let subject = Subject::at(always_ready(), accept, Some(give));
    let open = || {
        let mut peers = peers.lock();
        peers.retain_mut(|peer| peer.receive().is_ok());
        peers.len()
    };
    wait_until(|| subject.accepts.load(Ordering::SeqCst) >= 3 * MOST_REFUSED);
    assert!(open() <= MOST_REFUSED);
    wait_until(|| open() == 0);
}
