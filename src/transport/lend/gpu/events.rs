//! Events that other processes wait for.
//!
//! They belong to the process, and are never destroyed: a client may wait for one when the
//! connection that named it is long over. A connection has some of them for its time.
//!
//! Who waits for an event waits for what it stands for now. So one is recorded again only where
//! that is no sooner than before: when it has happened, or behind it on the same stream.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::device::cuda::{Device, Event, Stream};
use crate::error::{Error, Result, Status};
use crate::proto::IPC_HANDLE_BYTES;
use crate::transport::ReadyNotice;

/// Events of one connection and device; with as many messages of a stream under way, an earlier
/// one's event is recorded again, and who waits for it waits longer.
const MOST: usize = 16;

/// Those that no connection has.
static FREE: Mutex<Vec<Arc<SharedEvent>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct SharedEvent {
    device: Arc<Device>,
    event: Event,
    handle: [u8; IPC_HANDLE_BYTES],
}

/// The events of one connection.
#[derive(Debug, Default)]
pub struct Events {
    /// By their numbers.
    known: Vec<NumberedEvent>,
    /// Which was recorded last.
    last: usize,
}

#[derive(Debug)]
struct NumberedEvent {
    shared: Arc<SharedEvent>,
    /// The peer has its handle.
    told: bool,
    /// Recording it has failed.
    broken: bool,
    /// Where it was recorded last.
    stream: Weak<Stream>,
}

impl Events {
    /// Records an event behind everything given to `stream`. `None`: it has happened.
    ///
    /// # Errors
    ///
    /// What the driver says, and `OutOfResources` where every event waits for another stream's
    /// work; no event is recorded then.
    pub fn record(&mut self, stream: &Arc<Stream>) -> Result<Option<ReadyNotice>> {
        let number = self.next(stream)?;
        let Some(known) = self.known.get_mut(number) else {
            return Ok(None);
        };
        let event = &known.shared.event;
        if let Err(error) = event.record(stream) {
            known.broken = true;
            return Err(error);
        }
        known.stream = Arc::downgrade(stream);
        self.last = number;
        if matches!(event.is_ready(), Ok(true)) {
            return Ok(None);
        }
        let handle = if std::mem::replace(&mut known.told, true) {
            Vec::new()
        } else {
            known.shared.handle.to_vec()
        };
        let event = u16::try_from(number).unwrap_or(u16::MAX);
        Ok(Some(ReadyNotice { event, handle }))
    }

    /// The number of an event to record next on `stream`: one that has happened, a new one, or the
    /// one recorded there longest ago.
    fn next(&mut self, stream: &Arc<Stream>) -> Result<usize> {
        let device = stream.device();
        let usable =
            |known: &NumberedEvent| Arc::ptr_eq(&known.shared.device, device) && !known.broken;
        let of_device = |number: &usize| self.known.get(*number).is_some_and(usable);
        // From the one recorded longest ago on.
        let count = self.known.len();
        let behind = (self.last + 1).min(count);
        let ours: Vec<usize> = (behind..count).chain(0..behind).filter(of_device).collect();
        let known = |number: &usize| self.known.get(*number);
        if let Some(oldest) = ours.first()
            && known(oldest).is_some_and(|known| known.shared.has_happened())
        {
            return Ok(*oldest);
        }
        if ours.len() >= MOST {
            let is_over = |number: &&usize| known(number).is_some_and(|k| k.shared.has_happened());
            let is_here =
                |known: &NumberedEvent| std::ptr::eq(known.stream.as_ptr(), Arc::as_ptr(stream));
            let here = |number: &&usize| known(number).is_some_and(is_here);
            let found = ours.iter().find(is_over).or_else(|| ours.iter().find(here));
            return found.copied().ok_or_else(|| {
                Error::new(
                    Status::OutOfResources,
                    "every event of the connection waits for work on another stream",
                )
            });
        }
        let shared = match take(device) {
            Some(shared) => shared,
            None => {
                let event = Event::for_processes(device)?;
                let handle = event.handle()?;
                Arc::new(SharedEvent {
                    device: Arc::clone(device),
                    event,
                    handle,
                })
            }
        };
        self.known.push(NumberedEvent {
            shared,
            told: false,
            broken: false,
            stream: Weak::new(),
        });
        Ok(self.known.len() - 1)
    }
}

/// One that is free, and for which nobody waits any more.
fn take(device: &Arc<Device>) -> Option<Arc<SharedEvent>> {
    let mut free = FREE.lock();
    free.retain(|shared| !shared.device.is_lost());
    let found = free
        .iter()
        .position(|shared| Arc::ptr_eq(&shared.device, device) && shared.has_happened())?;
    Some(free.swap_remove(found))
}

impl SharedEvent {
    fn has_happened(&self) -> bool {
        matches!(self.event.is_ready(), Ok(true))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // What a reset took is waited for by nobody.
        let here = |known: &NumberedEvent| !known.shared.device.is_lost();
        // A broken one too: it is not recorded again, and a client may still wait for it.
        let (broken, sound): (Vec<_>, Vec<_>) = self
            .known
            .drain(..)
            .filter(here)
            .partition(|known| known.broken);
        let mut kept = BROKEN.lock();
        kept.retain(|shared| !shared.device.is_lost());
        kept.extend(broken.into_iter().map(|known| known.shared));
        drop(kept);
        FREE.lock()
            .extend(sound.into_iter().map(|known| known.shared));
    }
}

/// Those that could not be recorded.
static BROKEN: Mutex<Vec<Arc<SharedEvent>>> = Mutex::new(Vec::new());
