//! Bodies that the server has lent: where they lie here, and how they go back.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::arrow::decode::ReceivedBody;
use crate::bare::{MessageClass, WireMessage};
use crate::device::BufferRef;
use crate::error::{Error, Result};
use crate::proto::{FreeMessage, FreeQueue, Return, Span, Timestamp};

/// Memory of the server that this process can read.
pub struct OpenMemory {
    /// The memory in this process.
    pub memory: BufferRef,
    /// Keeps the memory alive. Dropped when neither the receiver nor an array needs it any more.
    pub owner: Arc<dyn Any + Send + Sync>,
}

/// The server's memory that this process can read, and the bodies in it.
pub(super) struct LentMemory {
    /// By the server's address.
    known: BTreeMap<u64, OpenMemory>,
    returns: Arc<ReturnQueue>,
}

/// Lent bodies that go back to the server. Arrays add to it, on any thread.
struct ReturnQueue {
    queue: Mutex<PendingReturns>,
    /// Number of addresses that arrays hold.
    held: AtomicUsize,
}

struct PendingReturns {
    /// `None` if the server's URI has no `free_data`; then the server lends nothing.
    frees: Option<FreeQueue>,
    /// Returns since the last poll. Only a poll knows the time.
    fresh: Vec<Return>,
}

impl ReturnQueue {
    fn give_back(&self, bodies: impl IntoIterator<Item = Return>) {
        let mut queue = self.queue.lock();
        if queue.frees.is_some() {
            queue.fresh.extend(bodies);
        }
    }
}

/// A lent body. It goes back when its last array is released (rule F1).
struct HeldBody {
    /// The return to send; `None` if all buffers are empty.
    back: Option<Return>,
    /// Number of addresses in its list.
    addresses: usize,
    returns: Arc<ReturnQueue>,
    _owners: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.returns.give_back(self.back.take());
        self.returns
            .held
            .fetch_sub(self.addresses, Ordering::Relaxed);
    }
}

impl LentMemory {
    /// At first no memory of the server can be read. `free_data` is the tag of the server's URI.
    pub(super) fn new(free_data: Option<u64>) -> Self {
        let queue = PendingReturns {
            frees: free_data.map(FreeQueue::new),
            fresh: Vec::new(),
        };
        Self {
            known: BTreeMap::new(),
            returns: Arc::new(ReturnQueue {
                queue: Mutex::new(queue),
                held: AtomicUsize::new(0),
            }),
        }
    }

    /// Adds a range of the server's addresses.
    ///
    /// # Safety
    ///
    /// As [`BareReceiver::add_memory`](super::BareReceiver::add_memory).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an empty range, an overlap with an earlier range, or a range past the
    /// last address.
    pub(super) unsafe fn add(&mut self, address: u64, lendable: OpenMemory) -> Result<()> {
        let len = lendable.memory.len as u64;
        let end = address
            .checked_add(len)
            .filter(|_| address > 0 && len > 0)
            .ok_or_else(|| {
                Error::invalid_argument("memory at address 0, empty, or past the end")
            })?;
        let before = self.known.range(..end).next_back();
        if before.is_some_and(|(start, known)| start + known.memory.len as u64 > address) {
            return Err(Error::invalid_argument("the range overlaps an earlier one"));
        }
        self.known.insert(address, lendable);
        Ok(())
    }

    /// Bodies that nobody uses go back.
    pub(super) fn give_back(&self, bodies: Vec<Return>) {
        self.returns.give_back(bodies);
    }

    /// Number of addresses that arrays hold or that wait to be sent back.
    pub(super) fn outstanding(&self) -> usize {
        let queue = self.returns.queue.lock();
        let waiting = queue
            .frees
            .as_ref()
            .is_some_and(|frees| frees.deadline().is_some());
        self.returns.held.load(Ordering::Relaxed) + queue.fresh.len() + usize::from(waiting)
    }

    /// The next return to send.
    pub(super) fn poll(&self, now: Timestamp) -> Option<WireMessage> {
        let mut queue = self.returns.queue.lock();
        let fresh = std::mem::take(&mut queue.fresh);
        let frees = queue.frees.as_mut()?;
        for body in &fresh {
            frees.push(now, body);
        }
        Some(match frees.poll(now)? {
            // Rule F5
            FreeMessage::Tagged { tag, bytes } => {
                WireMessage::of_bytes(MessageClass::Tagged, tag, bytes)
            }
            FreeMessage::Control { bytes, .. } => {
                WireMessage::of_bytes(MessageClass::Control, 0, bytes)
            }
        })
    }

    /// When the next poll is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let queue = self.returns.queue.lock();
        if !queue.fresh.is_empty() {
            // The time of rule F5 begins with the next poll, which knows the clock.
            return Some(Timestamp::from_nanos(0));
        }
        queue.frees.as_ref().and_then(FreeQueue::deadline)
    }

    /// Finds the memory of a lent body. The body goes back when the result is dropped, or at once
    /// if an address is unknown.
    pub(super) fn find(&self, back: Option<Return>, spans: &[Span]) -> Result<ReceivedBody> {
        let addresses = spans.iter().filter(|span| span.length > 0).count();
        self.returns.held.fetch_add(addresses, Ordering::Relaxed);
        let mut held = HeldBody {
            back,
            addresses,
            returns: Arc::clone(&self.returns),
            _owners: Vec::new(),
        };
        let mut buffers = Vec::with_capacity(spans.len());
        for span in spans {
            if span.length == 0 {
                buffers.push(BufferRef::EMPTY);
                continue;
            }
            let (buffer, owner) = self.look_up(span).ok_or_else(|| {
                Error::protocol(format!(
                    "{} bytes at address {:#x} are not in memory that can be read here",
                    span.length, span.address
                ))
            })?;
            buffers.push(buffer);
            held._owners.push(owner);
        }
        // SAFETY: each buffer lies inside memory that `look_up` knows by `add`, whose caller
        // promised that it can be read on the host until its owner, now in `held`, is dropped, and
        // that only the server writes to it.
        Ok(unsafe { ReceivedBody::new(buffers, Arc::new(held), true) })
    }

    fn look_up(&self, span: &Span) -> Option<(BufferRef, Arc<dyn Any + Send + Sync>)> {
        let (start, known) = self.known.range(..=span.address).next_back()?;
        let offset = usize::try_from(span.address - start).ok()?;
        let len = usize::try_from(span.length).ok()?;
        if offset.checked_add(len)? > known.memory.len {
            return None;
        }
        let data = known.memory.data.wrapping_add(offset);
        Some((BufferRef { data, len }, Arc::clone(&known.owner)))
    }
}
