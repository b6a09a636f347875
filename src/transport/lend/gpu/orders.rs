//! What a receiver must wait for before it reads bodies on a GPU (READY).

use std::sync::Arc;

use foldhash::HashMap;

use crate::device::cuda::{Device, Event};
use crate::error::{Error, Result};
use crate::proto::IPC_HANDLE_BYTES;

/// The most messages whose READY has come but whose address list has not. An honest server has far
/// fewer: each such message has a body of more than a page and lies within the window.
const MOST_WAITING: usize = 1 << 20;

/// The events that the peer has named, and the messages that wait for them.
#[derive(Debug, Default)]
pub struct Orders {
    events: HashMap<u16, Named>,
    /// Numbers of events, by the sequence numbers of the messages.
    waiting: HashMap<u32, u16>,
}

#[derive(Debug)]
struct Named {
    handle: [u8; IPC_HANDLE_BYTES],
    /// Opened when the first body that waits for it is read, because its device is unknown before.
    opened: Option<Arc<Event>>,
}

impl Orders {
    /// See [`RegionTable::order`](crate::transport::RegionTable::order).
    pub fn add(&mut self, seq: u32, event: u16, handle: &[u8]) -> Result<()> {
        let wrong = |what: String| {
            Error::protocol(format!("READY for message {seq} {what} (docs/wire.md)"))
        };
        if handle.is_empty() {
            if !self.events.contains_key(&event) {
                return Err(wrong(format!(
                    "names event {event}, of which no handle came"
                )));
            }
        } else {
            let handle = handle.try_into().map_err(|_| {
                wrong(format!(
                    "has a handle of {} bytes, not {IPC_HANDLE_BYTES}",
                    handle.len()
                ))
            })?;
            let named = Named {
                handle,
                opened: None,
            };
            if self.events.insert(event, named).is_some() {
                return Err(wrong(format!("brings a second handle of event {event}")));
            }
        }
        if self.waiting.len() >= MOST_WAITING {
            return Err(wrong(format!(
                "comes while {MOST_WAITING} others wait for their lists"
            )));
        }
        // An entry left from a cancelled stream does no harm: it adds one more wait.
        self.waiting.insert(seq, event);
        Ok(())
    }

    /// The event that the body of message `seq`, which lies on `device`, waits for.
    pub fn take(&mut self, seq: u32, device: &Arc<Device>) -> Result<Option<Arc<Event>>> {
        let Some(number) = self.waiting.remove(&seq) else {
            return Ok(None);
        };
        let Some(named) = self.events.get_mut(&number) else {
            return Ok(None);
        };
        // An event that was opened before the device was reset is lost with the reset.
        if let Some(event) = named.opened.as_ref().filter(|event| event.is_of(device)) {
            return Ok(Some(Arc::clone(event)));
        }
        let event = Event::open(device, &named.handle)
            .map_err(|error| error.context(format_args!("event {number} of the peer")))?;
        Ok(Some(Arc::clone(named.opened.insert(Arc::new(event)))))
    }

    /// The body of `seq` need not wait after all.
    pub fn forget(&mut self, seq: u32) {
        // Mostly no message waits, and then nothing is looked up.
        if !self.waiting.is_empty() {
            self.waiting.remove(&seq);
        }
    }

    /// The stream is over: forgets all messages that waited.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    /// docs/wire.md, READY: the first has a handle of 64 bytes and later ones have none.
    #[test]
    fn events_are_named_once() {
        let mut orders = Orders::default();
        let refused = |outcome: Result<()>, text: &str| {
            let error = outcome.unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            assert!(error.text().contains(text), "{error}");
        };
        refused(orders.add(1, 0, &[]), "no handle");
        refused(orders.add(1, 0, &[1; 63]), "63 bytes");
        orders.add(1, 0, &[1; 64]).unwrap();
        refused(orders.add(2, 0, &[1; 64]), "second handle");
        orders.add(2, 0, &[]).unwrap();
        refused(orders.add(2, 1, &[]), "event 1");
        orders.add(2, 1, &[2; 64]).unwrap();
    }

    /// A peer cannot make a client remember orders without end.
    #[test]
    fn what_waits_is_bounded() {
        let mut orders = Orders::default();
        orders.add(0, 0, &[1; 64]).unwrap();
        for seq in 1..u32::try_from(MOST_WAITING).unwrap() {
            orders.add(seq, 0, &[]).unwrap();
        }
        assert!(orders.add(u32::MAX, 0, &[]).is_err());
        orders.forget(7);
        orders.add(u32::MAX, 0, &[]).unwrap();
        orders.clear();
        orders.add(3, 0, &[]).unwrap();
        assert_eq!(orders.waiting.len(), 1);
    }
}
