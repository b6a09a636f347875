//! What the turns of a connection keep for each of its streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Outbound;
use crate::driver::client_watch::ClientWatch;

/// What the turns of a connection keep for one stream.
#[derive(Default)]
pub(super) struct Attached {
    /// The stream, if the turns send it.
    pub(super) outbound: Option<Box<dyn Outbound>>,
    /// The stream is in the queue of streams to send on.
    is_ready: bool,
    /// Told when the client of the stream has gone.
    pub(super) watch: Option<Arc<ClientWatch>>,
}

/// All of these, by the number of the stream.
#[derive(Default)]
pub(super) struct AttachedStreams {
    first: Attached,
    others: BTreeMap<u32, Attached>,
    /// Streams that the turns send, and that may have something to send.
    ready: VecDeque<u32>,
}

impl AttachedStreams {
    pub(super) fn get(&self, number: u32) -> Option<&Attached> {
        match number {
            0 => Some(&self.first),
            _ => self.others.get(&number),
        }
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Attached> {
        match number {
            0 => Some(&mut self.first),
            _ => self.others.get_mut(&number),
        }
    }

    /// The entry of the stream, made if there is none.
    pub(super) fn make(&mut self, number: u32) -> &mut Attached {
        match number {
            0 => &mut self.first,
            _ => self.others.entry(number).or_default(),
        }
    }

    /// Removes the entry of a stream.
    pub(super) fn remove(&mut self, number: u32) -> Option<Attached> {
        match number {
            0 => Some(std::mem::take(&mut self.first)),
            _ => self.others.remove(&number),
        }
    }

    /// Queues the stream for sending, if the turns send this stream.
    pub(super) fn make_ready(&mut self, number: u32) {
        if let Some(attached) = self.get_mut(number)
            && attached.outbound.is_some()
            && !std::mem::replace(&mut attached.is_ready, true)
        {
            self.ready.push_back(number);
        }
    }

    /// How many streams may have something to send.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Takes the next stream to send on.
    pub(super) fn take_ready(&mut self) -> Option<(u32, Box<dyn Outbound>)> {
        loop {
            let number = self.ready.pop_front()?;
            if let Some(attached) = self.get_mut(number) {
                attached.is_ready = false;
                if let Some(outbound) = attached.outbound.take() {
                    return Some((number, outbound));
                }
            }
        }
    }

    /// Takes out the entries of all streams.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Attached> + use<> {
        let all = std::mem::take(self);
        std::iter::once(all.first).chain(all.others.into_values())
    }
}
