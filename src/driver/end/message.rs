//! Bodies on their way to a transport, and messages between it and the state machine.

use std::os::fd::OwnedFd;

use super::{End, EndEffects};
use crate::device::cuda::GpuBody;
use crate::driver::callbacks::HostOwner;
use crate::driver::telling;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::proto::{Handled, InMessage, PeerMemory, Transmit};
use crate::transport::{Incoming, Outgoing, Owner, Payload, PeerRegions};

/// A packed body on its way to a transport.
pub enum Gathered {
    /// From the host.
    Host(Payload),
    /// From a GPU, over a connection whose profile allows that.
    Gpu(GpuBody),
}

/// Memory lent to the peer, dropped when it is back: blocks of regions, and the producer's array or
/// table if that is lent. Blocks go first, since they may lie in the arena of the array.
pub type LentHold = (Owner, Option<HostOwner>);

impl End {
    /// Takes a message that has come, and does what it tells of the peer's memory. A descriptor
    /// that came with another message is closed. On an error the caller [closes](Self::close) the
    /// connection.
    pub fn handle(&mut self, message: &mut Incoming, effects: &mut EndEffects) -> Result<Handled> {
        let mut fd = None;
        let message = match message {
            Incoming::Metadata(_) => InMessage::Metadata,
            Incoming::Body { .. } | Incoming::GpuBody { .. } => InMessage::Body,
            Incoming::Tagged { tag, bytes } => InMessage::Tagged { tag: *tag, bytes },
            Incoming::Control { bytes, fd: came } => {
                fd = came.take();
                InMessage::Control(bytes)
            }
        };
        match self.session.handle(message)? {
            Handled::Memory(memory) => self.learn(memory, fd, effects).map(|()| Handled::Done),
            handled => Ok(handled),
        }
    }

    fn learn(
        &mut self,
        memory: PeerMemory,
        fd: Option<OwnedFd>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        match memory {
            PeerMemory::Region { id, handle } => {
                let map = |regions: &mut dyn PeerRegions| regions.map(id, &handle, fd);
                self.connection.with_regions(map)
            }
            PeerMemory::RegionGone { id } => self.retire_peers_region(id, effects),
            PeerMemory::Ready { seq, event, handle } => {
                let order = |regions: &mut dyn PeerRegions| regions.order(seq, event, &handle);
                self.connection.with_regions(order)
            }
        }
    }

    /// Queues a message of the state machine.
    pub(super) fn transmit(&mut self, transmit: Transmit<Gathered>) -> Result<()> {
        let message = match transmit {
            Transmit::Metadata { prefix, header } => Outgoing::Metadata { prefix, header },
            Transmit::Control { bytes, region } => {
                let fd = region.and_then(|id| self.announced.remove(&id));
                Outgoing::Control { bytes, fd }
            }
            Transmit::Request { tag, bytes } => Outgoing::Tagged {
                tag,
                payload: Payload::Bytes(bytes),
            },
            Transmit::Body { tag, packed } => match packed {
                Gathered::Host(payload) => Outgoing::Tagged { tag, payload },
                Gathered::Gpu(body) => Outgoing::GpuBody { tag, body },
            },
            Transmit::List { tag, bytes } => Outgoing::Tagged {
                tag,
                payload: Payload::Bytes(bytes),
            },
            Transmit::Disconnect { reason } => {
                static SAID: Lines = Lines::new();
                SAID.say(|more| {
                    tracing::warn!("a baseline peer is disconnected: {reason}{more}"); // Rule E7
                });
                return Err(Error::protocol(reason));
            }
        };
        telling::sent(&*self.connection, &message);
        self.connection.queue(message)
    }
}
