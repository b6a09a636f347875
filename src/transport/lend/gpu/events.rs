//! Events that other processes wait for.
//!
//! They belong to the process, and are never destroyed, because a client may wait for an event
//! after the connection that named it is over. A connection borrows some of them while it lasts.
//!
//! A waiting client waits for the latest recording of the event. A new recording must not happen
//! before the old one. So an event is recorded again only if it has happened, or if the new
//! recording is later on the same stream.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::device::cuda::{Device, Event, Stream};
use crate::error::{Error, Result, Status};
use crate::proto::IPC_HANDLE_BYTES;
use crate::transport::ReadyNotice;

/// Most events of one connection and device. If more messages of a stream are under way, the event
/// of an earlier message is recorded again, and a client that waits for it waits longer.
const MOST: usize = 16;

/// Events that no connection uses.
static FREE: Mutex<Vec<SharedEvent>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct SharedEvent {
    device: Arc<Device>,
    event: Event,
    handle: [u8; IPC_HANDLE_BYTES],
}

/// The events of one connection.
#[derive(Debug, Default)]
pub struct Events {
    /// The events by their numbers.
    known: Vec<NumberedEvent>,
    /// The number of the event recorded last.
    last: usize,
}

#[derive(Debug)]
struct NumberedEvent {
    shared: SharedEvent,
    /// The peer has the event's handle.
    told: bool,
    /// Recording it has failed.
    broken: bool,
    /// The stream on which it was recorded last.
    stream: Weak<Stream>,
}

impl Events {
    /// Records an event after all work given to `stream` so far. `None`: that work is done.
    /// Errors: Those of the driver, and `OutOfResources` if every event waits for another stream's
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
        if known.shared.has_happened() {
            return Ok(None);
        }
        let handle = match std::mem::replace(&mut known.told, true) {
            true => Vec::new(),
            false => known.shared.handle.to_vec(),
        };
        let event = u16::try_from(number).unwrap_or(u16::MAX);
        Ok(Some(ReadyNotice { event, handle }))
    }

    /// The number of an event to record next on `stream`: an event that has happened, a new one, or
    /// the one that was recorded there longest ago.
    fn next(&mut self, stream: &Arc<Stream>) -> Result<usize> {
        let device = stream.device();
        let count = self.known.len();
        // Begins with the one that was recorded longest ago.
        let mut ours = (1..=count)
            .map(|behind| (self.last + behind) % count)
            .filter_map(|number| Some((number, self.known.get(number)?)))
            .filter(|(_, known)| Arc::ptr_eq(&known.shared.device, device) && !known.broken);
        if let Some((number, _)) = ours.clone().find(|(_, known)| known.shared.has_happened()) {
            return Ok(number);
        }
        if ours.clone().count() >= MOST {
            let is_here =
                |known: &NumberedEvent| std::ptr::eq(known.stream.as_ptr(), Arc::as_ptr(stream));
            let here = ours.find(|(_, known)| is_here(known));
            return here.map(|(number, _)| number).ok_or_else(|| {
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
                SharedEvent {
                    handle: event.handle()?,
                    device: Arc::clone(device),
                    event,
                }
            }
        };
        self.known.push(NumberedEvent {
            shared,
            told: false,
            broken: false,
            stream: Weak::new(),
        });
        Ok(count)
    }
}

/// A free event, for which no client waits any more.
fn take(device: &Arc<Device>) -> Option<SharedEvent> {
    let mut free = FREE.lock();
    // Nobody waits for an event that was lost in a reset.
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
        for known in self.known.drain(..) {
            if known.broken {
                // The event is not recorded again, but a client may still wait for it.
                let _left = ManuallyDrop::new(known.shared);
            } else {
                FREE.lock().push(known.shared);
            }
        }
    }
}
