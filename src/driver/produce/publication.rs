//! A published table on its way out, in the turns of its connection.
//!
//! Whoever turns the connection sends the table: the I/O thread, or a thread for this stream if
//! bodies have to be copied. A turn sends as much as its bounds allow. Nothing here calls the host.

use std::sync::Arc;

use super::body::Placer;
use super::options::{ProduceOptions, ensure_served};
use super::table::Published;
use crate::driver::callbacks::{Deferred, HostOwner};
use crate::driver::clock;
use crate::driver::end::{End, EndEffects, Outbound, Progress, StreamLink, Writes};
use crate::driver::telling::Account;
use crate::driver::turning::TURN_MESSAGES;
use crate::error::{Error, Result, Status};
use crate::proto::{HeaderKind, Role, StreamInfo, Timestamp};

/// One stream of a published table.
pub struct Publication {
    table: Arc<Deferred<Published>>,
    /// The next message; `None` before the stream was accepted.
    next: Option<usize>,
    /// Record batches that were placed.
    batches: u64,
    /// When the next message became ready, if it is timed.
    given: Option<Timestamp>,
    placer: Placer,
    /// Called when the last word is about to be sent; `None` once the stream is over.
    ending: Option<Box<dyn FnOnce() + Send>>,
    _place: Box<dyn Send>,
    account: Option<Box<Account>>,
}

impl Publication {
    /// The stream of `table` that `ticket` asked for. `ending` is called just before the last word
    /// is sent, and `place` is dropped with the publication.
    pub fn new(
        stream: &StreamLink,
        (ticket, role): (&[u8], Role),
        table: Arc<Deferred<Published>>,
        options: &ProduceOptions,
        ending: Box<dyn FnOnce() + Send>,
        place: Box<dyn Send>,
    ) -> Box<Self> {
        let mut placer = Placer::new(role, options);
        placer.join(stream);
        Box::new(Self {
            table,
            next: None,
            batches: 0,
            given: None,
            placer,
            ending: Some(ending),
            _place: place,
            account: options.counting.account(ticket, stream.peer()),
        })
    }

    /// Counts the rows of a batch. If a stream has two parts, only one of them counts.
    fn count_read(&self, rows: u64) {
        if self.placer.role != Role::Metadata {
            self.placer.options.counting.counters().read(rows);
        }
    }

    fn end(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending();
        }
    }

    fn send_some(&mut self, served: &mut End, effects: &mut EndEffects) -> Result<Progress> {
        let number = self.placer.number;
        served.stream(number)?.ensure_streaming()?;
        let table = Arc::clone(&self.table);
        if self.next.is_none() {
            ensure_served(table.device_type())?;
            let device_type = self.placer.device_in_transit(table.device_type(), served);
            self.next = Some(0);
            let info = StreamInfo::of(device_type, 0);
            served.begin(number, info, table.schema(), effects)?;
        }
        let mut bytes = 0;
        for _ in 0..TURN_MESSAGES {
            if !self.placer.has_waiting() {
                let Some(message) = self.next.and_then(|next| table.message(next)) else {
                    self.end();
                    served.send(number, Writes::Later, |sender| sender.end(), effects)??;
                    return Ok(Progress::Over);
                };
                if bytes >= served.quantum() {
                    return Ok(Progress::Soon);
                }
                let owner = || HostOwner::share(&table);
                if self.given.is_none() {
                    self.given = self.placer.options.counting.given(self.batches);
                }
                let given = (message, self.given);
                let Some(cost) = self.placer.place(&served.room(number), given, owner)? else {
                    return Ok(waits(served));
                };
                bytes += cost;
                self.next = self.next.map(|next| next + 1);
                if message.kind == HeaderKind::RecordBatch {
                    self.batches += 1;
                    self.count_read(message.rows as u64);
                }
                self.given = None;
            }
            if !self.placer.may_send(&served.room(number))? {
                return Ok(waits(served));
            }
            self.placer
                .send(clock::now, served, &mut self.account, effects)?;
            served.write_later(Writes::Later, effects);
        }
        Ok(Progress::Soon)
    }
}

impl Outbound for Publication {
    fn sent(&self) -> Option<usize> {
        self.next
    }

    fn advance(&mut self, served: &mut End, effects: &mut EndEffects) -> Progress {
        let progress = self.send_some(served, effects);
        match &progress {
            Ok(Progress::Over) => {
                if let Some(account) = self.account.take() {
                    account.end();
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.lost(error);
                self.placer.give_up(served, effects);
                let number = self.placer.number;
                served.send_failure(number, error.status().code(), error.text(), effects);
            }
        }
        progress.unwrap_or(Progress::Over)
    }

    fn lost(&mut self, error: &Error) {
        self.end();
        if let Some(account) = self.account.take() {
            account.fail(error.status().code(), error.text());
        }
    }
}

fn waits(served: &End) -> Progress {
    match served.is_crowded() {
        true => Progress::Soon,
        false => Progress::Waits,
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
