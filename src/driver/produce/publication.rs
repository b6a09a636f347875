//! A published table on its way out, in the turns of its connection.
//!
//! Whoever turns the connection sends the table: the I/O thread, or a thread of the stream's own
//! where bodies have to be copied or compressed. A turn sends as much as its budget allows. Nothing
//! here calls the host.

use std::sync::Arc;

use super::body::{BodyRoom, Carrier, Figures, Placed, Ready, place, room_for};
use super::table::{Feed, Published};
use super::{ProduceOptions, device_in_transit, ensure_served, stream_info};
use crate::arrow::EncodedMessage;
use crate::driver::callbacks::Deferred;
use crate::driver::serve::{Effects, ServerEnd, ServerLink, Writes};
use crate::driver::telling::Account;
use crate::driver::turning::Budget;
use crate::error::{Error, Result, Status};
use crate::proto::{HeaderKind, OutBody, Role};

/// How far a turn has come with a published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The client's credit is used.
    Waits,
    /// Too much waits to be written.
    Crowded,
    /// The budget is used.
    Soon,
    /// The stream has ended, well or not.
    Over,
}

/// One stream of a published table.
pub struct Publication {
    feed: Feed,
    role: Role,
    carrier: Carrier,
    /// From how many bytes on a body is moved while the connection is turned, and not by the call
    /// that sends it.
    announces_from: Option<u64>,
    options: ProduceOptions,
    /// A message whose body turned out to need room that there was not.
    waiting: Option<Ready>,
    /// Messages sent behind the schema; `None` before STREAM was sent.
    sent: Option<u64>,
    /// Called when the last word is about to be sent; `None` once the stream is over.
    ending: Option<Box<dyn FnOnce() + Send>>,
    /// The stream's place at its server.
    _place: Box<dyn Send>,
    /// For the log, until it has the stream's end.
    account: Option<Box<Account>>,
}

impl Publication {
    /// The stream of `table` that `ticket` asked for over `link`. `ending` is called when the last
    /// word is about to be sent, and `place` is dropped with the publication.
    pub fn new(
        link: &ServerLink,
        (ticket, role): (&[u8], Role),
        table: Arc<Deferred<Published>>,
        options: ProduceOptions,
        ending: Box<dyn FnOnce() + Send>,
        place: Box<dyn Send>,
    ) -> Box<Self> {
        Box::new(Self {
            feed: Feed::new(table),
            role,
            carrier: Carrier::of(link),
            announces_from: link.profile().announces_from,
            options,
            waiting: None,
            sent: None,
            ending: Some(ending),
            _place: place,
            account: Account::open("to", ticket, link.peer()),
        })
    }

    /// Messages sent behind the schema; `None` before the stream was accepted.
    pub fn sent(&self) -> Option<u64> {
        self.sent
    }

    /// Sends what can be sent now.
    pub fn advance(
        &mut self,
        served: &mut ServerEnd,
        budget: Budget,
        effects: &mut Effects,
    ) -> Progress {
        match self.send_some(served, budget, effects) {
            Ok(progress) => {
                if progress == Progress::Over
                    && let Some(account) = self.account.take()
                {
                    account.end();
                }
                progress
            }
            Err(error) => {
                self.lost(&error);
                if let Some(waiting) = self.waiting.take() {
                    waiting.give_up(served, effects);
                }
                served.send_failure(error.status().code(), error.text(), effects);
                Progress::Over
            }
        }
    }

    /// The stream ends early.
    pub fn lost(&mut self, error: &Error) {
        if let Some(ending) = self.ending.take() {
            ending();
        }
        if let Some(account) = self.account.take() {
            account.fail(error.status().code(), error.text());
        }
    }

    fn send_some(
        &mut self,
        served: &mut ServerEnd,
        budget: Budget,
        effects: &mut Effects,
    ) -> Result<Progress> {
        served.ensure_streaming()?;
        if self.sent.is_none() {
            self.accept(served, effects)?;
        }
        let mut bytes = 0;
        for _ in 0..budget.messages {
            let Some(message) = self.next(served, bytes < budget.bytes, &mut bytes)? else {
                return self.pause(served, bytes >= budget.bytes, effects);
            };
            let figures = message.figures();
            let is_batch = message.queue(served, effects)? == HeaderKind::RecordBatch;
            served.write_later(Writes::Later, effects);
            self.sent = self.sent.map(|sent| sent + 1);
            self.options
                .counters
                .count(is_batch && self.role != Role::Metadata);
            if let Some(account) = &mut self.account {
                account.sent(is_batch, figures.rows, figures.body_len);
            }
        }
        Ok(Progress::Soon)
    }

    fn accept(&mut self, served: &mut ServerEnd, effects: &mut Effects) -> Result<()> {
        let device_type = self.feed.device_type();
        ensure_served(device_type)?;
        let schema = self.feed.schema(self.options.encode)?;
        let mut info = stream_info(device_type);
        info.device_type = device_in_transit(&self.options, &self.carrier, device_type);
        self.sent = Some(0);
        served.send(
            &[],
            Writes::Later,
            |sender| {
                sender.accept(info)?;
                sender.send_schema(schema)
            },
            effects,
        )??;
        Ok(())
    }

    /// Why nothing more is sent in this turn; at the end of the table its last word is sent.
    fn pause(
        &mut self,
        served: &mut ServerEnd,
        is_spent: bool,
        effects: &mut Effects,
    ) -> Result<Progress> {
        self.feed.prepare()?;
        if self.waiting.is_some() || self.feed.message().is_some() {
            return Ok(match served.is_crowded() {
                true => Progress::Crowded,
                false if is_spent && served.room().may_pull()? => Progress::Soon,
                false => Progress::Waits,
            });
        }
        if let Some(ending) = self.ending.take() {
            ending();
        }
        served.send(&[], Writes::Later, |sender| sender.end(), effects)??;
        Ok(Progress::Over)
    }

    /// The next message with its body in place, if the client's credit has room for it. `may_copy`:
    /// the turn may still copy bodies, whose bytes it adds to `copied`.
    fn next(
        &mut self,
        served: &ServerEnd,
        may_copy: bool,
        copied: &mut u64,
    ) -> Result<Option<Ready>> {
        let admits = |len, in_place| served.admits(len, in_place);
        if let Some(waiting) = self.waiting.take() {
            if admits(waiting.figures().body_len, false)? {
                return Ok(Some(waiting));
            }
            self.waiting = Some(waiting);
            return Ok(None);
        }
        if !may_copy {
            return Ok(None);
        }
        self.feed.prepare()?;
        let Some(message) = self.feed.message() else {
            return Ok(None);
        };
        // Rule E5: a dictionary uses bytes of the window, a batch also a place in it.
        let body_room = room_for(&self.options, admits, &self.carrier, message)?;
        if body_room == BodyRoom::None {
            return Ok(None);
        }
        let ready = self.place(message)?;
        self.feed.advance();
        let body_len = ready.figures().body_len;
        let announced = self.announces_from.is_some_and(|least| body_len >= least);
        if !ready.is_in_place() && !announced {
            *copied += body_len;
        }
        if ready.suits(body_room) {
            return Ok(Some(ready));
        }
        self.waiting = Some(ready);
        Ok(None)
    }

    fn place(&self, message: &EncodedMessage) -> Result<Ready> {
        let placed = match self.role {
            Role::Metadata => Placed::of(OutBody::Elsewhere),
            Role::Both | Role::Data => place(&self.options, &self.carrier, message, || {
                self.feed.owner(message, &self.options.callbacks)
            })?,
        };
        let figures = Figures {
            rows: message.rows,
            body_len: message.body_len,
        };
        let header = Arc::clone(&message.header);
        Ok(Ready::new(message.kind, header, figures, placed))
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        // A turn of the connection panicked.
        if self.ending.is_some() {
            let text = "to send a published table panicked: please report this bug";
            self.lost(&Error::new(Status::Panic, text));
        }
    }
}
