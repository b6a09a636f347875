//! Bodies on their way to a transport, and messages between it and the state machine.

use std::os::fd::OwnedFd;

use super::{End, EndEffects};
use crate::device::cuda::GpuBody;
use crate::driver::callbacks::HostOwner;
use crate::driver::packed::PackedBody;
use crate::driver::telling;
use crate::error::{Error, Result, Status};
use crate::lines::Lines;
use crate::proto::{BodiesWork, Control, Handled, InMessage, Timestamp, Transmit};
use crate::transport::{Incoming, MemoryOwner, Outgoing, Payload, PeerRegions};

/// A packed body on its way to a transport.
pub enum Gathered {
    /// From the host.
    Host(Payload),
    /// From a GPU, over a connection whose profile allows that.
    Gpu(GpuBody),
}

/// Memory lent to the peer, dropped when it is back: blocks of regions, and the producer's array or
/// table if that is lent. Blocks go first, since they may lie in the arena of the array.
pub type LentHold = (MemoryOwner, Option<HostOwner>);

impl End {
    /// Takes a message of the stream `number` that came at `now`, and carries out what it says
    /// about the peer's memory. Closes a descriptor that came with a message that takes none. On an
    /// error the caller [closes](Self::close) the connection.
    #[inline]
    pub(super) fn handle(
        &mut self,
        (number, mut message): (u32, Incoming),
        now: Timestamp,
        effects: &mut EndEffects,
    ) -> Result<()> {
        let mut fd = None;
        let body = |seq, memory: PackedBody| InMessage::Body {
            seq,
            len: memory.len() as u64,
            memory,
        };
        // Bytes stay where they are: to move them would take as long as to read them.
        let message = match message {
            Incoming::Metadata(ref bytes) => InMessage::Metadata(&**bytes),
            Incoming::Tagged { tag, ref bytes } => InMessage::Tagged {
                tag,
                bytes: &**bytes,
            },
            Incoming::Body { seq, memory } => body(seq, PackedBody::Host(memory)),
            Incoming::GpuBody { seq, body: memory } => body(seq, PackedBody::Gpu(memory)),
            Incoming::Control {
                ref bytes,
                fd: ref mut came,
            } => {
                fd = came.take();
                InMessage::Control(&**bytes)
            }
        };
        self.stirred.add(number);
        self.attached.make_ready(number);
        let is_control = matches!(message, InMessage::Control(_));
        let handled = self.session.handle(now, number, message)?;
        if is_control && self.session.is_many() && self.awaits_schema(number) {
            // PENDING ends one deadline and begins another.
            self.keep_time(number);
        }
        match handled {
            Handled::Expect(expected) => {
                self.connection.post_body(number, expected);
                Ok(())
            }
            Handled::Memory(control) => self.learn(*control, fd, effects),
            Handled::Done => Ok(()),
        }
    }

    fn learn(
        &mut self,
        control: Control,
        fd: Option<OwnedFd>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        match control {
            Control::Region { id, handle } => {
                let map = |regions: &mut dyn PeerRegions| regions.map(id, &handle, fd);
                self.connection.with_regions(map)
            }
            Control::RegionGone { id } => self.unmap(id, effects),
            Control::Ready { seq, event, handle } => self.connection.order(seq, event, &handle),
            _ => Ok(()),
        }
    }

    /// Runs `step` for the bodies of the stream `number` that come on this connection.
    pub(super) fn work_for_bodies(
        &mut self,
        number: u32,
        work: BodiesWork,
        effects: &mut EndEffects,
    ) {
        let message = match work {
            BodiesWork::Expect(expected) => return self.connection.post_body(number, expected),
            BodiesWork::Abandoned(bodies) => return self.give_back(bodies, effects),
            BodiesWork::Request { tag, bytes } => Transmit::Request {
                tag,
                bytes: bytes.into(),
            },
            BodiesWork::Control(bytes) => Transmit::Control {
                bytes,
                region: None,
            },
        };
        let sent = self.transmit(number, message);
        self.ensure_sent(sent, effects);
    }

    /// Ends the connection if a message could not be queued.
    pub(super) fn ensure_sent(&mut self, sent: Result<()>, effects: &mut EndEffects) {
        match sent {
            Err(error) if self.reads_on() && error.status() == Status::Disconnected => {}
            Err(error) => self.close(error, effects),
            Ok(()) => {}
        }
    }

    /// Queues a message of the state machine, of the stream `number`.
    pub(super) fn transmit(&mut self, number: u32, transmit: Transmit<Gathered>) -> Result<()> {
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
        self.connection.queue(number, message)
    }
}
