//! What the turns of a connection have of its streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Outbound;
use crate::driver::client_watch::ClientWatch;

/// What the turns of a connection have of one stream.
#[derive(Default)]
pub(super) struct Attached {
    /// The stream, if the turns send it.
    pub(super) outbound: Option<Box<dyn Outbound>>,
    /// The number of the stream is among those that are sent on next.
    is_ready: bool,
    /// Told when the client of the stream has gone.
    pub(super) watch: Option<Arc<ClientWatch>>,
}

/// The same of each stream, by number.
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

    /// That of the stream, which is made if there is none.
    pub(super) fn make(&mut self, number: u32) -> &mut Attached {
        match number {
            0 => &mut self.first,
            _ => self.others.entry(number).or_default(),
        }
    }

    /// Forgets what there is of a stream.
    pub(super) fn remove(&mut self, number: u32) -> Option<Attached> {
        match number {
            0 => Some(std::mem::take(&mut self.first)),
            _ => self.others.remove(&number),
        }
    }

    /// The turns are to send on this stream, if they send it.
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

    /// Takes out what there is of all streams.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Attached> + use<> {
        let all = std::mem::take(self);
        std::iter::once(all.first).chain(all.others.into_values())
    }
}
