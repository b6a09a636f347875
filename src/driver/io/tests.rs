//! Tests of an I/O thread, of one that spins and of one that does not.

use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use super::*;

/// Counts how often it was told.
struct Counting {
    fd: Arc<OwnedFd>,
    taken: AtomicUsize,
}

impl Source for Counting {
    fn ready(&self) {
        let told = rustix::io::read(&self.fd, &mut [0; 8]).is_ok();
        self.taken.fetch_add(usize::from(told), Ordering::SeqCst);
    }
}

/// A source that is watched.
fn watched(io: &IoThread) -> (Registration, Arc<Counting>) {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let source = Arc::new(Counting {
        fd: Arc::new(fd),
        taken: AtomicUsize::new(0),
    });
    let me: Weak<dyn Source> = Arc::downgrade(&source) as Weak<Counting>;
    let fds = [Arc::clone(&source.fd) as Arc<dyn Watched>];
    let registration = io.register(me, fds, EventFlags::IN).unwrap();
    (registration, source)
}

impl Counting {
    /// Makes its descriptor readable.
    fn make_ready(&self) {
        rustix::io::write(&self.fd, &1_u64.to_ne_bytes()).unwrap();
    }
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

/// A thread calls each source, whether it spins or not, even if a descriptor is always ready or
/// turns never end.
#[test]
fn nobody_is_overlooked_for_others() {
    for spin in [Duration::ZERO, Duration::from_millis(5)] {
        let io = IoThread::start("dipc-test-io", spin).unwrap();
        let watched: Vec<_> = (0..6).map(|_| watched(&io)).collect();
        let all_are_taken = || {
            let taken = |source: &Counting| source.taken.load(Ordering::SeqCst);
            let before: Vec<_> = watched.iter().map(|(_, source)| taken(source)).collect();
            watched.iter().for_each(|(_, source)| source.make_ready());
            wait_until(|| {
                (watched.iter().zip(&before)).all(|((_, it), before)| taken(it) > *before)
            });
        };
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let busy = Arc::new(Restless {
            io: io.clone(),
            fd: Arc::new(fd),
            me: Mutex::default(),
        });
        let me: Weak<dyn Source> = Arc::downgrade(&busy) as Weak<Restless>;
        let fds = [Arc::clone(&busy.fd) as Arc<dyn Watched>];
        let _registration = io.register(me.clone(), fds, EventFlags::IN).unwrap();
        for _ in 0..10 {
            *busy.me.lock() = Some(me.clone());
            rustix::io::write(&busy.fd, &1_u64.to_ne_bytes()).unwrap();
            all_are_taken();
            let _ = rustix::io::read(&busy.fd, &mut [0; 8]);
            // The same beside turns that never end.
            io.call_soon(me.clone());
            all_are_taken();
            *busy.me.lock() = None;
        }
    }
}

/// A source that always has something to do, for as long as it is.
struct Restless {
    io: IoThread,
    fd: Arc<OwnedFd>,
    me: Mutex<Option<Weak<dyn Source>>>,
}

impl Source for Restless {
    fn ready(&self) {
        if let Some(me) = self.me.lock().clone() {
            self.io.call_soon(me);
        }
    }
}

/// A source that notes when its timer came.
struct Timed(Mutex<Vec<Timestamp>>);

impl Source for Timed {
    fn ready(&self) {}

    fn timer(&self) {
        self.0.lock().push(clock::now());
    }
}

/// `IoThread::call_at`, called by another thread while the I/O thread sleeps: each timer goes off,
/// none before its time, in whatever order they are set.
#[test]
fn timers_of_other_threads_come_in_time() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let timed = || Arc::new(Timed(Mutex::default()));
    let set = |source: &Arc<Timed>, wait: u64| {
        let deadline = clock::after(Duration::from_millis(wait));
        let me: Weak<dyn Source> = Arc::downgrade(source) as Weak<Timed>;
        io.call_at(deadline, me);
        deadline
    };
    let (last, first, behind) = (timed(), timed(), timed());
    // One that never comes keeps no other from coming.
    set(&timed(), u64::MAX);
    let last_at = set(&last, 60);
    let first_at = set(&first, 20);
    let came = |source: &Arc<Timed>| source.0.lock().first().copied();
    wait_until(|| came(&last).is_some());
    assert!(came(&first).unwrap() >= first_at && came(&last).unwrap() >= last_at);
    assert!(came(&first).unwrap() <= came(&last).unwrap());
    let behind_at = set(&behind, 1);
    wait_until(|| came(&behind).is_some());
    assert!(came(&behind).unwrap() >= behind_at);
}

/// Promise of `Link::schedule`: a source that asks for an earlier time, and then for the later
/// one again, is called once at each. The times of a busy connection would pile up otherwise.
#[test]
fn a_time_is_kept_once() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let (_first, one) = watched(&io);
    let (_second, other) = watched(&io);
    let hour = clock::after(Duration::from_secs(3600));
    for _ in 0..3 {
        for source in [&one, &other] {
            io.call_at(hour, Arc::downgrade(source) as Weak<Counting>);
        }
    }
    assert_eq!(io.waiting(), 2);
}

/// Clients that come and go leave no timers and no memory behind, even if their timers are far
/// ahead.
#[test]
fn timers_of_sources_that_are_gone_go() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let (_watched, kept) = watched(&io);
    let hour = clock::after(Duration::from_secs(3600));
    io.call_at(hour, Arc::downgrade(&kept) as Weak<Counting>);
    for _ in 0..10_000 {
        let (_, gone) = watched(&io);
        io.call_at(hour, Arc::downgrade(&gone) as Weak<Counting>);
    }
    assert!((1..1000).contains(&io.waiting()), "{}", io.waiting());
}
