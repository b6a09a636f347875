//! One connection, its lock, and the I/O thread's part in it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::guests::{Bells, Guests};
use super::ownership::{GiveBack, Owner};
use super::{Turn, Turner};
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::io::{CALLS_AT_ONCE, EventFlags, IoThread, Registration, Source};
use crate::driver::waiting::{Again, Cause, HOST_PATIENCE, RETRY, UPKEEP, Wants};
use crate::error::{Error, Status};
use crate::fork::Generation;
use crate::proto::Timestamp;
use crate::transport::{ConnectionReadiness, Identity, PeerOrigin, Profile};

const NEVER: u64 = u64::MAX;

/// One connection.
pub struct Link<T: Turn> {
    /// What needs no lock.
    pub context: T::Context,
    identity: Identity,
    io: IoThread,
    generation: Generation,
    me: Weak<Self>,
    /// The first time at which the I/O thread is to do upkeep, in nanoseconds.
    timer: AtomicU64,
    /// The I/O thread was called for this connection, but has not come yet.
    is_called: AtomicBool,
    held: Mutex<LockedEnd<T>>,
}

pub(super) struct LockedEnd<T> {
    pub(super) end: T,
    pub(super) owner: Owner,
    /// The bells that wake the holders, if these have set any.
    pub(super) bells: [Option<Arc<Bell>>; 2],
    /// There are two tokens.
    pub(super) is_shared: bool,
    /// The streams of a connection that carries many.
    pub(super) guests: Guests,
    /// The descriptors in the I/O thread's epoll. After a holder took the connection, they stay
    /// there until the first event.
    registration: Option<Registration>,
}

impl<T: Turn> LockedEnd<T> {
    /// The bells of the guests for whom something has changed.
    fn take_bells(&mut self) -> Bells {
        let stirred = self.end.take_stirred();
        match self.owner {
            Owner::Shared => (self.guests).bells(&stirred, |number| self.end.has_news(number)),
            _ => Bells::new(),
        }
    }
}

impl<T> LockedEnd<T> {
    /// Wakes the holders, except the one with the number `but`.
    pub(super) fn ring(&self, but: Option<usize>) {
        for (number, bell) in self.bells.iter().enumerate() {
            if let Some(bell) = bell.as_ref().filter(|_| Some(number) != but) {
                bell.ring();
            }
        }
    }
}

/// Wakes guests. No lock of a connection is held.
fn ring(bells: Bells) {
    bells.into_iter().for_each(|bell| bell.ring());
}

impl<T: Turn> Link<T> {
    /// A connection that the I/O thread owns, but does not watch before its first
    /// [turn](Source::ready).
    pub fn new(end: T, context: T::Context, identity: Identity, io: &IoThread) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            context,
            identity,
            io: io.clone(),
            generation: Generation::now(),
            me: Weak::clone(me),
            timer: AtomicU64::new(NEVER),
            is_called: AtomicBool::new(false),
            held: Mutex::new(LockedEnd {
                end,
                owner: Owner::IoThread,
                bells: [None, None],
                is_shared: false,
                guests: Guests::default(),
                registration: None,
            }),
        })
    }

    /// A connection whose owner is the caller.
    pub fn held(end: T, context: T::Context, identity: Identity, io: &IoThread) -> Turner<T> {
        let link = Self::new(end, context, identity, io);
        link.held.lock().owner.acquire();
        Turner::new(link)
    }

    /// Who the peer is.
    pub fn peer(&self) -> &str {
        &self.identity.peer
    }

    /// Whether the peer runs as the same user.
    pub fn same_user(&self) -> bool {
        self.identity.same_user
    }

    /// The peer as data.
    pub fn origin(&self) -> &PeerOrigin {
        &self.identity.origin
    }

    /// Whether only this machine's administrator can read what the connection carries (rule Q7).
    pub fn is_private(&self) -> bool {
        let address = self.origin().address.as_ref();
        self.profile().trust.is_private(address)
    }

    /// The descriptors to sleep on.
    pub fn readiness(&self) -> &ConnectionReadiness {
        &self.identity.readiness
    }

    /// How the connection behaves.
    pub fn profile(&self) -> Profile {
        self.identity.profile
    }

    /// The I/O thread that watches it.
    pub fn io(&self) -> &IoThread {
        &self.io
    }

    /// The process that made it.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Acquires the token from the I/O thread; `None` if there is a holder already.
    pub fn acquire(&self) -> Option<Turner<T>> {
        let me = self.me.upgrade()?;
        let taken = self.held.lock().owner.acquire();
        taken.then(|| Turner::new(me))
    }

    /// A token of the stream `number`; `None` if the connection does not carry many streams.
    pub fn guest(&self, number: u32) -> Option<Turner<T>> {
        let me = self.me.upgrade()?;
        let mut held = self.held.lock();
        let is_shared = held.owner == Owner::Shared;
        let slot = is_shared.then(|| held.guests.add(number))?;
        drop(held);
        Some(Turner::guest(me, number, slot))
    }

    /// A holder leaves the connection to the I/O thread for good, and becomes a guest.
    pub(super) fn share(&self, number: u32) -> usize {
        let mut effects = T::Effects::default();
        let mut held = self.held.lock();
        held.owner.share();
        held.bells = [None, None];
        held.is_shared = false;
        let slot = held.guests.add(number);
        self.watch(&mut held, &mut effects);
        drop(held);
        self.settle(effects);
        slot
    }

    /// A guest is gone.
    pub(super) fn leave(&self, number: u32, slot: usize) {
        if !self.generation.is_same_process() {
            return;
        }
        let mut held = self.held.lock();
        if held.guests.remove(number, slot) {
            self.interfere_held(held, |end, effects| end.leave(number, effects));
        }
    }

    /// Reads the state. Nothing changes, so the owner need not be informed.
    pub fn inspect<R>(&self, inspect: impl FnOnce(&T) -> R) -> R {
        inspect(&self.held.lock().end)
    }

    /// Changes the state from a thread that does not own the connection, and informs the owner.
    pub fn interfere<R>(&self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> R {
        self.interfere_held(self.held.lock(), step)
    }

    /// [`interfere`](Self::interfere), but `None` if another thread has the lock.
    pub fn try_interfere<R>(&self, step: impl FnOnce(&mut T, &mut T::Effects) -> R) -> Option<R> {
        let held = self.held.try_lock()?;
        Some(self.interfere_held(held, step))
    }

    fn interfere_held<R>(
        &self,
        mut held: MutexGuard<'_, LockedEnd<T>>,
        step: impl FnOnce(&mut T, &mut T::Effects) -> R,
    ) -> R {
        let mut effects = T::Effects::default();
        if held.owner == Owner::Shared && self.io.is_awake() {
            held.end.leave_writes();
        }
        let result = step(&mut held.end, &mut effects);
        let (mut soon, mut bells) = (false, Bells::new());
        if held.owner == Owner::Shared && held.end.is_quiet() {
            // Most calls on a connection with many streams end here.
            self.schedule_each([None, held.end.next_upkeep()]);
        } else if held.owner.admit_io(clock::now()) {
            let wants = self.watch(&mut held, &mut effects);
            soon = wants.again == Again::Now && held.owner != Owner::Deputy;
            bells = held.take_bells();
        } else {
            held.ring(None);
        }
        drop(held);
        ring(bells);
        self.settle(effects);
        if soon {
            self.call_soon();
        }
        result
    }

    /// Makes the I/O thread turn the connection. Several calls before that turn count as one.
    pub(super) fn call_soon(&self) {
        if !self.is_called.swap(true, Ordering::SeqCst) {
            self.io.call_soon(self.source());
        }
    }

    /// Makes the I/O thread do the [upkeep](Turn::upkeep) at `at` or earlier. This needs no lock.
    pub fn schedule(&self, at: Timestamp) {
        let at_nanos = at.as_nanos();
        // Usually a timer is set already, which this cheaper read shows.
        if at_nanos < self.timer.load(Ordering::Relaxed)
            && at_nanos < self.timer.fetch_min(at_nanos, Ordering::AcqRel)
        {
            self.io.call_at(at, self.source());
        }
    }

    fn schedule_each(&self, times: [Option<Timestamp>; 2]) {
        (times.into_iter().flatten()).for_each(|at| self.schedule(at));
    }

    /// This connection as a source that the I/O thread can call.
    pub fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LockedEnd<T>> {
        self.held.lock()
    }

    /// The token is dropped: the I/O thread owns the connection again. Returns whether it has
    /// something to do now.
    pub(super) fn give_back(&self, number: usize, way: GiveBack) -> bool {
        if !self.generation.is_same_process() {
            return false;
        }
        let mut effects = T::Effects::default();
        let mut held = self.held.lock();
        held.bells[number] = None;
        if std::mem::take(&mut held.is_shared) {
            // The other holder may be in the host's code.
            self.enter_host(&mut held, &mut effects);
            held.ring(None);
            drop(held);
            self.settle(effects);
            return false;
        }
        held.owner.give_back();
        let wants = held.end.wants();
        if way == GiveBack::Later && !wants.write && !held.end.is_over() {
            self.schedule(clock::after(HOST_PATIENCE));
        } else {
            self.watch(&mut held, &mut effects);
        }
        drop(held);
        self.settle(effects);
        wants.again == Again::Now
    }

    /// The holder enters the host's code. The I/O thread stands in after [`HOST_PATIENCE`], or at
    /// once if bytes wait to be written.
    pub(super) fn enter_host(&self, held: &mut LockedEnd<T>, effects: &mut T::Effects) {
        let now = clock::now();
        held.owner.enter_host(match held.end.wants().write {
            true => now,
            false => now.saturating_add(HOST_PATIENCE),
        });
        if held.owner.admit_io(now) {
            self.watch(held, effects);
        } else if let Some(at) = held.owner.deputy_at() {
            self.schedule(at);
        }
    }

    /// The I/O thread owns the connection: makes its epoll watch for what the connection waits for.
    fn watch(&self, held: &mut LockedEnd<T>, effects: &mut T::Effects) -> Wants {
        let wants = held.end.wants();
        self.watch_for(held, wants, effects);
        wants
    }

    fn watch_for(&self, held: &mut LockedEnd<T>, wants: Wants, effects: &mut T::Effects) {
        if held.end.is_over() {
            held.registration = None;
            return;
        }
        let interest = self.interest(wants);
        match &mut held.registration {
            Some(registration) => registration.set_interest(interest),
            None => {
                let fds = [
                    Some(Arc::clone(&self.readiness().fd)),
                    self.readiness().peer_death.clone(),
                ];
                let fds = fds.into_iter().flatten();
                match self.io.register(self.source(), fds, interest) {
                    Ok(registration) => held.registration = Some(registration),
                    Err(error) => held.end.fail(error, effects),
                }
            }
        }
        let at = match wants.again {
            Again::At(at) => Some(at),
            Again::OnEvent | Again::Now => None,
        };
        self.schedule_each([at, held.end.next_upkeep()]);
    }

    /// The events that the descriptor is watched for.
    fn interest(&self, wants: Wants) -> EventFlags {
        let socket = self.readiness().socket;
        let mut flags = EventFlags::empty();
        let (readable, writable) = wants.events(socket);
        flags.set(EventFlags::IN, readable);
        flags.set(EventFlags::OUT, writable);
        // An owner that reads nothing must still learn that the peer has ended.
        flags.set(EventFlags::RDHUP, socket && flags.is_empty());
        flags
    }

    /// An event came for a connection that the I/O thread does not own: stops watching. Epoll
    /// reports the end of the peer whatever it watches for.
    fn ignore(held: &mut LockedEnd<T>) {
        if let Some(registration) = &mut held.registration {
            if registration.interest().is_empty() {
                held.registration = None;
            } else {
                registration.set_interest(EventFlags::empty());
            }
        }
    }

    fn settle(&self, effects: T::Effects) {
        if let Some(me) = self.me.upgrade() {
            T::settle(&me, effects);
        }
    }

    /// One turn by the I/O thread, if it owns the connection. Returns whether another turn may have
    /// something to do now.
    fn turn_as_io(&self, is_first: bool) -> bool {
        let mut effects = T::Effects::default();
        let (soon, bells) = {
            let Some(mut held) = self.held.try_lock_for(UPKEEP) else {
                self.schedule(clock::after(RETRY));
                return false;
            };
            if !held.owner.admit_io(clock::now()) {
                if is_first {
                    Self::ignore(&mut held);
                }
                return false;
            }
            // An event may mean the death of the peer; the turns after the first have no event.
            let cause = match is_first {
                true => Cause::Ready,
                false => Cause::Woken,
            };
            let wants = match held.owner {
                Owner::Deputy => held.end.turn_as_deputy(cause, &mut effects),
                _ => held.end.turn(cause, &mut effects),
            };
            self.watch_for(&mut held, wants, &mut effects);
            if held.is_shared {
                held.ring(None);
            }
            (wants.again == Again::Now, held.take_bells())
        };
        ring(bells);
        self.settle(effects);
        soon
    }
}

impl<T: Turn> Drop for Link<T> {
    fn drop(&mut self) {
        // A forked child only closes its copies of the descriptors, and sends nothing.
        if self.generation.is_same_process() {
            self.held.get_mut().end.let_go();
        }
    }
}

impl<T: Turn> Source for Link<T> {
    fn ready(&self) {
        // This comes first: what arrives from now on may need another turn.
        self.is_called.store(false, Ordering::SeqCst);
        for turn in 0..CALLS_AT_ONCE {
            if !self.turn_as_io(turn == 0) {
                return;
            }
        }
        self.call_soon();
    }

    fn timer(&self) {
        // This comes first, so that work that becomes due later sets a timer of its own. A later
        // time stays.
        let now = clock::now().as_nanos();
        let due = |at| (at <= now).then_some(NEVER);
        let _ = (self.timer).fetch_update(Ordering::AcqRel, Ordering::Relaxed, due);
        let mut effects = T::Effects::default();
        let (is_io, bells) = {
            let Some(mut held) = self.held.try_lock_for(UPKEEP) else {
                return self.schedule(clock::after(RETRY));
            };
            let now = clock::now();
            // A connection that is over gets no upkeep: the upkeep that is due there stays due.
            let mut next = None;
            if !held.end.is_over() {
                held.end.upkeep(now, &mut effects);
                next = held.end.next_upkeep();
            }
            let is_io = held.owner.admit_io(now);
            self.schedule_each([next, held.owner.deputy_at()]);
            (is_io, held.take_bells())
        };
        ring(bells);
        self.settle(effects);
        if is_io {
            self.ready();
        }
    }

    fn panicked(&self) {
        let text = "a call to this connection panicked: please report this bug";
        let error = Error::new(Status::Panic, text);
        self.interfere(|end, effects| end.fail(error, effects));
    }
}
