//! The thread on which a server releases things that belong to the host.
//!
//! Releasing a producer's array, or dropping a provider, calls the host's code, which may block. An
//! I/O thread must not do that. Such a thing is therefore wrapped in a [`Deferred`]: dropping the
//! wrapper, on any thread, moves the thing here.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::arrow::{OwnedDeviceArray, view};
use crate::error::{Error, Result};
use crate::transport::MemoryOwner;

/// The queue of things to be dropped. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Callbacks {
    queue: Sender<MemoryOwner>,
    dropper: Dropper,
}

/// Who empties the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropper {
    /// The callback thread.
    Thread,
    /// The host itself: no thread of the library may call the host.
    Host,
}

impl Callbacks {
    /// Starts a thread that drops whatever arrives, until the last clone is gone.
    pub fn start() -> Result<(Self, JoinHandle<()>)> {
        let (queue, arrivals) = mpsc::channel::<MemoryOwner>();
        let thread = std::thread::Builder::new()
            .name("dipc-callbacks".into())
            .spawn(move || arrivals.into_iter().for_each(drop))
            .map_err(|error| Error::io("cannot start the callback thread", &error))?;
        let dropper = Dropper::Thread;
        Ok((Self { queue, dropper }, thread))
    }

    /// A queue that the host empties itself, by [`PullQueue::drain`] (the pull form of serving).
    pub fn pulled() -> (Self, PullQueue) {
        let (queue, arrivals) = mpsc::channel::<MemoryOwner>();
        let arrivals = Mutex::new(arrivals);
        let dropper = Dropper::Host;
        (Self { queue, dropper }, PullQueue { arrivals })
    }

    /// Waits until everything that has been given to the thread so far is dropped.
    pub fn catch_up(&self) {
        let (reached, reach) = mpsc::sync_channel::<()>(1);
        self.drop_later(MemoryOwner::One(Box::new(reached)));
        // The other end is dropped when the thread comes to it; nothing is ever sent.
        let _ = reach.recv();
    }

    /// Drops `thing` on the callback thread, or at the end of [`release_here`].
    pub fn drop_later(&self, thing: MemoryOwner) {
        let thing = match self.dropper {
            Dropper::Host => Some(thing),
            Dropper::Thread => keep_here(thing),
        };
        let Some(thing) = thing else { return };
        // A closed queue gives the thing back: the host has freed its server of the pull form, on
        // its own thread, where things may be dropped. A thread of ours, which kept the thing for a
        // client that was cut off, must not call the host.
        if let Err(unsent) = self.queue.send(thing)
            && self.dropper == Dropper::Host
            && is_ours()
        {
            tracing::warn!(
                "an array is never released: its server was freed while a client that was cut off \
                 could still read it"
            );
            let _left = std::mem::ManuallyDrop::new(unsent);
        }
    }
}

thread_local! {
    /// Things to drop at the end of [`release_here`], while this thread is in such a call.
    static HERE: RefCell<Option<Vec<MemoryOwner>>> = const { RefCell::new(None) };
}

/// Runs `step`. Things for the callback thread are then dropped on this thread, once `step` has
/// returned and holds no lock: a thread that calls the host anyway need not wake another thread. A
/// nested call leaves them to the outer call.
pub fn release_here<R>(step: impl FnOnce() -> R) -> R {
    if HERE.with_borrow(Option::is_some) {
        return step();
    }
    HERE.set(Some(Vec::new()));
    // Runs after a panic too, because the thread may go on.
    let _end = Release;
    step()
}

struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        // Taken out first: a drop may add more things.
        drop(HERE.take());
    }
}

/// Keeps `thing` until the end of [`release_here`]. Gives `thing` back if this thread is not in
/// such a call.
fn keep_here(thing: MemoryOwner) -> Option<MemoryOwner> {
    let mut thing = Some(thing);
    // The lookup fails on a thread that is ending, which is not in a call of [`release_here`].
    let _ = HERE.try_with(|here| {
        if let Some(kept) = here.borrow_mut().as_mut() {
            kept.extend(thing.take());
        }
    });
    thing
}

/// Whether this is a thread of the library: their names share a prefix.
fn is_ours() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| name.starts_with("dipc-"))
}

/// The host's end of a pull-form queue.
#[derive(Debug)]
pub struct PullQueue {
    arrivals: Mutex<Receiver<MemoryOwner>>,
}

impl PullQueue {
    /// Drops everything that has arrived, on this thread. Returns how many things that were.
    pub fn drain(&self) -> usize {
        let mut dropped = 0;
        loop {
            // The lock is not held while the host's code runs.
            let Ok(thing) = self.arrivals.lock().try_recv() else {
                return dropped;
            };
            drop(thing);
            dropped += 1;
        }
    }
}

/// Something whose drop calls the host, wherever the wrapper is dropped.
#[derive(Debug)]
pub struct Deferred<T: Send + 'static> {
    thing: ManuallyDrop<T>,
    callbacks: Callbacks,
}

impl<T: Send + 'static> Deferred<T> {
    /// Wraps `thing`.
    pub fn new(thing: T, callbacks: Callbacks) -> Self {
        let thing = ManuallyDrop::new(thing);
        Self { thing, callbacks }
    }
}

impl<T: Send + 'static> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T: Send + 'static> Drop for Deferred<T> {
    fn drop(&mut self) {
        // SAFETY: the wrapper is being dropped, so nothing uses `self.thing` after this call.
        let thing = unsafe { ManuallyDrop::take(&mut self.thing) };
        self.callbacks.drop_later(MemoryOwner::One(Box::new(thing)));
    }
}

/// A read-only view of `array` for another reader in this process. When the view is released,
/// `array` goes to `callbacks`, which releases it.
pub fn lent_array(array: OwnedDeviceArray, callbacks: Callbacks) -> OwnedDeviceArray {
    let holder = Arc::new(Deferred::new(array, callbacks));
    // SAFETY: the holder owns the array, gives it out for reading alone, and drops it as the last
    // thing.
    unsafe { view(holder.raw(), Arc::clone(&holder)) }
}

/// Keeps memory of the host's alive, as [`Deferred`] does, without an allocation of its own.
pub struct HostOwner {
    /// `None` only while being dropped.
    owner: Option<MemoryOwner>,
    /// `None`: the owner itself is deferred.
    callbacks: Option<Callbacks>,
}

impl HostOwner {
    /// Wraps `owner`, which `callbacks` will drop.
    pub fn new(owner: MemoryOwner, callbacks: Callbacks) -> Self {
        Self {
            owner: Some(owner),
            callbacks: Some(callbacks),
        }
    }

    /// One more share of a value that is deferred already.
    pub fn share<T: Send + Sync + 'static>(deferred: &Arc<Deferred<T>>) -> Self {
        Self {
            owner: Some(MemoryOwner::Shared(Arc::clone(deferred) as _)),
            callbacks: None,
        }
    }
}

impl Drop for HostOwner {
    fn drop(&mut self) {
        if let (Some(owner), Some(callbacks)) = (self.owner.take(), &self.callbacks) {
            callbacks.drop_later(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};

    struct Where(mpsc::Sender<ThreadId>);
    impl Drop for Where {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    /// design.md, "Threads": a host callback never runs on the thread that happens to drop.
    #[test]
    fn deferred_things_drop_on_the_callback_thread() {
        let (callbacks, thread) = Callbacks::start().unwrap();
        let (sender, seen) = mpsc::channel();
        drop(Deferred::new(Where(sender), callbacks.clone()));
        assert_eq!(seen.recv().unwrap(), thread.thread().id());
        drop(callbacks);
        thread.join().unwrap();
    }

    /// design.md, "Threads": a thread that calls the host anyway releases what its own step gives
    /// back, when it is done with it.
    #[test]
    fn a_thread_of_the_hosts_code_releases_for_itself() {
        let (callbacks, thread) = Callbacks::start().unwrap();
        let (sender, seen) = mpsc::channel();
        let deferred = Deferred::new(Where(sender), callbacks.clone());
        release_here(|| {
            drop(deferred);
            assert!(seen.try_recv().is_err(), "not in the middle of the step");
        });
        assert_eq!(seen.try_recv().unwrap(), thread::current().id());
        // Afterwards it is as before.
        let (sender, seen) = mpsc::channel();
        drop(Deferred::new(Where(sender), callbacks.clone()));
        assert_eq!(seen.recv().unwrap(), thread.thread().id());
        drop(callbacks);
        thread.join().unwrap();
    }

    /// Promise of [`release_here`]: a nested call releases nothing before the outer call is done,
    /// and takes nothing from the outer call; a panic ends a call.
    #[test]
    fn one_step_within_another_is_a_part_of_it() {
        let (callbacks, thread) = Callbacks::start().unwrap();
        let (sender, seen) = mpsc::channel();
        let deferred = || Deferred::new(Where(sender.clone()), callbacks.clone());
        release_here(|| {
            drop(deferred());
            release_here(|| drop(deferred()));
            drop(deferred());
            assert!(seen.try_recv().is_err(), "not in the middle of the step");
        });
        let here: Vec<_> = seen.try_iter().collect();
        assert_eq!(here, [thread::current().id(); 3]);
        let step = || release_here(|| panic!("this step panics on purpose"));
        assert!(std::panic::catch_unwind(step).is_err());
        drop(deferred());
        assert_eq!(seen.recv().unwrap(), thread.thread().id());
        drop(callbacks);
        thread.join().unwrap();
    }

    /// design.md, pull form: releases wait for the host, and then run on its thread.
    #[test]
    fn pulled_things_drop_where_the_host_drains() {
        let (callbacks, pulled) = Callbacks::pulled();
        let (sender, seen) = mpsc::channel();
        let deferred = Deferred::new(Where(sender), callbacks);
        thread::spawn(move || drop(deferred)).join().unwrap();
        assert!(seen.try_recv().is_err());
        assert_eq!(pulled.drain(), 1);
        assert_eq!(seen.recv().unwrap(), thread::current().id());
    }
}
