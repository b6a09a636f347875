//! Threads for streams. One serves stream after stream, since to wake a thread takes less time than
//! to make one; it ends when it has had nothing to do for a while.
//!
//! Meanwhile it holds the connection of its last stream: the next request there wakes the thread
//! that serves it, and no other one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::driver::clock;
use crate::driver::io::{Source as _, guarded};
use crate::driver::served::{Begun, Served, Work};
use crate::driver::turning::{Bell, Budget, Turn as _, Turner, Wants};
use crate::driver::waiting::{self, Looks};
use crate::error::Error;

/// How long a thread waits for its next stream.
const IDLE: Duration = Duration::from_secs(2);
/// Most threads that wait. Others end with their stream.
const MOST_IDLE: usize = 16;

/// The threads of one server. Dropping it ends those that wait; those that work end after it.
#[derive(Default)]
pub(super) struct Threads {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    /// Those that wait, by number; the last one began to wait last.
    threads: Vec<WaitingThread>,
    next: u64,
    closed: bool,
}

struct WaitingThread {
    number: u64,
    sender: Sender<Box<dyn Work>>,
    bell: Arc<Bell>,
}

impl Threads {
    /// Runs `work` on a thread of its own, or refuses it where the system has none.
    pub(super) fn run(&self, work: Box<dyn Work>) {
        let waiting = self.waiting.lock().threads.pop();
        let work = match waiting {
            // A thread that was taken off the list waits until it is told: this never fails.
            Some(waiting) => match waiting.sender.send(work) {
                Ok(()) => return waiting.bell.ring(),
                Err(unsent) => unsent.0,
            },
            None => work,
        };
        if let Err((error, work)) = start(Arc::clone(&self.waiting), work) {
            work.refuse(&Error::io("cannot start a thread for the stream", &error));
        }
    }

    /// Ends the threads that wait, and from now on each one with its stream.
    pub(super) fn close(&self) {
        let threads = {
            let mut waiting = self.waiting.lock();
            waiting.closed = true;
            std::mem::take(&mut waiting.threads)
        };
        for thread in threads {
            drop(thread.sender);
            thread.bell.ring();
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
    waiting: Arc<Mutex<Waiting>>,
    work: Box<dyn Work>,
) -> Result<(), (io::Error, Box<dyn Work>)> {
    // The system takes the thread's function also where it has no thread.
    let slot = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&slot);
    let started = thread::Builder::new()
        .name("dipc-stream".into())
        .spawn(move || {
            let work = taken.lock().take();
            if let Some(work) = work {
                serve(&waiting, work);
            }
        });
    let Err(error) = started else { return Ok(()) };
    let work = slot.lock().take();
    work.map_or(Ok(()), |work| Err((error, work)))
}

/// Works until nothing comes. A panic ends the thread as it would one of its own.
fn serve(waiting: &Mutex<Waiting>, first: Box<dyn Work>) {
    let mut work = first;
    let mut bell = None;
    loop {
        let turner = work.run();
        // Without a descriptor to sleep on, the next stream has a thread made.
        let bell = match &bell {
            Some(bell) => bell,
            None => match Bell::new() {
                Ok(made) => bell.insert(Arc::new(made)),
                Err(_) => return,
            },
        };
        match wait(waiting, bell, turner) {
            Some(next) => work = next,
            None => return,
        }
    }
}

/// The work that a thread does next; `None` once nothing has come for a while, or nothing will.
fn wait(
    waiting: &Mutex<Waiting>,
    bell: &Arc<Bell>,
    mut turner: Option<Turner<Served>>,
) -> Option<Box<dyn Work>> {
    let until = clock::after(IDLE);
    if let Some(turner) = &mut turner {
        turner.set_bell(Some(Arc::clone(bell)));
    }
    let mut soon = false;
    loop {
        let (number, receiver) = enlist(waiting, bell)?;
        let held = turner.as_ref().map(|turner| {
            let mut wants = turner.link().look(Served::wants);
            wants.soon |= soon;
            (turner.link().readiness(), wants)
        });
        let slept = waiting::sleep(held, Some(bell), None, Some(until));
        if strike(waiting, number) {
            // Work is on the way, or the server has ended.
            drop(turner);
            return receiver.recv().ok();
        }
        let died = slept.ok()?;
        if clock::until(until).is_zero() {
            return None;
        }
        let budget = if died { Budget::READY } else { Budget::LOOK };
        (turner, soon) = match turner.map(|turner| turn(turner, budget)) {
            Some(Turned::Begun(Begun::Here(turner), soon)) => (Some(turner), soon),
            Some(Turned::Begun(Begun::Thread(work), _)) => return Some(work),
            Some(Turned::Begun(Begun::Elsewhere, _) | Turned::Over) | None => (None, false),
        };
    }
}

/// Puts a thread on the list of those that wait; `None` where it is to end.
fn enlist(
    waiting: &Mutex<Waiting>,
    bell: &Arc<Bell>,
) -> Option<(u64, mpsc::Receiver<Box<dyn Work>>)> {
    let (sender, receiver) = mpsc::channel();
    let mut waiting = waiting.lock();
    if waiting.closed || waiting.threads.len() >= MOST_IDLE {
        return None;
    }
    let number = waiting.next;
    waiting.next += 1;
    waiting.threads.push(WaitingThread {
        number,
        sender,
        bell: Arc::clone(bell),
    });
    Some((number, receiver))
}

/// Takes a thread off the list. Returns whether another one had done so.
fn strike(waiting: &Mutex<Waiting>, number: u64) -> bool {
    let threads = &mut waiting.lock().threads;
    let place = threads.iter().position(|thread| thread.number == number);
    place.map(|place| threads.remove(place)).is_none()
}

/// What has come of a turn of a connection.
enum Turned {
    /// The stream that was asked for has begun, or none was asked for. With whether there may be
    /// more to do now.
    Begun(Begun, bool),
    /// The connection is over.
    Over,
}

/// Turns a connection between two streams, or in a stream that whoever turns it sends.
fn turn(mut turner: Turner<Served>, budget: Budget) -> Turned {
    let link = Arc::clone(turner.link());
    let mut turned = Turned::Over;
    let done = guarded(|| {
        let (wants, mut effects) = turner.turn(budget);
        let request = effects.take_request();
        Served::settle(turner.link(), effects);
        turned = match request {
            _ if turner.link().is_closed() => Turned::Over,
            None => Turned::Begun(Begun::Here(turner), wants.soon),
            Some(request) => match turner.link().beside.host() {
                Some(host) => Turned::Begun(host.begin(turner, request), true),
                None => Turned::Over,
            },
        };
    });
    if !done {
        link.panicked();
    }
    turned
}

/// Sends a published table to its end, on a thread that does nothing else. Gives the connection
/// back, unless it is over.
pub(super) fn send_table(mut turner: Turner<Served>) -> Option<Turner<Served>> {
    let bell = Bell::new().ok().map(Arc::new);
    turner.set_bell(bell.clone());
    let mut looks = Looks::default();
    let mut budget = Budget::LOOK;
    loop {
        let wants = turn_table(&mut turner, budget);
        budget = Budget::LOOK;
        let Some(sent) = turner.link().look(Served::published_messages) else {
            break;
        };
        let goes_on = |turner: &mut Turner<Served>| {
            turn_table(turner, Budget::LOOK);
            turner.link().look(Served::published_messages) != Some(sent)
        };
        if wants.soon || looks.look(|| goes_on(&mut turner)) {
            continue;
        }
        let wants = turner.link().look(Served::wants);
        let held = [(turner.link().readiness(), wants)];
        if waiting::sleep(held, bell.as_deref(), None, None).ok()? {
            budget = Budget::READY;
        }
    }
    (!turner.link().is_closed()).then_some(turner)
}

/// One turn of a connection that sends a table.
fn turn_table(turner: &mut Turner<Served>, budget: Budget) -> Wants {
    turner.step(|served, effects| served.turn_without_request(budget, effects))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that is no stream.
    struct Task<F>(F);

    impl<F: FnOnce() + Send> Work for Task<F> {
        fn run(self: Box<Self>) -> Option<Turner<Served>> {
            (self.0)();
            None
        }

        fn refuse(self: Box<Self>, error: &Error) {
            panic!("there is no thread: {error}");
        }
    }

    fn run(threads: &Threads, task: impl FnOnce() + Send + 'static) {
        threads.run(Box::new(Task(task)));
    }

    fn run_on(threads: &Threads) -> mpsc::Receiver<thread::ThreadId> {
        let (sender, seen) = mpsc::channel();
        run(threads, move || {
            sender.send(thread::current().id()).unwrap()
        });
        seen
    }

    fn wait_idle(threads: &Threads, count: usize) {
        while threads.waiting.lock().threads.len() != count {
            thread::yield_now();
        }
    }

    /// design.md, "Threads": one thread for each active stream, and the same one for the next.
    #[test]
    fn a_thread_serves_stream_after_stream() {
        let threads = Threads::default();
        let first = run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        assert_eq!(run_on(&threads).recv().unwrap(), first);
        // While it works, another stream gets another thread.
        wait_idle(&threads, 1);
        let (go, told) = mpsc::channel::<()>();
        run(&threads, move || told.recv().unwrap());
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        go.send(()).unwrap();
        wait_idle(&threads, 2);
    }

    /// `IDLE`: a bell that has rung for a stream which the thread has served long since ends nothing.
    #[test]
    fn a_thread_that_is_woken_for_nothing_waits_on() {
        // On a busy machine its time may be over before it is asked: then once more.
        for _ in 0..100 {
            let threads = Threads::default();
            let start = clock::now();
            let is_late = || clock::since(start) > IDLE / 2;
            let first = run_on(&threads).recv().unwrap();
            let number = || threads.waiting.lock().threads.first().map(|it| it.number);
            wait_idle(&threads, 1);
            for _ in 0..3 {
                let before = number();
                if let Some(idle) = threads.waiting.lock().threads.first() {
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

    /// design.md, "Failure is per stream": work that panics costs its own thread and nobody else's.
    #[test]
    fn a_panic_loses_no_thread_but_its_own() {
        let threads = Threads::default();
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
        assert_eq!(threads.waiting.lock().threads.len(), 0);
        assert_ne!(run_on(&threads).recv().unwrap(), first);
        wait_idle(&threads, 1);
    }

    /// Nothing of a server stays behind: threads that wait end with it, busy ones with their work.
    #[test]
    fn threads_end_with_their_server() {
        let threads = Threads::default();
        run_on(&threads).recv().unwrap();
        let (go, told) = mpsc::channel::<()>();
        wait_idle(&threads, 1);
        run(&threads, move || told.recv().unwrap());
        run_on(&threads).recv().unwrap();
        wait_idle(&threads, 1);
        let shared = Arc::downgrade(&threads.waiting);
        drop(threads);
        go.send(()).unwrap();
        // Each thread holds what they share.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
