//! Events that other processes wait for.
//!
//! They belong to the process, and are never destroyed: a client may wait for one when the connection
//! that named it is long over. A connection has some of them for its time.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::cuda::{Device, Event, Stream};
use crate::error::Result;
use crate::proto::IPC_HANDLE_BYTES;
use crate::transport::ReadyNotice;

/// Events of one connection and device; with as many messages under way, an earlier one's event is
/// recorded again, and who waits for it waits longer.
const MOST: usize = 16;

/// Those that no connection has.
static FREE: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Shared {
    device: Arc<Device>,
    event: Event,
    handle: [u8; IPC_HANDLE_BYTES],
}

/// The events of one connection.
#[derive(Debug, Default)]
pub struct Events {
    /// By their numbers.
    known: Vec<Known>,
    /// Which was recorded last.
    last: usize,
}

#[derive(Debug)]
struct Known {
    shared: Arc<Shared>,
    /// The peer has its handle.
    told: bool,
    /// Recording it has failed.
    broken: bool,
}

impl Events {
    /// Records an event behind everything given to `stream`. `None`: it has happened.
    ///
    /// # Errors
    ///
    /// What the driver says; no event is recorded then.
    pub fn record(&mut self, stream: &Stream) -> Result<Option<ReadyNotice>> {
        let number = self.next(stream.device())?;
        let Some(known) = self.known.get_mut(number) else {
            return Ok(None);
        };
        let event = &known.shared.event;
        if let Err(error) = event.record(stream) {
            known.broken = true;
            return Err(error);
        }
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

    /// The number of an event of `device` to record next: one that has happened, a new one, or the
    /// one recorded longest ago.
    fn next(&mut self, device: &Arc<Device>) -> Result<usize> {
        let usable = |known: &Known| Arc::ptr_eq(&known.shared.device, device) && !known.broken;
        let ours: Vec<usize> = (0..self.known.len())
            .filter(|number| self.known.get(*number).is_some_and(usable))
            .collect();
        let behind = ours
            .iter()
            .position(|number| *number > self.last)
            .unwrap_or(0);
        if let Some(oldest) = ours.get(behind).copied() {
            let happened = self
                .known
                .get(oldest)
                .is_some_and(|known| matches!(known.shared.event.is_ready(), Ok(true)));
            if happened || ours.len() >= MOST {
                return Ok(oldest);
            }
        }
        let shared = match take(device) {
            Some(shared) => shared,
            None => {
                let event = Event::for_processes(device)?;
                let handle = event.handle()?;
                Arc::new(Shared {
                    device: Arc::clone(device),
                    event,
                    handle,
                })
            }
        };
        self.known.push(Known {
            shared,
            told: false,
            broken: false,
        });
        Ok(self.known.len() - 1)
    }
}

fn take(device: &Arc<Device>) -> Option<Arc<Shared>> {
    let mut free = FREE.lock();
    let found = free
        .iter()
        .position(|shared| Arc::ptr_eq(&shared.device, device))?;
    Some(free.swap_remove(found))
}

impl Drop for Events {
    fn drop(&mut self) {
        // A broken one too: it is not recorded again, and a client may still wait for it.
        let (broken, sound): (Vec<_>, Vec<_>) =
            self.known.drain(..).partition(|known| known.broken);
        BROKEN
            .lock()
            .extend(broken.into_iter().map(|known| known.shared));
        FREE.lock()
            .extend(sound.into_iter().map(|known| known.shared));
    }
}

/// Those that could not be recorded.
static BROKEN: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
