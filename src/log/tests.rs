use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;

/// A call of the sink: thread name and event, or `None` for the drop.
type SinkCall = Option<(Option<String>, LogRecord)>;

struct Probe(Sender<SinkCall>);

impl Sink for Probe {
    fn log(&self, entry: &LogRecord) {
        let name = std::thread::current().name().map(str::to_owned);
        let _ = self.0.send(Some((name, entry.clone())));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.0.send(None);
    }
}

/// Serialises the tests, because a process has one sink.
static SINK: Mutex<()> = Mutex::new(());

/// The next event of this test. Other tests run at the same time and log too.
fn next(calls: &Receiver<SinkCall>, mark: &str) -> SinkCall {
    loop {
        match calls.recv_timeout(Duration::from_secs(10)).unwrap() {
            Some((_, entry)) if !entry.text.contains(mark) => {}
            other => return other,
        }
    }
}

/// Promises of `dipc_log_set`: events of the level and more severe events arrive on a separate
/// thread, in order. A change of sink loses no queued event; a stop ends the old sink.
#[test]
fn events_reach_the_sink_on_its_own_thread() {
    let _one = SINK.lock();
    let (sender, calls) = channel();
    assert!(set(Level::INFO, Some(Probe(sender))).is_ok());
    tracing::debug!("mark-71 too fine");
    tracing::info!(bytes = 3, peer = "pid 1", "mark-71 first");
    tracing::error!("mark-71 second");
    let (thread, entry) = next(&calls, "mark-71").unwrap();
    assert_eq!(thread.as_deref(), Some("dipc-log"));
    assert_eq!(
        (entry.level, entry.text.as_str()),
        (Level::INFO, "mark-71 first bytes=3 peer=pid 1")
    );
    assert_eq!(next(&calls, "mark-71").unwrap().1.text, "mark-71 second");

    let (sender, finer) = channel();
    tracing::warn!("mark-71 queued for the old one");
    assert!(set(Level::TRACE, Some(Probe(sender))).is_ok());
    tracing::trace!("mark-71 now fine enough");
    assert!(next(&calls, "mark-71").unwrap().1.text.contains("old one"));
    assert_eq!(next(&calls, "mark-71"), None);
    assert!(
        next(&finer, "mark-71")
            .unwrap()
            .1
            .text
            .contains("fine enough")
    );

    assert!(set(Level::TRACE, None::<Probe>).is_ok());
    tracing::error!("mark-71 to nobody");
    assert_eq!(next(&finer, "mark-71"), None);
}

/// Promise of [`LogRecord::text`]: an event is logged with the spans around it, on every thread,
/// and no span is left over.
#[test]
fn events_have_their_spans() {
    let _one = SINK.lock();
    let (sender, calls) = channel();
    assert!(set(Level::INFO, Some(Probe(sender))).is_ok());
    let before = spans::count();
    let outer = tracing::info_span!("outer", of = "mark-72", late = tracing::field::Empty);
    outer.record("late", 7);
    let inner = tracing::info_span!(parent: &outer, "inner");
    let fine = tracing::debug_span!("too fine");
    inner.in_scope(|| fine.in_scope(|| tracing::info!("mark-72 first")));
    let copy = outer.clone();
    drop(outer);
    let other = std::thread::spawn(move || tracing::info!(parent: &copy, "mark-72 second"));
    other.join().unwrap();
    tracing::info!("mark-72 third");
    let text = |_: ()| next(&calls, "mark-72").unwrap().1.text;
    assert_eq!(text(()), "mark-72 first (outer of=mark-72 late=7: inner)");
    assert_eq!(text(()), "mark-72 second (outer of=mark-72 late=7)");
    assert_eq!(text(()), "mark-72 third");
    drop(inner);
    while spans::count() > before {
        std::thread::yield_now();
    }
    assert!(set(Level::INFO, None::<Probe>).is_ok());
}

/// Promise of [`LogRecord::text`]: the text is bounded and valid, whatever a peer sends.
#[test]
fn a_long_text_is_cut() {
    let texts = |message: &str, field: &str| {
        let mut text = Text::default();
        let _ = text.message.write_str(message);
        let _ = text.fields.write_str(field);
        text.whole()
    };
    assert_eq!(texts("short", " peer=x"), "short peer=x");
    let exact = "x".repeat(TEXT_BYTES);
    assert_eq!(texts(&exact, ""), exact);
    // Three bytes each, so that the limit is inside a character.
    let long = "€".repeat(1 << 20);
    let cut = texts(&long, " peer=x");
    assert_eq!(cut, "€".repeat(TEXT_BYTES / 3) + CUT);
    let cut = texts("message", &long);
    assert!(cut.starts_with("message€") && cut.ends_with(CUT));
    assert!(cut.len() <= TEXT_BYTES + CUT.len());
}

/// A sink slower than the events loses events and gets their number.
#[test]
fn a_full_queue_drops_and_counts() {
    let queue = Queue::default();
    let entry = LogRecord {
        level: Level::INFO,
        target: "dipc",
        text: "x".to_owned(),
    };
    for _ in 0..QUEUE_EVENTS + 3 {
        queue.push(entry.clone());
    }
    queue.close();
    for _ in 0..QUEUE_EVENTS {
        assert_eq!(queue.next().as_ref(), Some(&entry));
    }
    assert!(
        queue
            .next()
            .unwrap()
            .text
            .starts_with("3 log events were dropped")
    );
    assert_eq!(queue.next(), None);
}

/// A forked child waits for no lock of its parent. It sets a sink of its own.
#[test]
fn a_forked_child_has_a_log_of_its_own() {
    let _one = SINK.lock();
    assert!(set(Level::ERROR, None::<Probe>).is_ok());
    let held = CURRENT.get().lock();
    // SAFETY: the child takes no lock that is held here, and leaves by `_exit` or by its alarm.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends a child that waits for ever.
        unsafe { libc::alarm(10) };
        let (sender, calls) = channel();
        tracing::error!("mark-73 to nobody");
        let set = set(Level::INFO, Some(Probe(sender))).is_ok();
        tracing::info!("mark-73 to the child's");
        let arrived =
            next(&calls, "mark-73").is_some_and(|(_, entry)| entry.text.contains("child's"));
        // SAFETY: `_exit` ends the child at once.
        unsafe { libc::_exit(if set && arrived { 0 } else { 1 }) };
    }
    drop(held);
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `child` is this process's own child and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
