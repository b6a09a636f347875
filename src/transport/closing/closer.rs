//! The closer: threads that close descriptors if the close may wait.
//!
//! Descriptors of one user block only a few of the threads. The user's other descriptors stay open
//! until one of those threads is free. A user with too many open descriptors is
//! [refused](ensure_room).

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result, Status};
use crate::fork::PerProcess;

/// The most threads that close for one user at a time, and for all users.
const MOST_THREADS: usize = 4;
const MOST_THREADS_IN_ALL: usize = 64;
/// Most descriptors of one user that wait to be closed; a user with more is refused. The next
/// constant is the same limit for all users: with more, no user is admitted for now.
const MOST_OPEN: usize = 64;
const MOST_OPEN_IN_ALL: usize = 256;
/// How long a thread stays when it has nothing to do, because connections often end in bursts.
const LINGER: Duration = Duration::from_millis(100);
/// Longest wait for the close of a listener, which is quick unless the system is overloaded.
const PATIENCE: Duration = Duration::from_secs(1);

struct ClosingJob {
    /// Closed by the drop.
    _fd: OwnedFd,
    user: Option<u32>,
    /// Dropped when the descriptor is closed, which informs the waiting thread.
    _done: Option<SyncSender<()>>,
}

/// The closes of one user, or of no particular user.
#[derive(Default)]
struct Load {
    open: usize,
    threads: usize,
}

#[derive(Default)]
struct CloserState {
    jobs: VecDeque<ClosingJob>,
    loads: HashMap<Option<u32>, Load>,
    /// Threads that wait for a job, and threads that have not started work.
    idle: usize,
    starting: usize,
}

#[derive(Default)]
struct Closer {
    state: Mutex<CloserState>,
    given: Condvar,
}

/// In a forked child the closer of the parent may be locked for ever.
static CLOSER: PerProcess<Closer> = PerProcess::new(Closer::default);

/// Closes `fd` on a thread of ours. The close may wait because of what `user` has sent; `None`: no
/// user has sent anything.
pub fn close(fd: OwnedFd, user: Option<u32>) {
    CLOSER.get().add(fd, user, None);
}

/// Closes a listening socket on a thread of ours, and waits a short time for the close: after it
/// the name of the socket is free.
pub fn close_and_wait(fd: OwnedFd) {
    let (done, is_done) = sync_channel(0);
    CLOSER.get().add(fd, None, Some(done));
    // The other end is dropped after the close; nothing is ever sent.
    let _ = is_done.recv_timeout(PATIENCE);
}

/// Refuses a user with too many open descriptors.
///
/// # Errors
///
/// `Permission`.
pub fn ensure_room(user: u32) -> Result<()> {
    let state = CLOSER.get().state.lock();
    let open = state.loads.get(&Some(user)).map_or(0, |load| load.open);
    if open < MOST_OPEN {
        return Ok(());
    }
    Err(Error::new(
        Status::Permission,
        format!(
            "uid {user} has sent {open} descriptors that this process cannot close: it is refused \
             until they are closed; look for a process of that user that passes sockets or files \
             over connections to libdipc"
        ),
    ))
}

/// Fails if all users together have too many open descriptors.
///
/// # Errors
///
/// `OutOfResources`.
pub fn ensure_any_room() -> Result<()> {
    let open = CLOSER.get().state.lock().open();
    if open < MOST_OPEN_IN_ALL {
        return Ok(());
    }
    Err(Error::new(
        Status::OutOfResources,
        format!(
            "no connection is accepted while {open} descriptors that peers have sent cannot be \
             closed; Linux 6.16 and later keep such descriptors out"
        ),
    ))
}

impl Closer {
    fn add(&'static self, fd: OwnedFd, user: Option<u32>, done: Option<SyncSender<()>>) {
        let mut state = self.state.lock();
        state.load(user).open += 1;
        state.jobs.push_back(ClosingJob {
            _fd: fd,
            user,
            _done: done,
        });
        self.ensure_thread(&mut state);
    }

    /// Makes a thread take the next job, if there is one that may be taken. If no thread can be
    /// started, the next call tries again.
    fn ensure_thread(&'static self, state: &mut MutexGuard<'_, CloserState>) {
        // A thread that takes a job calls this again for the next one.
        if state.next().is_none() || state.starting > 0 {
            return;
        }
        if state.idle > 0 {
            self.given.notify_one();
            return;
        }
        let started = std::thread::Builder::new()
            .name("dipc-closer".into())
            .spawn(move || self.work());
        match started {
            Ok(_) => state.starting += 1,
            Err(error) => tracing::warn!("a connection is closed later: {error}"),
        }
    }

    fn work(&'static self) {
        let mut state = self.state.lock();
        state.starting -= 1;
        loop {
            if let Some(job) = state.take() {
                // The close may block this thread for ever, so another thread must take the next
                // job.
                self.ensure_thread(&mut state);
                let user = job.user;
                MutexGuard::unlocked(&mut state, || drop(job));
                state.count_off(user);
                continue;
            }
            state.idle += 1;
            let waited = self.given.wait_for(&mut state, LINGER);
            state.idle -= 1;
            if waited.timed_out() && state.next().is_none() {
                return;
            }
        }
    }
}

impl CloserState {
    fn load(&mut self, user: Option<u32>) -> &mut Load {
        self.loads.entry(user).or_default()
    }

    /// Open descriptors of all users. Those that belong to no user do not count.
    fn open(&self) -> usize {
        self.of_users().map(|load| load.open).sum()
    }

    fn of_users(&self) -> impl Iterator<Item = &Load> {
        let users = self.loads.iter().filter(|(user, _)| user.is_some());
        users.map(|(_, load)| load)
    }

    /// The index of the first job whose user may block another thread.
    fn next(&self) -> Option<usize> {
        let threads: usize = self.of_users().map(|load| load.threads).sum();
        let is_free = |job: &ClosingJob| {
            let of_user = self.loads.get(&job.user).map_or(0, |load| load.threads);
            of_user < MOST_THREADS && (job.user.is_none() || threads < MOST_THREADS_IN_ALL)
        };
        self.jobs.iter().position(is_free)
    }

    fn take(&mut self) -> Option<ClosingJob> {
        let at = self.next()?;
        let job = self.jobs.remove(at)?;
        self.load(job.user).threads += 1;
        Some(job)
    }

    fn count_off(&mut self, user: Option<u32>) {
        let load = self.load(user);
        load.open = load.open.saturating_sub(1);
        load.threads = load.threads.saturating_sub(1);
        if load.open == 0 {
            self.loads.remove(&user);
        }
    }
}
