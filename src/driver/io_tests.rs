//! Tests of an I/O thread, of one that spins and of one that does not.

use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use super::*;

/// Counts its calls.
struct Counting {
    fd: Arc<OwnedFd>,
    /// Nobody else is awake for it.
    to_be_looked_at: bool,
    looks: AtomicUsize,
    readies: AtomicUsize,
    /// It was looked at, and has not been asked to see to its descriptor since.
    looked: AtomicBool,
    /// How often it was found to have been told.
    taken: AtomicUsize,
}

impl Source for Counting {
    fn ready(&self) {
        self.take();
        self.readies.fetch_add(1, Ordering::SeqCst);
        self.looked.store(false, Ordering::SeqCst);
    }

    fn look(&self) -> bool {
        self.looked.store(true, Ordering::SeqCst);
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.take()
    }

    fn is_to_be_looked_at(&self) -> bool {
        self.to_be_looked_at
    }
}

/// A source that a spinning thread has just been told of, and what keeps it there.
fn told(to_be_looked_at: bool) -> (IoThread, Registration, Arc<Counting>) {
    let io = IoThread::start("dipc-test-io", Duration::from_millis(5)).unwrap();
    let (registration, source) = watched(&io, to_be_looked_at);
    source.tell();
    (io, registration, source)
}

/// A source that is watched.
fn watched(io: &IoThread, to_be_looked_at: bool) -> (Registration, Arc<Counting>) {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let source = Arc::new(Counting {
        fd: Arc::new(fd),
        to_be_looked_at,
        looks: AtomicUsize::new(0),
        readies: AtomicUsize::new(0),
        looked: AtomicBool::new(false),
        taken: AtomicUsize::new(0),
    });
    let me: Weak<dyn Source> = Arc::downgrade(&source) as Weak<Counting>;
    let fds = [Arc::clone(&source.fd) as Arc<dyn Watched>];
    let registration = io.register(me.clone(), fds, Interest::Read).unwrap();
    registration.look_too(me);
    (registration, source)
}

impl Counting {
    /// Takes what it was told. Returns whether there was something.
    fn take(&self) -> bool {
        let mut counter = [0; 8];
        let told = rustix::io::read(&self.fd, &mut counter).is_ok();
        self.taken.fetch_add(usize::from(told), Ordering::SeqCst);
        told
    }

    /// Makes its descriptor readable.
    fn tell(&self) {
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

/// `Source::look`: while the thread spins it looks by itself, and before it sleeps the source is to
/// see to its descriptor again.
#[test]
fn a_thread_looks_before_it_sleeps() {
    let (_io, _registration, source) = told(true);
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    wait_until(|| count(&source.looks) > 0);
    let readies = count(&source.readies);
    wait_until(|| count(&source.readies) > readies);
}

/// A thread that does not spin looks for a moment at what it was told of, and has it see to its descriptor again
/// before it sleeps; at other sources it does not look.
#[test]
fn a_thread_looks_for_a_moment_at_what_it_was_told_of() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let (_registration, source) = watched(&io, true);
    let (_other_registration, other) = watched(&io, true);
    let (_driven_registration, driven) = watched(&io, false);
    let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    // Looks in vain become seldom; being told goes on.
    wait_until(|| {
        source.tell();
        driven.tell();
        count(&source.looks) > 0
    });
    wait_until(|| !source.looked.load(Ordering::SeqCst));
    assert_eq!(count(&other.looks), 0);
    assert_eq!(count(&driven.looks), 0);
}

/// Sources that were looked at are heeded again where they are not looked at any more: since there are more of them, or
/// something is to be done at once, again and again.
#[test]
fn nobody_is_overlooked_for_others() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let watched: Vec<_> = (0..6).map(|_| watched(&io, true)).collect();
    let all_are_taken = |told: &[(Registration, Arc<Counting>)]| {
        let taken = |source: &Counting| source.taken.load(Ordering::SeqCst);
        let before: Vec<_> = told.iter().map(|(_, source)| taken(source)).collect();
        told.iter().for_each(|(_, source)| source.tell());
        wait_until(|| (told.iter().zip(&before)).all(|((_, it), before)| taken(it) > *before));
    };
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let busy = Arc::new(Restless {
        io: io.clone(),
        fd: Arc::new(fd),
        me: Mutex::default(),
    });
    let me: Weak<dyn Source> = Arc::downgrade(&busy) as Weak<Restless>;
    let fds = [Arc::clone(&busy.fd) as Arc<dyn Watched>];
    let _registration = io.register(me.clone(), fds, Interest::Read).unwrap();
    for _ in 0..10 {
        // Looked at, one of them, and then with others beside a descriptor that is always ready.
        let looks = watched[0].1.looks.load(Ordering::SeqCst);
        wait_until(|| {
            watched[0].1.tell();
            watched[0].1.looks.load(Ordering::SeqCst) > looks
        });
        *busy.me.lock() = Some(me.clone());
        rustix::io::write(&busy.fd, &1_u64.to_ne_bytes()).unwrap();
        (1..=watched.len()).for_each(|count| all_are_taken(&watched[..count]));
        let mut counter = [0; 8];
        let _ = rustix::io::read(&busy.fd, &mut counter);
        // The same beside turns that never end.
        io.call_soon(me.clone());
        all_are_taken(&watched);
        *busy.me.lock() = None;
    }
}

/// A source that always has something to do, for as long as it is.
struct Restless {
    io: IoThread,
    fd: Arc<OwnedFd>,
    me: Mutex<Option<Weak<dyn Source>>>,
}

impl Source for Restless {
    fn ready(&self) {}

    fn turn(&self) {
        if let Some(me) = self.me.lock().clone() {
            self.io.call_soon(me);
        }
    }
}

/// Where many sources were told of something each is left to its descriptor.
#[test]
fn a_thread_does_not_look_at_many() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let watched: Vec<_> = (0..100).map(|_| watched(&io, true)).collect();
    let sources = || watched.iter().map(|(_, source)| source);
    let readies = || -> usize {
        sources()
            .map(|source| source.readies.load(Ordering::SeqCst))
            .sum()
    };
    // All at once, while a turn of the thread's is under way: it wakes for them together.
    let turn = Arc::new(Waiting::default());
    let me: Weak<dyn Source> = Arc::downgrade(&turn) as Weak<Waiting>;
    io.call_soon(me);
    wait_until(|| turn.begun.load(Ordering::SeqCst));
    sources().for_each(|source| source.tell());
    turn.over.store(true, Ordering::SeqCst);
    wait_until(|| readies() >= watched.len());
    sources().for_each(|source| assert_eq!(source.looks.load(Ordering::SeqCst), 0));
}

/// A source whose turn lasts until it is told that it is over.
#[derive(Default)]
struct Waiting {
    begun: AtomicBool,
    over: AtomicBool,
}

impl Source for Waiting {
    fn ready(&self) {}

    fn turn(&self) {
        self.begun.store(true, Ordering::SeqCst);
        wait_until(|| self.over.load(Ordering::SeqCst));
    }
}

/// `Source::is_to_be_looked_at`: where another thread drives the source, this one sleeps although it
/// may spin.
#[test]
fn a_thread_sleeps_where_another_is_awake() {
    let (_io, _registration, source) = told(false);
    wait_until(|| source.readies.load(Ordering::SeqCst) > 0);
    source.tell();
    wait_until(|| source.readies.load(Ordering::SeqCst) > 1);
    assert_eq!(source.looks.load(Ordering::SeqCst), 0);
}

/// `IoThread::call_at`: a time that never comes is one that every system can sleep until.
#[test]
fn a_timer_may_be_as_late_as_it_likes() {
    let (io, _registration, source) = told(false);
    let me: Weak<dyn Source> = Arc::downgrade(&source) as Weak<Counting>;
    io.call_at(clock::after(Duration::MAX), me);
    let sleep = io.handle.shared.next_timeout().unwrap();
    assert!(i32::try_from(sleep.tv_sec * 1000).is_ok(), "{sleep:?}");
}

/// `IoThread::busy`: a thread that drives a stream counts while it is awake, and no longer.
#[test]
fn a_driving_thread_counts_while_it_is_awake() {
    let (io, _registration, _source) = told(false);
    let shared = &io.handle.shared;
    let busy: Vec<_> = (0..shared.processors).map(|_| io.busy()).collect();
    assert!(!shared.has_processor());
    let awake = || shared.busy.load(Ordering::Relaxed);
    assert_eq!(busy[0].rest(awake), busy.len() - 1);
    assert_eq!(awake(), busy.len());
    drop(busy);
    assert!(shared.has_processor());
}

/// A source that notes when its timer came.
struct Timed(Mutex<Vec<Timestamp>>);

impl Source for Timed {
    fn ready(&self) {}

    fn timer(&self) {
        self.0.lock().push(clock::now());
    }
}

/// `IoThread::call_at` and `cancel`, by another thread while that one sleeps: each timer comes, none before its time, in whatever order they
/// are set, and those that were cancelled in time do not.
#[test]
fn timers_of_other_threads_come_in_time() {
    let io = IoThread::start("dipc-test-io", Duration::ZERO).unwrap();
    let timed = || Arc::new(Timed(Mutex::default()));
    let set = |source: &Arc<Timed>, wait: u64| {
        let deadline = clock::after(Duration::from_millis(wait));
        let me: Weak<dyn Source> = Arc::downgrade(source) as Weak<Timed>;
        (deadline, io.call_at(deadline, me))
    };
    let (last, first, cancelled, behind) = (timed(), timed(), timed(), timed());
    let (last_at, _) = set(&last, 60);
    let (off_at, off) = set(&cancelled, 5);
    let (first_at, _) = set(&first, 20);
    let (_, off_too) = set(&cancelled, 30);
    io.cancel(off);
    io.cancel(off_too);
    // A busy machine may take longer than that.
    let in_time = clock::now() < off_at;
    let came = |source: &Arc<Timed>| source.0.lock().first().copied();
    wait_until(|| came(&last).is_some());
    assert!(came(&first).unwrap() >= first_at && came(&last).unwrap() >= last_at);
    assert!(came(&first).unwrap() <= came(&last).unwrap());
    // One that is over is cancelled without harm, and the next one comes.
    io.cancel(off);
    let (behind_at, _) = set(&behind, 1);
    wait_until(|| came(&behind).is_some());
    assert!(came(&behind).unwrap() >= behind_at);
    assert!(came(&cancelled).is_none() || !in_time);
}
