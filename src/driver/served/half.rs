//! The two halves of a connection, under its lock: messages from one to the other.

use super::{
    ANSWERS_HIGH_WATER_BYTES, Gathered, HELD_HIGH_WATER_BYTES, Half, QUEUE_HIGH_WATER_BYTES,
};
use crate::driver::telling;
use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::proto::{SenderState, Transmit};
use crate::transport::{Incoming, Outgoing, Payload};

impl Half {
    /// The peer asks for one thing after the other and does not read the answers.
    pub(super) fn is_flooded(&self) -> bool {
        let most = self.stream_queued.saturating_add(ANSWERS_HIGH_WATER_BYTES);
        self.link.queued_bytes() > most && !matches!(self.sender.state(), SenderState::Streaming)
    }

    /// So much waits to be written that nothing new is to be made.
    pub(super) fn is_crowded(&self) -> bool {
        self.link.queued_bytes() > self.most_queued.min(QUEUE_HIGH_WATER_BYTES)
            || self.link.held_bytes() > HELD_HIGH_WATER_BYTES
    }

    pub(super) fn retire_regions(&mut self, ids: Vec<u16>) {
        for id in ids {
            if let Err(error) = self.sender.retire_region(id) {
                tracing::error!("region {id} cannot be retired: {error}");
            }
        }
    }

    pub(super) fn ensure_streaming(&self) -> Result<()> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        if self.cancelled {
            return Err(Error::cancelled("the client cancelled the stream"));
        }
        Ok(())
    }

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

    pub(super) fn transmit(&mut self, transmit: Transmit<Gathered>) -> Result<()> {
        let message = match transmit {
            Transmit::Metadata { prefix, header } => Outgoing::Metadata { prefix, header },
            Transmit::Control { bytes, region } => {
                let fd = region.and_then(|id| self.announced.remove(&id));
                Outgoing::Control { bytes, fd }
            }
            Transmit::Body { tag, packed } => match packed {
                Gathered::Host { parts, owner } => Outgoing::Tagged {
                    tag,
                    payload: Payload::Gather { parts, owner },
                },
                Gathered::Gpu(body) => Outgoing::GpuBody { tag, body },
                Gathered::Copied(bytes) => Outgoing::Tagged {
                    tag,
                    payload: Payload::Bytes(bytes),
                },
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
        telling::sent(&*self.link, &message);
        self.link.queue(message)
    }
}
