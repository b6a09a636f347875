//! A connection's work for a stream that goes out: room, messages, and the end.

use std::sync::Arc;

use super::Outbound;
use super::{End, EndEffects, OutSender};
use crate::driver::client_watch::ClientWatch;
use crate::driver::clock;
use crate::driver::turning::TURN_BYTES;
use crate::driver::waiting::RETRY;
use crate::error::{Error, Result};
use crate::proto::{Headers, StreamInfo, WindowRoom};
use crate::transport::Traffic;

/// Nothing new is produced while more bytes than this wait to be written: a baseline peer gives no
/// credit (rule E5). The bytes lie in the producer's memory.
pub(super) const QUEUE_HIGH_WATER_BYTES: u64 = 64 << 20;
/// The same limit for memory that was made to be sent, such as headers and lists.
pub(super) const HELD_HIGH_WATER_BYTES: u64 = 512 << 10;

/// The same limit if streams share the connection: the queued bytes of one stream delay all others.
const SHARED_HIGH_WATER_BYTES: u64 = 1 << 20;
/// See [`End::quantum`].
const QUANTUM: u64 = 64 << 10;

/// With this many queued bytes, a write is worth while even if more are about to follow: the peer
/// then works at the same time.
const ENOUGH_BYTES: u64 = 32 << 10;

/// When queued messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// With the step that queues them.
    AtOnce,
    /// Together with messages that follow soon.
    Later,
    /// With the next turn of the I/O thread, which comes soon, together with what others queue
    /// until then.
    InTurn,
}

/// Room for the messages of a stream after its last step. Only the stream itself uses up room, so
/// the real room is never smaller.
#[derive(Debug, Clone, Default)]
pub struct SendRoom {
    /// Why the stream cannot go on.
    ended: Option<Error>,
    is_crowded: bool,
    /// What the client's credit has left; `None` for a baseline peer.
    window: Option<WindowRoom>,
    /// Record batches that the consumer has taken, according to its credit or its next request.
    pub taken: u64,
}

impl SendRoom {
    /// Fails if something ended the stream.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Whether another batch may be pulled from the producer. Fails if the stream has ended.
    pub fn may_pull(&self) -> Result<bool> {
        self.ensure_streaming()?;
        Ok(!self.is_crowded && self.window.is_none_or(WindowRoom::may_pull))
    }

    /// Record batches that may be sent, if they are small enough.
    pub fn batches(&self) -> u64 {
        self.window.map_or(u64::MAX, WindowRoom::batches)
    }

    /// Whether a message with a body of `body_len` bytes, which is lent `in_place` or not, may be
    /// sent. Fails if the stream has ended.
    pub fn admits(&self, body_len: u64, in_place: bool) -> Result<bool> {
        self.ensure_streaming()?;
        let admits = |window: WindowRoom| window.admits(body_len, in_place);
        Ok(!self.is_crowded && self.window.is_none_or(admits))
    }
}

/// What changes when the client of a stream acts: batches that the client has taken, or batches of
/// the client's own table that the host has read; buffers that the client has not returned; bytes
/// that wait to be written; bytes that were received.
pub type Awaited = (u64, usize, u64, u64);

impl End {
    /// The state of a stream that waits for its client. `None` if the stream does not wait. The
    /// client has done nothing between two calls that return equal values.
    pub fn awaited(&self, number: u32) -> Option<Awaited> {
        let stream = self.stream(number).ok()?;
        let room = self.room(number);
        let reads_on = room.may_pull().unwrap_or(true);
        let had = stream.host_has_had();
        let batches = had.or_else(|| (!reads_on).then_some(room.taken))?;
        let lent = stream.lent_outstanding();
        // On a shared connection the bytes belong to all streams.
        let traffic = match self.session.is_many() {
            true => Traffic::default(),
            false => self.connection.traffic(),
        };
        // Received bytes count as progress only if the client sends a table.
        let received = had.map_or(0, |_| traffic.received);
        Some((batches, lent, traffic.queued, received))
    }

    /// Room for messages now.
    pub fn room(&self, number: u32) -> SendRoom {
        match self.stream(number) {
            Ok(stream) => SendRoom {
                ended: stream.ensure_streaming().err(),
                is_crowded: self.is_crowded(),
                window: stream.room(),
                taken: stream.batches_taken(),
            },
            Err(over) => SendRoom {
                ended: Some(over),
                ..SendRoom::default()
            },
        }
    }

    /// Runs `step` on the sender of a stream and queues its messages. The announcements of regions
    /// come before the messages that may lend from them. Fails if the stream is over.
    pub fn queue<R>(
        &mut self,
        number: u32,
        step: impl FnOnce(&mut OutSender) -> R,
        effects: &mut EndEffects,
    ) -> Result<R> {
        self.session.ensure_open()?;
        let news = self.pool.as_ref().map(|pool| pool.take_news());
        for notice in news.into_iter().flatten() {
            if let Some(fd) = notice.fd {
                self.announced.insert(notice.id, fd);
            }
            self.session.announce_region(notice.id, &notice.handle)?;
        }
        let result = step(self.stream_mut(number)?.sender());
        self.pump_unwritten(effects);
        self.session.ensure_open().map(|()| result)
    }

    /// [`queue`](Self::queue), and writes the queue now or later.
    pub fn send<R>(
        &mut self,
        number: u32,
        writes: Writes,
        step: impl FnOnce(&mut OutSender) -> R,
        effects: &mut EndEffects,
    ) -> Result<R> {
        let result = self.queue(number, step, effects)?;
        self.write_later(writes, effects);
        self.session.ensure_open().map(|()| result)
    }

    /// Begins the stream that was asked for. Its first message is written with the messages that
    /// follow.
    pub fn begin(
        &mut self,
        number: u32,
        info: StreamInfo,
        schema: Arc<[u8]>,
        effects: &mut EndEffects,
    ) -> Result<()> {
        let begin = |sender: &mut OutSender| {
            // If this end asks for the stream, the request has begun it already.
            if !sender.is_asking() {
                sender.accept(info)?;
            }
            sender.send_schema(schema)
        };
        self.send(number, Writes::Later, begin, effects)?
    }

    /// Writes the queue, now or with the messages that follow soon. A socket that was full is left
    /// alone until its descriptor announces room.
    pub fn write_later(&mut self, writes: Writes, effects: &mut EndEffects) {
        if self.writes != Writes::InTurn {
            self.writes = writes;
        }
        let least = match self.writes {
            Writes::AtOnce => 1,
            Writes::Later | Writes::InTurn => ENOUGH_BYTES,
        };
        if !self.is_full && self.connection.traffic().queued >= least {
            self.write(effects);
        }
    }

    /// Writes as much of the queue as there is room for.
    pub(super) fn write(&mut self, effects: &mut EndEffects) {
        let is_left =
            self.writes == Writes::InTurn && self.connection.traffic().queued < ENOUGH_BYTES;
        if is_left || self.session.closed().is_some() {
            return;
        }
        match self.connection.flush() {
            // Only the descriptor of a socket announces room.
            Ok(all) => self.is_full = !all && self.readiness().socket,
            Err(_) if self.reads_on() => {}
            Err(error) => self.close(error, effects),
        }
        // The holder may be waiting for something other than room.
        if self.reads_on() && self.is_writing() {
            effects.schedule(Some(clock::after(RETRY)));
        }
    }

    /// Refuses the request with an error and with the error's advice.
    pub fn send_refusal(&mut self, number: u32, error: &Error, effects: &mut EndEffects) {
        if let Some(advice) = error.advice()
            && let Ok(stream) = self.stream_mut(number)
        {
            // It fails only if no request waits, or if the advice is too long.
            let headers = Headers::of_advice(advice);
            let _ = stream.add_answer_headers(&headers);
        }
        self.send_failure(number, error.status().code(), error.text(), effects);
    }

    /// Refuses the request, or ends the stream, with an error. A peer that has gone is not told.
    pub fn send_failure(&mut self, number: u32, status: i32, text: &str, effects: &mut EndEffects) {
        let fail = |sender: &mut OutSender| sender.fail(status, text);
        let _ = self.send(number, Writes::AtOnce, fail, effects);
    }

    /// Gives a stream to the turns of the connection, which send it from now on. If the connection
    /// is over, the stream ends.
    pub fn send_in_turns(
        &mut self,
        number: u32,
        outbound: Box<dyn Outbound>,
        effects: &mut EndEffects,
    ) {
        self.keep_outbound(number, outbound, effects);
        self.attached.make_ready(number);
    }

    /// Keeps a stream that the turns send.
    pub(super) fn keep_outbound(
        &mut self,
        number: u32,
        mut outbound: Box<dyn Outbound>,
        effects: &mut EndEffects,
    ) {
        match self.session.closed() {
            None => self.attached.make(number).outbound = Some(outbound),
            Some(error) => {
                outbound.lost(error);
                effects.sent.push(outbound);
            }
        }
    }

    /// Stops informing `watch` about the client of its stream.
    pub fn forget_watch(&mut self, number: u32, watch: &Arc<ClientWatch>) {
        if let Some(attached) = self.attached.get_mut(number) {
            attached.watch.take_if(|set| Arc::ptr_eq(set, watch));
        }
    }

    /// How many bytes of bodies a stream may send before the next stream may send (rule S5).
    pub fn quantum(&self) -> u64 {
        match self.session.is_many() {
            true => QUANTUM,
            false => TURN_BYTES,
        }
    }

    /// Whether so many bytes wait to be written that nothing new should be produced.
    pub fn is_crowded(&self) -> bool {
        let traffic = self.connection.traffic();
        let most = match self.session.is_many() {
            true => SHARED_HIGH_WATER_BYTES,
            false => QUEUE_HIGH_WATER_BYTES,
        };
        traffic.queued > self.most_queued.min(most) || traffic.held > HELD_HIGH_WATER_BYTES
    }
}
