//! Where a stream goes: one connection, or two (rule U3: metadata and bodies may go to different
//! connections).

use std::sync::Arc;
use std::time::Duration;

use super::body::{BodyRoom, Carrier, Figures, Placed, Ready, place, room_for};
use super::{ProduceOptions, device_in_transit};
use crate::arrow::EncodedMessage;
use crate::driver::callbacks::{HostOwner, release_here};
use crate::driver::serve::{Effects, Gathered, Hold, Room, ServerEnd, Writes};
use crate::driver::telling::Account;
use crate::driver::turning::{Budget, Turner};
use crate::driver::waiting::OPENING_PATIENCE;
use crate::error::Result;
use crate::proto::{HeaderKind, OutBody, Role, Sender, StreamInfo};
use crate::transport::Owner;

/// A word of a stream; streams say these in order.
#[derive(Clone)]
pub(super) enum StreamItem {
    Schema { header: Arc<[u8]>, info: StreamInfo },
    Message(EncodedMessage),
    End,
    Failed { status: i32, text: String },
}

/// How far one part of a stream has come.
pub(super) struct Outlet {
    pub(super) role: Role,
    /// `None` for the part that has not come to this server.
    pub(super) turner: Option<Turner<ServerEnd>>,
    carrier: Carrier,
    /// Room behind the last step.
    pub(super) room: Room,
    /// Number of the next item to send.
    pub(super) next: u64,
    /// A message that came from the log, and whose body turned out to need room that there was not.
    waiting: Option<Ready>,
    /// The end, or an error, was sent: whatever the connection carries next is not this stream.
    pub(super) done: bool,
    /// How long the I/O thread leaves the connection to a producer that is in the host's code.
    pub(super) patience: Duration,
}

impl Outlet {
    pub(super) fn new(role: Role, turner: Option<Turner<ServerEnd>>, next: u64) -> Self {
        let mut outlet = Self {
            role,
            turner: None,
            carrier: Carrier {
                lender: None,
                sends_gpu: false,
            },
            room: Room::default(),
            next,
            waiting: None,
            done: false,
            patience: OPENING_PATIENCE,
        };
        if let Some(turner) = turner {
            outlet.join(turner);
        }
        outlet
    }

    /// The connection for this part has come.
    pub(super) fn join(&mut self, turner: Turner<ServerEnd>) {
        let link = turner.link();
        self.carrier = Carrier::of(link);
        self.room = link.look(ServerEnd::room);
        self.turner = Some(turner);
    }

    /// One turn of the connection, also behind the end: credit says then whether the other part is
    /// needed. What comes back is released by this thread, where that may be.
    pub(super) fn turn(&mut self, budget: Budget) {
        if let Some(turner) = &mut self.turner {
            let step = |served: &mut ServerEnd, effects: &mut Effects| {
                served.turn_without_request(budget, effects);
                served.room()
            };
            self.room = release_here(|| turner.step(step));
        }
    }

    /// One step of the connection, after which the caller may enter the host's code.
    fn step<R>(&mut self, step: impl FnOnce(&mut ServerEnd, &mut Effects) -> R) -> Option<R> {
        let turner = self.turner.as_mut()?;
        let (result, room) = release_here(|| {
            turner.step_to_host(self.patience, |served, effects| {
                let result = step(served, effects);
                // Half a window at a time, and with what waits to be written: each read is a system
                // call.
                if served.is_half_used() && !served.holds_back() {
                    served.read(Budget::LOOK, effects);
                }
                (result, served.room())
            })
        });
        self.room = room;
        Some(result)
    }

    /// The caller enters the host's code.
    pub(super) fn enter_host(&mut self) {
        if let Some(turner) = &mut self.turner {
            turner.step_to_host(self.patience, |_, _| ());
        }
    }

    /// Whether there is room for `item` now, as far as can be told before its body is in place.
    pub(super) fn room_for(&self, options: &ProduceOptions, item: &StreamItem) -> Result<BodyRoom> {
        match item {
            StreamItem::Message(message) => {
                let admits = |len, in_place| self.room.admits(len, in_place);
                room_for(options, admits, &self.carrier, message)
            }
            _ => Ok(BodyRoom::Any),
        }
    }

    /// Sends the message that waits for room, if there is one. Returns whether none waits now.
    pub(super) fn send_waiting(
        &mut self,
        options: &ProduceOptions,
        account: &mut Option<Box<Account>>,
    ) -> Result<bool> {
        match self.waiting.take() {
            Some(waiting) if !self.room.admits(waiting.figures().body_len, false)? => {
                self.waiting = Some(waiting);
                Ok(false)
            }
            Some(waiting) => self
                .send_ready(waiting, Writes::AtOnce, options, account)
                .map(|()| true),
            None => Ok(true),
        }
    }

    /// Sends `item`, or keeps it where its body turns out to need room that there is not.
    pub(super) fn send(
        &mut self,
        item: StreamItem,
        room: BodyRoom,
        writes: Writes,
        options: &ProduceOptions,
        account: &mut Option<Box<Account>>,
    ) -> Result<()> {
        match item {
            StreamItem::Schema { header, mut info } => {
                info.device_type = device_in_transit(options, &self.carrier, info.device_type);
                let begin = |sender: &mut Sender<Gathered, Hold>| {
                    sender.accept(info)?;
                    sender.send_schema(header)
                };
                self.step(|served, effects| served.send(&[], writes, begin, effects))
                    .transpose()?
                    .transpose()?;
            }
            StreamItem::Message(message) => {
                let ready = self.place(options, message)?;
                if !ready.suits(room) {
                    self.waiting = Some(ready);
                    return Ok(());
                }
                let writes = if ready.is_small() {
                    writes
                } else {
                    Writes::AtOnce
                };
                self.send_ready(ready, writes, options, account)?;
            }
            StreamItem::End => {
                self.done = true;
                self.step(|served, effects| {
                    served.send(&[], Writes::AtOnce, |sender| sender.end(), effects)
                })
                .transpose()?
                .transpose()?;
            }
            StreamItem::Failed { status, text } => {
                self.done = true;
                self.step(|served, effects| served.send_failure(status, &text, effects));
            }
        }
        Ok(())
    }

    /// Whatever waits is not sent.
    pub(super) fn give_up_waiting(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.step(|served, effects| waiting.give_up(served, effects));
        }
    }

    fn send_ready(
        &mut self,
        ready: Ready,
        writes: Writes,
        options: &ProduceOptions,
        account: &mut Option<Box<Account>>,
    ) -> Result<()> {
        let figures = ready.figures();
        let sent = self.step(|served, effects| {
            let sent = ready.queue(served, effects);
            served.write_later(writes, effects);
            sent
        });
        let is_batch = sent.transpose()? == Some(HeaderKind::RecordBatch);
        if self.role == Role::Metadata {
            return Ok(());
        }
        options.counters.count(is_batch);
        if let Some(account) = account {
            account.sent(is_batch, figures.rows, figures.body_len);
        }
        Ok(())
    }

    fn place(&self, options: &ProduceOptions, message: EncodedMessage) -> Result<Ready> {
        let placed = match self.role {
            Role::Metadata => Placed::of(OutBody::Elsewhere),
            Role::Both | Role::Data => {
                let owner = || {
                    let owner = Owner::Shared(message.owner.clone().shared());
                    HostOwner::new(owner, options.callbacks.clone())
                };
                place(options, &self.carrier, &message, owner)?
            }
        };
        let EncodedMessage {
            kind,
            header,
            rows,
            body_len,
            ..
        } = message;
        Ok(Ready::new(kind, header, Figures { rows, body_len }, placed))
    }
}
