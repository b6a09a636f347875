//! Bodies on their way to a transport, and messages between it and the state machine.

use super::ServerEnd;
use crate::device::cuda::GpuBody;
use crate::driver::callbacks::HostOwner;
use crate::driver::telling;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::proto::Transmit;
use crate::transport::{Incoming, Outgoing, Owner, Payload};

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

impl ServerEnd {
    pub(super) fn deliver(&mut self, message: Incoming) -> Result<()> {
        match message {
            Incoming::Tagged { tag, bytes } => Ok(self.sender.handle_tagged(tag, &bytes)?),
            Incoming::Control { bytes, fd } => {
                // A client has no regions of its own to announce.
                drop(fd);
                Ok(self.sender.handle_control(&bytes)?)
            }
            Incoming::Metadata(_) | Incoming::Body { .. } | Incoming::GpuBody { .. } => {
                Err(Error::protocol(
                    // Rule M1.
                    "the client sent a metadata or body message, which only servers send",
                ))
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
