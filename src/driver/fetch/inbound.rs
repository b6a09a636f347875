//! The state machine of one stream on its way in, and the messages between it and its connections.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Sides;
use super::packed::PackedBody;
use super::returns::LentBody;
use crate::driver::clock;
use crate::driver::end::EndEffects;
use crate::driver::end::{End, EndLink};
use crate::driver::turning::Budget;
use crate::driver::waiting::Wants;
use crate::error::{Error, Result};
use crate::proto::{
    Body, BodyKind, Control, Handled, Header, InBody, Message, Receiver, ReceiverEvent,
    ReceiverState, ReceiverTransmit, Side, StreamInfo, Timestamp, body_tag,
};
use crate::transport::{Incoming, Outgoing, Payload, Resolved};

/// A stream on its way in.
pub(super) struct Inbound {
    pub(super) receiver: Receiver<PackedBody>,
    /// What the server has said of the stream.
    pub(super) info: Option<StreamInfo>,
    pub(super) schema: Option<Arc<Header>>,
    pub(super) links: Sides<Arc<EndLink>>,
    queues: [SideQueue; 2],
}

#[derive(Default)]
struct SideQueue {
    /// Messages that wait for the connection's lock.
    outgoing: SmallVec<[Outgoing; 2]>,
    /// The connection is over: there is nothing to read.
    has_ended: bool,
}

/// A message that the consumer takes.
pub(super) struct Taken {
    pub(super) header: Header,
    pub(super) body: TakenBody,
}

pub(super) enum TakenBody {
    /// It came through the connection.
    Packed(PackedBody),
    /// It lies in memory of the server's.
    Lent {
        len: u64,
        /// Gives it back, also where its memory cannot be read.
        lent: LentBody,
        memory: Result<Resolved>,
    },
}

impl Inbound {
    /// A stream that comes in over `links`.
    pub(super) fn new(receiver: Receiver<PackedBody>, links: Sides<Arc<EndLink>>) -> Self {
        Self {
            receiver,
            info: None,
            schema: None,
            links,
            queues: Default::default(),
        }
    }

    fn has_one_link(&self) -> bool {
        self.links.data.is_none()
    }

    /// One turn of a connection: says what is to be said, and reads what may be read and `budget`
    /// allows. Returns how many messages there were.
    pub(super) fn turn(
        &mut self,
        side: Side,
        end: &mut End,
        budget: Budget,
        effects: &mut EndEffects,
    ) -> usize {
        self.say(side, end, effects);
        let read = match self.read(side, end, budget, effects) {
            Ok(0) => return 0,
            Ok(read) => read,
            Err(error) => {
                self.queues[side as usize].has_ended = true;
                self.receiver.handle_disconnect(side, &error);
                end.close(error, effects);
                1
            }
        };
        if self.receiver.is_over_on_wire() {
            end.incoming_over(effects);
        }
        self.say(side, end, effects);
        read
    }

    /// Sends what the machine wants sent on this connection, and takes up what it tells.
    pub(super) fn say(&mut self, side: Side, end: &mut End, effects: &mut EndEffects) {
        self.collect();
        if side == self.links.of_bodies() {
            self.take_up(end);
        }
        // Lent bodies that nobody will see.
        let abandoned = self.receiver.abandoned();
        self.links.bodies().free_later(abandoned);
        let queue = &mut self.queues[side as usize];
        if queue.outgoing.is_empty() {
            end.write_on(effects);
        } else if let Some(error) = end.closed() {
            queue.outgoing.clear();
            if !end.session.has_early() {
                self.receiver.handle_disconnect(side, error);
            }
        } else {
            end.say(queue.outgoing.drain(..), effects);
        }
    }

    pub(super) fn collect(&mut self) {
        while let Some(transmit) = self.receiver.poll_transmit() {
            let (to, message) = match transmit {
                ReceiverTransmit::Tagged { side, tag, bytes } => {
                    let payload = Payload::Bytes(bytes.into());
                    (side, Outgoing::Tagged { tag, payload })
                }
                ReceiverTransmit::Control { side, bytes } => {
                    (side, Outgoing::Control { bytes, fd: None })
                }
            };
            self.queues[to as usize].outgoing.push(message);
        }
    }

    /// Whether collected messages wait for a connection's lock.
    pub(super) fn has_outgoing(&self) -> bool {
        self.queues.iter().any(|queue| !queue.outgoing.is_empty())
    }

    /// Takes up what the machine tells.
    fn take_up(&mut self, end: &mut End) {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Stream { info, .. } => self.info = Some(info),
                ReceiverEvent::Schema(header) => self.schema = Some(Arc::new(header)),
                ReceiverEvent::Expect { seq, packed, list } => {
                    end.connection.post_body(seq, packed, list)
                }
                // Regions belong to the connection, which has dealt with them.
                ReceiverEvent::Region { .. } | ReceiverEvent::RegionGone { .. } => {}
            }
        }
    }

    fn read(
        &mut self,
        side: Side,
        end: &mut End,
        budget: Budget,
        effects: &mut EndEffects,
    ) -> Result<usize> {
        // The clock is read once for all messages, and not where there is none.
        let (mut read, mut bytes, mut now) = (0, 0, None);
        while read < budget.messages && bytes < budget.bytes && self.may_read(side) {
            if let Some(early) = end.session.take_early() {
                bytes += early.message.held_bytes();
                if early.control.is_some() {
                    end.pump_own(effects);
                }
                let now = *now.get_or_insert_with(clock::now);
                self.deliver(side, end, (early.message, early.control), now);
                read += 1;
                continue;
            }
            let (mut received, mut control) = (end.receive(budget.asks_for_death), None);
            if let Ok(Some(message)) = &mut received {
                let handled = end.handle(message, effects);
                // ERROR and ABORT concern both streams of an exchange.
                if matches!(message, Incoming::Control { .. })
                    || matches!(handled, Ok(Handled::Done))
                {
                    end.pump_own(effects);
                }
                match handled {
                    Ok(Handled::Stream(of_stream)) => control = of_stream,
                    Ok(_) => {
                        read += 1;
                        continue;
                    }
                    Err(error) => received = Err(error),
                }
            }
            match received {
                Ok(Some(message)) => {
                    bytes += message.held_bytes();
                    let now = *now.get_or_insert_with(clock::now);
                    self.deliver(side, end, (message, control), now);
                }
                Ok(None) if end.connection.is_waiting() && self.is_broken() => {
                    end.connection.forget_bodies()
                }
                Ok(None) if end.connection.is_waiting() && self.has_one_link() => {
                    return Err(Error::protocol(
                        // Rule D1.
                        "a large body came before its header, on one connection",
                    ));
                }
                Ok(None) => break,
                // What came before it counts first.
                Err(error) if read > 0 => {
                    end.close(error, effects);
                    break;
                }
                Err(error) => return Err(error),
            }
            read += 1;
        }
        Ok(read)
    }

    fn deliver(
        &mut self,
        side: Side,
        end: &mut End,
        (message, control): (Incoming, Option<Control>),
        now: Timestamp,
    ) {
        // An error is kept by the machine, which is closed by it.
        match message {
            Incoming::Metadata(bytes) => drop(self.receiver.handle_metadata(now, &bytes)),
            Incoming::Control { .. } => {
                let handle = |control| self.receiver.handle(now, side, control);
                drop(control.map(handle));
            }
            Incoming::Tagged { tag, bytes } => {
                drop(self.receiver.handle_body(now, tag, InBody::List(&bytes)));
            }
            Incoming::Body { seq, memory } => {
                self.deliver_packed(now, seq, PackedBody::Host(memory))
            }
            Incoming::GpuBody { seq, body } => self.deliver_packed(now, seq, PackedBody::Gpu(body)),
        }
        if self.has_one_link() {
            // Rule D8: before the next message, which may be the body.
            self.take_up(end);
        }
    }

    fn deliver_packed(&mut self, now: Timestamp, seq: u32, memory: PackedBody) {
        let tag = body_tag(seq, BodyKind::Packed);
        let len = memory.len() as u64;
        let body = InBody::Packed { len, memory };
        drop(self.receiver.handle_body(now, tag, body));
    }

    fn may_read(&self, side: Side) -> bool {
        if self.queues[side as usize].has_ended {
            return false;
        }
        match self.receiver.state() {
            // The answer that lent bodies wait for may be behind them.
            ReceiverState::Ended => {
                side == Side::Data && self.receiver.is_held_up() && self.receiver.may_read(side)
            }
            ReceiverState::Failed | ReceiverState::Cancelled => !self.receiver.is_over_on_wire(),
            ReceiverState::Requested | ReceiverState::AwaitingSchema | ReceiverState::Streaming => {
                self.receiver.may_read(side)
            }
        }
    }

    fn is_broken(&self) -> bool {
        matches!(
            self.receiver.state(),
            ReceiverState::Failed | ReceiverState::Cancelled
        )
    }

    /// What the stream waits for on this connection.
    pub(super) fn wants(&self, side: Side, end: &mut End) -> Wants {
        // Messages that may not be read now must not end a sleep.
        let read = self.may_read(side) && !end.connection.is_waiting();
        Wants {
            read,
            write: end.is_writing(),
            at: None,
            soon: end.doze() && read,
        }
    }

    /// Whether the consumer can take a message without reading.
    pub(super) fn has_message(&self) -> bool {
        self.receiver.waiting() > 0 && !self.receiver.is_held_up()
    }

    /// The next message for the consumer, if it is there. `end` is the connection of the bodies.
    pub(super) fn take(&mut self, end: &mut End, effects: &mut EndEffects) -> Option<Taken> {
        let Message { seq, header, body } = self.receiver.next_message()?;
        let body = match body {
            Body::Packed(memory) => TakenBody::Packed(memory),
            Body::Lent(spans) => TakenBody::Lent {
                len: spans.iter().map(|span| span.length).sum(),
                lent: LentBody::new(self.links.bodies(), self.receiver.to_return(seq, &spans)),
                memory: (end.connection).with_regions(|regions| regions.resolve(seq, spans)),
            },
        };
        // Credit, and perhaps an end, follow from taking it.
        self.say(self.links.of_bodies(), end, effects);
        Some(Taken { header, body })
    }

    /// Whether the server has said its last word on this stream, so that its connection can serve
    /// another. No lock of a connection is held.
    pub(super) fn is_settled(&self) -> bool {
        self.is_said() && !self.is_cut()
    }

    /// Whether a connection is over. The I/O thread turns it no more.
    pub(super) fn is_cut(&self) -> bool {
        let is_closed = |link: &Arc<EndLink>| link.look(|end| end.closed().is_some());
        self.links.iter().any(is_closed)
    }

    /// Whether nothing more of the stream can come.
    fn is_said(&self) -> bool {
        let is_ordered = self.links.iter().all(|link| link.profile().is_ordered);
        self.receiver.is_over_on_wire() && (is_ordered || self.receiver.is_whole())
    }

    /// Whether the I/O thread need not read on: nothing more can come, or nothing more is wanted.
    pub(super) fn is_over(&self) -> bool {
        // A client's last word is enough: what is missing is on its way to nobody.
        let is_last = self.receiver.is_of_client() && self.receiver.is_over_on_wire();
        self.is_said() || is_last || self.queues.iter().any(|queue| queue.has_ended)
    }

    /// Whether the connections can serve no other stream: the server broke a rule or said nothing
    /// in time, or the stream did not come to its end on a connection that keeps no order. The rest
    /// of it could come between the messages of the next stream.
    pub(super) fn is_faulty(&self) -> bool {
        if self.receiver.is_of_client() {
            // It is waited for, so that it reads the server's last word.
            return self.receiver.is_peer_at_fault() || self.queues.iter().any(|it| it.has_ended);
        }
        let failed = self.receiver.state() == ReceiverState::Failed;
        let is_unordered = self.links.iter().any(|link| !link.profile().is_ordered);
        (failed && !self.receiver.is_over_on_wire()) || (is_unordered && !self.is_settled())
    }

    /// Cuts the connections. Arrays handed out stay valid. No lock of a connection is held.
    pub(super) fn close(&self) {
        for link in self.links.iter() {
            link.interfere(|end, effects| end.close(cut(), effects));
        }
    }
}

fn cut() -> Error {
    Error::cancelled("the stream on this connection has failed")
}
