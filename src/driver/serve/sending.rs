//! A stream's part in a connection: room, messages, and the end.

use std::sync::Arc;

use super::{Effects, ServerEnd};
use crate::driver::produce::{ClientWatch, Publication};
use crate::error::{Error, Result};
use crate::proto::{Sender, SenderState, WindowRoom};
use crate::transport::RegionNotice;

use super::{Gathered, Hold};

/// More bytes than this waiting to be written, and nothing new is produced: a baseline peer gives
/// no credit, and is bounded by sends not yet complete (rule E5). They lie where the producer has
/// them, so that little below this bound would save no memory.
pub(super) const QUEUE_HIGH_WATER_BYTES: u64 = 64 << 20;
/// The same for memory that was made to be sent, as headers and lists are.
pub(super) const HELD_HIGH_WATER_BYTES: u64 = 512 << 10;

/// When queued messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// With the step that queues them.
    AtOnce,
    /// With those that follow soon.
    Later,
}

/// Room for messages of a stream, as it was after a step of the stream. Nobody but the stream uses
/// room, so that there is no less of it later.
#[derive(Debug, Clone, Default)]
pub struct Room {
    /// Why the stream cannot go on.
    ended: Option<Error>,
    /// Too many bytes wait to be written.
    pub is_crowded: bool,
    /// What the client's credit has left; `None` for a baseline peer.
    window: Option<WindowRoom>,
    /// Record batches that the consumer has taken, as its credit says.
    pub taken: u64,
}

impl Room {
    /// Why the stream cannot go on, if something ended it.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Whether another batch may be pulled from the producer.
    ///
    /// # Errors
    ///
    /// As [`ensure_streaming`](Self::ensure_streaming).
    pub fn may_pull(&self) -> Result<bool> {
        self.ensure_streaming()?;
        Ok(!self.is_crowded && self.window.is_none_or(|window| window.may_pull()))
    }

    /// Whether a message with a body of `body_len` bytes, which is lent `in_place` or not, may be
    /// sent.
    ///
    /// # Errors
    ///
    /// As [`ensure_streaming`](Self::ensure_streaming).
    pub fn admits(&self, body_len: u64, in_place: bool) -> Result<bool> {
        self.ensure_streaming()?;
        let admits = |window: WindowRoom| window.admits(body_len, in_place);
        Ok(!self.is_crowded && self.window.is_none_or(admits))
    }
}

impl ServerEnd {
    /// Room for messages now.
    pub fn room(&self) -> Room {
        Room {
            ended: self.ensure_streaming().err(),
            is_crowded: self.is_crowded(),
            window: self.sender.room(),
            taken: self.sender.batches_taken(),
        }
    }

    /// Whether a message with a body of `body_len` bytes, which is lent `in_place` or not, may be
    /// sent now.
    ///
    /// # Errors
    ///
    /// As [`ensure_streaming`](Self::ensure_streaming).
    pub fn admits(&self, body_len: u64, in_place: bool) -> Result<bool> {
        self.ensure_streaming()?;
        Ok(!self.is_crowded() && self.sender.admits(body_len, in_place))
    }

    /// Whether queued messages wait for those that follow soon.
    pub fn holds_back(&self) -> bool {
        self.writes == Writes::Later
    }

    /// Whether half of the consumer's window is used.
    pub fn is_half_used(&self) -> bool {
        self.sender.is_half_used()
    }

    /// Why the stream cannot go on, if something ended it.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn ensure_streaming(&self) -> Result<()> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        if self.is_cancelled {
            return Err(Error::cancelled("the client cancelled the stream"));
        }
        Ok(())
    }

    /// Runs `step` on the state machine and queues what it gives, with `announce` told to the peer
    /// first.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn queue<R>(
        &mut self,
        announce: &[RegionNotice],
        step: impl FnOnce(&mut Sender<Gathered, Hold>) -> R,
        effects: &mut Effects,
    ) -> Result<R> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        for notice in announce {
            if let Some(fd) = &notice.fd {
                self.announced.insert(notice.id, Arc::clone(fd));
            }
            self.sender.announce_region(notice.id, &notice.handle)?;
        }
        if self.sender.state() == SenderState::Streaming {
            self.stream_queued = self.connection.queued().bytes;
        }
        let result = step(&mut self.sender);
        self.pump_unwritten(effects);
        self.closed.clone().map_or(Ok(result), Err)
    }

    /// The same, and writes what is queued now or later.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn send<R>(
        &mut self,
        announce: &[RegionNotice],
        writes: Writes,
        step: impl FnOnce(&mut Sender<Gathered, Hold>) -> R,
        effects: &mut Effects,
    ) -> Result<R> {
        let result = self.queue(announce, step, effects)?;
        self.write_later(writes, effects);
        self.closed.clone().map_or(Ok(result), Err)
    }

    /// Writes what is queued, now or with what follows soon.
    pub fn write_later(&mut self, writes: Writes, effects: &mut Effects) {
        self.writes = writes;
        if self.closed.is_none()
            && let Err(error) = self.write()
        {
            self.close(error, effects);
        }
    }

    /// Refuses the request, or ends the stream, with an error. Nobody is told who has gone.
    pub fn send_failure(&mut self, status: i32, text: &str, effects: &mut Effects) {
        let accepted = self.sender.state() == SenderState::Streaming;
        let told = |sender: &mut Sender<Gathered, Hold>| match accepted {
            true => sender.fail(status, text),
            false => sender.refuse(status, text),
        };
        let _ = self.send(&[], Writes::AtOnce, told, effects);
    }

    /// Sends a published table from now on, in the turns of the connection.
    pub fn publish(&mut self, publication: Box<Publication>) {
        self.publication = Some(publication);
    }

    /// The client of `watch`'s stream is nobody's concern any more.
    pub fn forget_watch(&mut self, watch: &Arc<ClientWatch>) {
        self.watch.take_if(|set| Arc::ptr_eq(set, watch));
    }

    /// So much waits to be written that nothing new is to be made.
    pub fn is_crowded(&self) -> bool {
        self.connection.queued().bytes > self.most_queued.min(QUEUE_HIGH_WATER_BYTES)
            || self.connection.queued().held > HELD_HIGH_WATER_BYTES
    }
}
