//! Where a stream of a provider goes: one connection, or two (rule U3).

use std::sync::Arc;

use super::body::Placer;
use super::options::ProduceOptions;
use crate::arrow::EncodedMessage;
use crate::driver::callbacks::{HostOwner, release_here};
use crate::driver::clock;
use crate::driver::end::{End, EndEffects, SendRoom, Writes};
use crate::driver::telling::Account;
use crate::driver::turning::Turner;
use crate::driver::waiting::{Cause, UPKEEP};
use crate::error::{Error, Result};
use crate::proto::{HeaderKind, Role, StreamInfo, Timestamp};
use crate::transport::MemoryOwner;

/// One thing that a stream sends. A stream sends its items in order.
#[derive(Clone)]
pub(super) enum StreamItem {
    Schema {
        header: Arc<[u8]>,
        info: StreamInfo,
    },
    /// A message, and when the producer gave it, if it is timed.
    Message(EncodedMessage, Option<Timestamp>),
    End,
}

impl StreamItem {
    pub(super) fn is_batch(&self) -> bool {
        matches!(self, Self::Message(message, _) if message.kind == HeaderKind::RecordBatch)
    }
}

/// How far one part of a stream has come.
pub(super) struct Outlet {
    pub(super) placer: Placer,
    /// `None` for a part that no connection to this server carries.
    pub(super) turner: Option<Turner<End>>,
    /// The room after the last step.
    pub(super) room: SendRoom,
    /// When the connection was read last.
    read_at: Timestamp,
    /// Number of the next item to send.
    pub(super) next: u64,
    /// The end, or an error, was sent: the connection no longer carries this stream.
    pub(super) done: bool,
}

impl Outlet {
    pub(super) fn new(role: Role, options: &ProduceOptions, next: u64) -> Self {
        Self {
            placer: Placer::new(role, options),
            turner: None,
            room: SendRoom::default(),
            read_at: clock::now(),
            next,
            done: false,
        }
    }

    pub(super) fn join(&mut self, turner: Turner<End>) {
        self.placer.join(&turner.stream());
        self.turner = Some(turner);
        self.refresh_room();
    }

    /// One turn of the connection. It is turned even after the end, because credit then shows
    /// whether the other part is needed. Arrays that come back are released on this thread, if it
    /// may do so.
    pub(super) fn turn(&mut self, cause: Cause) {
        if self.turner.as_ref().is_some_and(Turner::is_guest) {
            // The I/O thread turns the connection.
            self.refresh_room();
        } else if self.turner.is_some() {
            // It fails only without a connection.
            let _ = self.ask(|_, served, effects| {
                served.turn_without_request(cause, effects);
                Ok(())
            });
        }
    }

    /// Learns what room the connection has now.
    pub(super) fn refresh_room(&mut self) {
        if let Some(turner) = &self.turner {
            self.room = turner.link().inspect(|end| end.room(turner.number()));
        }
    }

    /// One step of the connection, after which the caller may enter the host's code.
    fn step(
        &mut self,
        step: impl FnOnce(&mut Placer, Timestamp, &mut End, &mut EndEffects) -> Result<()>,
    ) -> Result<()> {
        let Some(turner) = self.turner.as_mut() else {
            return Ok(());
        };
        let placer = &mut self.placer;
        let now = clock::now();
        let (number, is_guest) = (turner.number(), turner.is_guest());
        let is_due = now.saturating_since(self.read_at) >= UPKEEP;
        let (result, room, has_read) = release_here(|| {
            turner.step_to_host(|served, effects| {
                let result = step(placer, now, served, effects);
                // The time is checked first, because each read is a system call. Even if a host
                // makes batches slowly, the connection must be read, because of the peer's
                // messages, and because UCX may need this side to move lent memory.
                let stream = served.stream(number);
                let is_half_used = stream.is_ok_and(|it| it.is_half_used());
                let reads = !is_guest && (is_due || is_half_used);
                if reads {
                    served.read(Cause::Look, effects);
                }
                (result, served.room(number), reads)
            })
        });
        self.room = room;
        if has_read {
            self.read_at = now;
        }
        result
    }

    /// One step of the connection, after which the caller does not enter the host's code.
    pub(super) fn ask<R>(
        &mut self,
        step: impl FnOnce(u32, &mut End, &mut EndEffects) -> Result<R>,
    ) -> Result<R> {
        let turner = self
            .turner
            .as_mut()
            .ok_or_else(|| Error::disconnected("no connection"))?;
        let number = turner.number();
        let (result, room) = release_here(|| {
            turner.step(|end, effects| {
                let result = step(number, end, effects);
                (result, end.room(number))
            })
        });
        self.room = room;
        result
    }

    pub(super) fn enter_host(&mut self) {
        if let Some(turner) = &mut self.turner {
            turner.step_to_host(|_, _| ());
        }
    }

    /// Places the body of `message`. Returns whether there was a place for it.
    pub(super) fn place(
        &mut self,
        message: (&EncodedMessage, Option<Timestamp>),
        options: &ProduceOptions,
    ) -> Result<bool> {
        let owner = || {
            let owner = MemoryOwner::Shared(message.0.owner.clone().shared());
            HostOwner::new(owner, options.callbacks.clone())
        };
        Ok(self.placer.place(&self.room, message, owner)?.is_some())
    }

    /// Sends the message that was placed last, if any. Returns true if no message waits now.
    pub(super) fn send_placed(&mut self, account: &mut Option<Box<Account>>) -> Result<bool> {
        if !self.placer.has_waiting() {
            return Ok(true);
        }
        if !self.placer.may_send(&self.room)? {
            return Ok(false);
        }
        self.step(|placer, now, served, effects| {
            placer.send(|| now, served, account, effects)?;
            served.write_later(Writes::AtOnce, effects);
            Ok(())
        })?;
        Ok(true)
    }

    /// Sends an item other than a message.
    pub(super) fn send(&mut self, item: StreamItem) -> Result<()> {
        self.done = matches!(item, StreamItem::End);
        self.step(|placer, _, served, effects| match item {
            // The schema leaves with the first batch, if that comes at once, so that the client is
            // woken only once.
            StreamItem::Schema { header, mut info } => {
                info.device_type = placer.device_in_transit(info.device_type, served);
                served.begin(placer.number, info, header, effects)
            }
            StreamItem::End => Ok(served.send(
                placer.number,
                Writes::AtOnce,
                |sender| sender.end(),
                effects,
            )??),
            StreamItem::Message(..) => Ok(()),
        })
    }

    /// Ends the stream with an error, unless the stream has ended. Tells nothing to a client that
    /// has gone.
    pub(super) fn fail(&mut self, status: i32, text: &str) {
        if !std::mem::replace(&mut self.done, true) {
            let _ = self.step(|placer, _, served, effects| {
                placer.give_up(served, effects);
                served.send_failure(placer.number, status, text, effects);
                Ok(())
            });
        }
    }
}
