//! The hand-overs of a connection between threads, in every order of their steps
//! (`tools/test-slow.sh loom`). A message that nobody reads leaves a thread waiting for ever, which
//! loom reports.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

use super::Owner;
use crate::proto::Timestamp;

/// The socket and the epoll, as the system keeps them.
struct System {
    unread: u32,
    watched: bool,
}

/// A connection as `Link` has it, the system, and the sleep of the I/O thread.
struct Model {
    owner: Mutex<Owner>,
    system: Mutex<System>,
    epoll: Notify,
    /// The holder's sleep, on the descriptor and its bell.
    holder: Notify,
    time: AtomicU64,
    read: AtomicU64,
}

impl Model {
    fn new(owner: Owner, watched: bool) -> Arc<Self> {
        Arc::new(Self {
            owner: Mutex::new(owner),
            system: Mutex::new(System { unread: 0, watched }),
            epoll: Notify::new(),
            holder: Notify::new(),
            time: AtomicU64::new(0),
            read: AtomicU64::new(0),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.time.load(Ordering::SeqCst))
    }

    /// The peer sends a message: the system wakes whoever waits for it.
    fn send(&self) {
        let mut system = self.system.lock().unwrap();
        system.unread += 1;
        if system.watched {
            self.epoll.notify();
        }
        self.holder.notify();
    }

    /// Reads all there is, under the connection's lock.
    fn receive(&self) {
        let unread = std::mem::take(&mut self.system.lock().unwrap().unread);
        self.read.fetch_add(unread.into(), Ordering::SeqCst);
        if unread > 0 {
            self.holder.notify();
        }
    }

    /// As `Link::watch` and `Link::ignore` do it; what is there already is told.
    fn watch(&self, watched: bool) {
        let mut system = self.system.lock().unwrap();
        system.watched = watched;
        if watched && system.unread > 0 {
            self.epoll.notify();
        }
    }

    /// As `Link::turn_as_io` does it, after an event or a timer.
    fn turn_as_io(&self) {
        let mut owner = self.owner.lock().unwrap();
        if owner.admit_io(self.now()) {
            self.receive();
            self.watch(true);
        } else {
            self.watch(false);
        }
    }

    fn run_io(&self) {
        while self.read.load(Ordering::SeqCst) == 0 {
            self.epoll.wait();
            self.turn_as_io();
        }
    }
}

/// A holder stays in the host's code until the message is read, which the I/O thread does.
#[test]
fn loom_a_holder_in_the_hosts_code_misses_nothing() {
    loom::model(|| {
        let model = Model::new(Owner::Holder, true);
        let (peer, host) = (Arc::clone(&model), Arc::clone(&model));
        let peer = thread::spawn(move || peer.send());
        let host = thread::spawn(move || {
            host.owner
                .lock()
                .unwrap()
                .enter_host(Timestamp::from_nanos(1));
            // The timer that was set with that.
            host.time.store(1, Ordering::SeqCst);
            host.epoll.notify();
        });
        model.run_io();
        peer.join().unwrap();
        host.join().unwrap();
    });
}

/// A holder turns the connection once and gives it back: the message is read by one of the two.
#[test]
fn loom_a_connection_that_is_given_back_is_read() {
    loom::model(|| {
        let model = Model::new(Owner::Holder, false);
        let (peer, holder) = (Arc::clone(&model), Arc::clone(&model));
        let peer = thread::spawn(move || peer.send());
        let holder = thread::spawn(move || {
            {
                let mut owner = holder.owner.lock().unwrap();
                owner.hold();
                holder.receive();
            }
            let mut owner = holder.owner.lock().unwrap();
            owner.give_back();
            holder.watch(true);
            if holder.read.load(Ordering::SeqCst) > 0 {
                holder.epoll.notify();
            }
        });
        model.run_io();
        peer.join().unwrap();
        holder.join().unwrap();
    });
}

/// A holder takes the connection and sleeps on the descriptor, whatever the I/O thread is told.
#[test]
fn loom_a_holder_that_sleeps_reads_for_itself() {
    loom::model(|| {
        let model = Model::new(Owner::IoThread, true);
        let (peer, io) = (Arc::clone(&model), Arc::clone(&model));
        let peer = thread::spawn(move || peer.send());
        let io = thread::spawn(move || io.turn_as_io());
        assert!(model.owner.lock().unwrap().acquire());
        while model.read.load(Ordering::SeqCst) == 0 {
            model.owner.lock().unwrap().hold();
            model.receive();
            if model.read.load(Ordering::SeqCst) == 0 {
                model.holder.wait();
            }
        }
        peer.join().unwrap();
        io.join().unwrap();
    });
}
