//! Bodies on their way to a transport, and messages between it and the state machine.

use std::os::fd::OwnedFd;

use super::{End, EndEffects};
use crate::device::cuda::GpuBody;
use crate::driver::callbacks::HostOwner;
use crate::driver::telling;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::proto::{Control, Transmit, body_of_tag, is_answer};
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
    /// Takes a message that concerns the connection, or what this side sends. Returns whether the
    /// message was one of them: any other concerns the stream that comes in. A descriptor that came
    /// with another message is closed. On an error the caller [closes](Self::close) the connection.
    pub fn handles(&mut self, message: &mut Incoming, effects: &mut EndEffects) -> Result<bool> {
        match message {
            Incoming::Tagged { tag, bytes } => {
                let is_body = self.receives && body_of_tag(*tag).is_some();
                let is_own = !is_body && (self.is_server || self.sender.takes(*tag));
                if is_own {
                    self.sender.handle_tagged(*tag, bytes)?;
                }
                Ok(is_own)
            }
            Incoming::Control { bytes, fd } => {
                let fd = fd.take();
                // Rule E3: unknown kinds are ignored.
                match Control::decode(bytes)? {
                    Some(control) => self.handles_control(&control, fd, effects),
                    None => Ok(true),
                }
            }
            Incoming::Metadata(_) | Incoming::Body { .. } | Incoming::GpuBody { .. } => Ok(false),
        }
    }

    fn handles_control(
        &mut self,
        control: &Control,
        fd: Option<OwnedFd>,
        effects: &mut EndEffects,
    ) -> Result<bool> {
        match control {
            Control::Region { id, handle } if self.receives => {
                let map = |regions: &mut dyn PeerRegions| regions.map(*id, handle, fd);
                self.connection.with_regions(map)?;
            }
            Control::RegionGone { id } if self.receives => {
                self.retire_peers_region(*id, effects)?;
            }
            Control::Ready { seq, event, handle } if self.receives => {
                let order = |regions: &mut dyn PeerRegions| regions.order(*seq, *event, handle);
                self.connection.with_regions(order)?;
            }
            Control::GoAway if !self.is_server => self.is_dismissed = true,
            Control::Abort { .. } if self.may_overtake_request() => return Ok(false),
            Control::Abort { .. } if self.receives => {
                // The stream that comes in ends with it, too.
                self.sender.handle(control)?;
                effects.lost.clone_from(&self.watch);
                return Ok(false);
            }
            Control::Credit { .. } | Control::Return { .. } | Control::RegionForgotten { .. }
                if self.sender.is_extension() =>
            {
                self.sender.handle(control)?;
            }
            _ if self.is_server => self.sender.handle(control)?,
            Control::Error { .. } if self.sender.is_asking() => {
                // Rule Q5: it ends both streams of an exchange.
                self.sender.handle(control)?;
                return Ok(!self.is_receiving);
            }
            _ if self.sender.is_asking() && is_answer(control) => self.sender.handle(control)?,
            _ => return Ok(false),
        }
        Ok(true)
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
