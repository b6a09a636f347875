//! Threads for streams. A thread serves stream after stream, because waking a thread is faster than
//! starting one. It ends after a while without work.
//!
//! Between two streams a thread owns the connection of its last stream, so that the next request
//! wakes only this thread.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::asked::{Asked, Dispatch, IncomingRequest, StreamWork};
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::end::End;
use crate::driver::io::{Source as _, guarded};
use crate::driver::turning::{Turn as _, Turner};
use crate::driver::waiting::{self, Again, Cause, Looks, RETRY, Wants};
use crate::error::Error;
use crate::proto::ArrivedRequest;
use crate::proto::Timestamp;

/// How long a thread waits for its next stream.
const IDLE: Duration = Duration::from_secs(2);
/// Most threads that wait. Further threads end with their stream.
const MOST_IDLE: usize = 16;

/// The threads of one server. The drop ends waiting threads; working threads end with their stream.
pub(super) struct Threads {
    shared: Arc<PoolState>,
}

/// Each thread holds this until its very end.
struct PoolState {
    server: Weak<dyn Dispatch>,
    waiting: Mutex<IdleThreads>,
    ended: Condvar,
}

#[derive(Default)]
struct IdleThreads {
    /// The waiting threads. The last in the list began to wait last.
    threads: Vec<IdleThread>,
    /// All threads, working ones too.
    count: usize,
    next: u64,
    closed: bool,
}

/// One thread in the count. Its drop is the last act of the thread.
struct CountedThread(Arc<PoolState>);

impl CountedThread {
    fn new(shared: &Arc<PoolState>) -> Self {
        shared.waiting.lock().count += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for CountedThread {
    fn drop(&mut self) {
        self.0.waiting.lock().count -= 1;
        self.0.ended.notify_all();
    }
}

struct IdleThread {
    number: u64,
    sender: Sender<Box<dyn StreamWork>>,
    bell: Arc<Bell>,
}

impl Threads {
    /// The threads of `server`.
    pub(super) fn new(server: Weak<dyn Dispatch>) -> Self {
        Self {
            shared: Arc::new(PoolState {
                server,
                waiting: Mutex::default(),
                ended: Condvar::new(),
            }),
        }
    }

    /// Runs `work` on a waiting or a new thread. Refuses it if the system has no thread left.
    pub(super) fn run(&self, work: Box<dyn StreamWork>) {
        let waiting = self.shared.waiting.lock().threads.pop();
        let work = match waiting {
            // A thread that was taken off the list still waits for its work, so the send never
            // fails.
            Some(waiting) => match waiting.sender.send(work) {
                Ok(()) => return waiting.bell.ring(),
                Err(unsent) => unsent.0,
            },
            None => work,
        };
        if let Err((error, work)) = start(CountedThread::new(&self.shared), work) {
            work.refuse(&Error::io("cannot start a thread for the stream", &error));
        }
    }

    /// Ends the waiting threads. From now on each thread ends with its stream.
    pub(super) fn close(&self) {
        let threads = {
            let mut waiting = self.shared.waiting.lock();
            waiting.closed = true;
            std::mem::take(&mut waiting.threads)
        };
        for thread in threads {
            drop(thread.sender);
            thread.bell.ring();
        }
    }

    /// Waits until every thread has ended, or until `deadline`. A waiting thread owns a connection,
    /// so this also waits until the threads of a closed pool have dropped their connections.
    pub(super) fn wait_ended(&self, deadline: Timestamp) {
        let mut waiting = self.shared.waiting.lock();
        while waiting.count > 0 {
            let left = clock::until(deadline);
            if left.is_zero() {
                return;
            }
            self.shared.ended.wait_for(&mut waiting, left);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close();
    }
}

/// Starts a thread, or gives the work back.
fn start(
    counted: CountedThread,
    work: Box<dyn StreamWork>,
) -> Result<(), (io::Error, Box<dyn StreamWork>)> {
    // A failed `spawn` drops the closure, so the work is kept outside it.
    let slot = Arc::new(Mutex::new(Some(work)));
    let moved = Arc::clone(&slot);
    let started = thread::Builder::new()
        .name("dipc-stream".into())
        .spawn(move || {
            let work = moved.lock().take();
            if let Some(work) = work {
                serve(&counted.0, work);
            }
        });
    let Err(error) = started else { return Ok(()) };
    let work = slot.lock().take();
    work.map_or(Ok(()), |work| Err((error, work)))
}

/// Serves streams until the thread has been idle for a while. A panic ends the thread.
fn serve(shared: &PoolState, first: Box<dyn StreamWork>) {
    let mut work = first;
    let mut bell = None;
    loop {
        let mut next = None;
        let turner = work.run().dispatch(|work| next = Some(work));
        if let Some(next) = next {
            work = next;
            continue;
        }
        let turner = turner.and_then(send_table);
        // Without a descriptor to sleep on, the thread ends; the next stream gets a new thread.
        let bell = match &bell {
            Some(bell) => bell,
            None => match Bell::new() {
                Ok(made) => bell.insert(Arc::new(made)),
                Err(_) => return,
            },
        };
        match wait(shared, bell, turner) {
            Some(next) => work = next,
            None => return,
        }
    }
}

/// Waits for the thread's next work; `None` after a while without work, or after a close.
fn wait(
    shared: &PoolState,
    bell: &Arc<Bell>,
    mut turner: Option<Turner<End>>,
) -> Option<Box<dyn StreamWork>> {
    let until = clock::after(IDLE);
    if let Some(turner) = &mut turner {
        turner.set_bell(Some(Arc::clone(bell)));
    }
    let mut soon = false;
    loop {
        let (number, receiver) = enlist(&shared.waiting, bell)?;
        let mut request = turner.as_mut().and_then(|turner| spin(turner, bell));
        let mut cause = Cause::Woken;
        if request.is_none() {
            let held = turner.as_ref().map(|turner| {
                let mut wants = turner.link().inspect(End::wants);
                if soon {
                    wants.again = Again::Now;
                }
                (turner.link().readiness(), wants)
            });
            cause = waiting::sleep(held, Some(bell), None, Some(until)).ok()?;
        }
        if strike(&shared.waiting, number) {
            // Another thread has taken this one off the list: work comes, or the server has ended.
            if let (Some(turner), Some(request)) = (&mut turner, request) {
                turner.step(|served, _| served.put_back(request));
            }
            drop(turner);
            return receiver.recv().ok();
        }
        if request.is_none() && clock::until(until).is_zero() {
            return None;
        }
        if let (Some(turner), None) = (&mut turner, &request) {
            (request, soon) = turn(turner, cause);
        }
        turner.take_if(|turner| turner.link().is_closed());
        if let Some(request) = request
            && let Some(held) = turner.take()
        {
            let asked = Asked::Arrived(IncomingRequest::new(held, request));
            let mut work = None;
            let begun = shared.server.upgrade()?.advance(asked);
            turner = begun.dispatch(|it| work = Some(it));
            if work.is_some() {
                return work;
            }
            soon = turner.is_some();
        }
    }
}

/// Spins for the next request, if the server is set to spin.
fn spin(turner: &mut Turner<End>, bell: &Bell) -> Option<ArrivedRequest> {
    let time = turner.link().io().spin();
    if time.is_zero() {
        return None;
    }
    let mut request = None;
    waiting::spin(time, None, |upkeep| {
        let cause = match upkeep {
            Some(_) => Cause::Ready,
            None => Cause::Look,
        };
        (request, _) = turn(turner, cause);
        request.is_some() || bell.has_rung() || turner.link().is_closed()
    });
    request
}

/// Turns a connection between two streams, or during a stream that the turns send. Returns a
/// request that has come, and whether more work may be ready now.
fn turn(turner: &mut Turner<End>, cause: Cause) -> (Option<ArrivedRequest>, bool) {
    let mut turned = (None, false);
    let done = guarded(|| {
        turned = turner.step(|served, effects| {
            let wants = served.turn(cause, effects);
            (served.take_request(effects), wants.again == Again::Now)
        });
    });
    if !done {
        turner.link().panicked();
    }
    turned
}

/// Puts a thread on the list of waiting threads; `None` if the thread must end.
fn enlist(
    waiting: &Mutex<IdleThreads>,
    bell: &Arc<Bell>,
) -> Option<(u64, mpsc::Receiver<Box<dyn StreamWork>>)> {
    let (sender, receiver) = mpsc::channel();
    let mut waiting = waiting.lock();
    if waiting.closed || waiting.threads.len() >= MOST_IDLE {
        return None;
    }
    let number = waiting.next;
    waiting.next += 1;
    waiting.threads.push(IdleThread {
        number,
        sender,
        bell: Arc::clone(bell),
    });
    Some((number, receiver))
}

/// Takes a thread off the list. Returns whether another thread has done so before.
fn strike(waiting: &Mutex<IdleThreads>, number: u64) -> bool {
    let threads = &mut waiting.lock().threads;
    let place = threads.iter().position(|thread| thread.number == number);
    place.map(|place| threads.remove(place)).is_none()
}

/// Sends a published table to its end, on a thread for this stream only. Gives the connection back,
/// unless it has ended.
fn send_table(mut turner: Turner<End>) -> Option<Turner<End>> {
    if turner.link().inspect(End::sent_in_turns).is_none() {
        return Some(turner);
    }
    let bell = Bell::new().ok().map(Arc::new);
    turner.set_bell(bell.clone());
    let mut looks = Looks::default();
    let mut cause = Cause::Woken;
    loop {
        let wants = turn_table(&mut turner, cause);
        let Some(sent) = turner.link().inspect(End::sent_in_turns) else {
            break;
        };
        let goes_on = |turner: &mut Turner<End>| {
            turn_table(turner, Cause::Look);
            turner.link().inspect(End::sent_in_turns) != Some(sent)
        };
        if wants.again == Again::Now || looks.look(|| goes_on(&mut turner)) {
            continue;
        }
        let wants = turner.link().inspect(End::wants);
        let held = [(turner.link().readiness(), wants)];
        // NoServer can wake a thread for whose bell there was no descriptor.
        let retry = bell.is_none().then(|| clock::after(RETRY));
        cause = waiting::sleep(held, bell.as_deref(), None, retry).ok()?;
    }
    (!turner.link().is_closed()).then_some(turner)
}

/// Turns a connection that sends a table.
fn turn_table(turner: &mut Turner<End>, cause: Cause) -> Wants {
    turner.step(|served, effects| served.turn_without_request(cause, effects))
}

#[cfg(test)]
mod tests {
    use super::super::asked::Begun;
    use super::*;

    /// No server.
    struct NoServer;

    impl Dispatch for NoServer {
        fn advance(&self, _: Asked) -> Begun {
            Begun::Elsewhere
        }
    }

    fn no_server() -> Threads {
        Threads::new(Weak::<NoServer>::new())
    }

    /// Work without a stream.
    struct PlainWork<F>(F);

    impl<F: FnOnce() + Send> StreamWork for PlainWork<F> {
        fn run(self: Box<Self>) -> Begun {
            (self.0)();
            Begun::Elsewhere
        }

        fn refuse(self: Box<Self>, error: &Error) {
            panic!("there is no thread: {error}");
        }
    }

    fn run(threads: &Threads, work: impl FnOnce() + Send + 'static) {
        threads.run(Box::new(PlainWork(work)));
    }

    fn run_on(threads: &Threads) -> mpsc::Receiver<thread::ThreadId> {
        let (sender, seen) = mpsc::channel();
        run(threads, move || {
            sender.send(thread::current().id()).unwrap()
        });
        seen
    }

    fn wait_idle(threads: &Threads, count: usize) {
        while threads.shared.waiting.lock().threads.len() != count {
            thread::yield_now();
        }
    }

    /// Promise: each active stream has a thread, which serves the next stream too.
    #[test]
    fn a_thread_serves_stream_after_stream() {
        let threads = no_server();
        let first = run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        assert_eq!(run_on(&threads).recv().unwrap(), first);
        // While the thread works, another stream gets another thread.
        wait_idle(&threads, 1);
        let (go, waits) = mpsc::channel::<()>();
        run(&threads, move || waits.recv().unwrap());
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        go.send(()).unwrap();
        wait_idle(&threads, 2);
    }

    /// Promise: a late ring, for a stream that the thread has served already, does not end the
    /// thread.
    #[test]
    fn a_thread_that_is_woken_for_nothing_waits_on() {
        // On a busy machine the idle time may pass before the check: then the test tries again.
        for _ in 0..100 {
            let threads = no_server();
            let start = clock::now();
            let is_late = || clock::since(start) > IDLE / 2;
            let first = run_on(&threads).recv().unwrap();
            let number = || {
                threads
                    .shared
                    .waiting
                    .lock()
                    .threads
                    .first()
                    .map(|it| it.number)
            };
            wait_idle(&threads, 1);
            for _ in 0..3 {
                let before = number();
                if let Some(idle) = threads.shared.waiting.lock().threads.first() {
                    idle.bell.ring();
                }
                while !is_late() && number().is_none_or(|now| Some(now) == before) {
                    thread::yield_now();
                }
            }
            let second = run_on(&threads).recv().unwrap();
            if !is_late() {
                assert_eq!(second, first);
                return;
            }
        }
        panic!("the machine is too busy for this test");
    }

    /// Promise: a panic of one stream's work ends that stream's thread only.
    #[test]
    fn a_panic_loses_no_thread_but_its_own() {
        let threads = no_server();
        let first = run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        run(&threads, move || {
            let _held = held;
            panic!("this work panics on purpose")
        });
        while Arc::strong_count(&dropped) > 1 {
            thread::yield_now();
        }
        assert_eq!(threads.shared.waiting.lock().threads.len(), 0);
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        wait_idle(&threads, 1);
    }

    /// Promise: waiting threads end with their server, busy threads with their work.
    #[test]
    fn threads_end_with_their_server() {
        let threads = no_server();
        run_on(&threads).recv().unwrap();
        let (go, waits) = mpsc::channel::<()>();
        wait_idle(&threads, 1);
        run(&threads, move || waits.recv().unwrap());
        run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        threads.close();
        threads.wait_ended(clock::after(Duration::from_millis(50)));
        assert_eq!(threads.shared.waiting.lock().count, 1);
        go.send(()).unwrap();
        threads.wait_ended(clock::after(Duration::from_secs(20)));
        assert_eq!(threads.shared.waiting.lock().count, 0);
    }
}
