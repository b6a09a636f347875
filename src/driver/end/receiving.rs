//! A connection's work for a stream that comes in: messages, the peer's memory, and returns.

use std::sync::Arc;
use std::time::Duration;

use super::{Afterwards, End, EndEffects, EndLink, EndSession, Kept};
use crate::device::cuda::Device;
use crate::driver::clock;
use crate::driver::packed::PackedBody;
use crate::driver::returns::forget;
use crate::driver::telling;
use crate::driver::turning::{ANSWERS_HIGH_WATER_BYTES, TURN_BYTES, TURN_MESSAGES};
use crate::driver::waiting::{Again, Cause, RETRY, Wants};
use crate::error::{Error, Result, Status};
use crate::proto::{IncomingStream, Return, Timestamp, Transmit};
use crate::transport::{Incoming, Outgoing, PeerRegions, Unmapped};

/// The GPUs of a stream's bodies.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamGpus<'a> {
    /// Where packed bodies go: see [`PeerRegions::receive_on`].
    pub packed: Option<&'a Arc<Device>>,
    /// UUIDs of those whose memory may be lent, as the request names them.
    pub lent: &'a [[u8; 16]],
}

impl End {
    /// Whether the connection can serve another stream: it is not over, and has everything that the
    /// server has announced.
    pub fn is_sound(&mut self) -> bool {
        self.session.closed().is_none()
            && !self.session.is_dismissed()
            && self.connection.with_regions(|regions| regions.is_sound())
    }

    /// See [`misses_gpus`](crate::transport::RegionTable::misses_gpus).
    pub fn misses_gpus(&mut self) -> bool {
        let table = self.connection.table();
        table.is_some_and(|table| table.misses_gpus())
    }

    /// Begins to receive a stream. `early_bytes`: how many bytes of bodies may come before their
    /// headers.
    pub fn begin_receiving(
        &mut self,
        number: u32,
        stream: IncomingStream<PackedBody>,
        gpus: StreamGpus<'_>,
        early_bytes: u64,
        effects: &mut EndEffects,
    ) {
        self.expect_bodies(number, gpus, early_bytes);
        let begun = match self.stream_mut(number) {
            Ok(own) => own.begin_receiving(clock::now(), stream),
            Err(_) => Ok(()),
        };
        if let Err(error) = begun {
            self.close(error, effects);
        }
        self.flush_output(effects);
    }

    /// Begins to receive the bodies of a stream that another connection carries.
    pub fn begin_bodies(&mut self, gpus: StreamGpus<'_>, most_bytes: u64) {
        self.expect_bodies(0, gpus, 0);
        self.session.first_mut().begin_bodies(most_bytes);
    }

    fn expect_bodies(&mut self, number: u32, gpus: StreamGpus<'_>, early_bytes: u64) {
        self.connection.begin_stream(number, early_bytes);
        self.connection
            .with_regions(|regions| regions.receive_on(gpus.packed));
        if let Some(table) = self.connection.table() {
            table.accept_gpus(gpus.lent);
        }
        // The I/O thread turns a connection of many streams, and sleeps on its descriptor.
        if !self.session.is_many() {
            self.wake();
        }
    }

    /// Ends the reception of a stream: everything has come, or nothing more will come.
    pub fn end_receiving(&mut self, number: u32) {
        self.connection.forget_bodies(number);
        if !self.session.is_many() {
            self.connection.end_stream();
        }
        if let Ok(stream) = self.stream_mut(number) {
            stream.end_receiving();
        }
    }

    /// Called after the last stream: from now on the connection only serves the arrays that point
    /// into its memory.
    pub fn retire(&mut self, link: &Arc<EndLink>, effects: &mut EndEffects) {
        // Other streams of the connection go on.
        if !self.session.is_many() {
            self.session.first_mut().retire();
        }
        self.kept = Kept::Retired(Arc::clone(link));
        self.let_go(effects);
    }

    /// Ends a connection that no client has any more, unless the server still has memory of this
    /// connection's or owes an answer.
    pub(super) fn let_go(&mut self, effects: &mut EndEffects) {
        if matches!(self.kept, Kept::Retired(_)) && !self.session.is_needed() {
            self.let_go_retired(effects);
        }
    }

    pub(super) fn let_go_retired(&mut self, effects: &mut EndEffects) {
        if let Kept::Retired(link) = &mut self.kept {
            effects.unkept = Some(Arc::clone(link));
            self.kept = Kept::Nothing;
        }
    }

    /// The consumer has left its stream. The turns of the connection read the rest
    /// of the stream, and then call `over`. Returns whether the connection is over already: then
    /// nothing calls `over`.
    pub fn leave_stream(&mut self, patience: Duration, over: Afterwards) -> bool {
        if let Some(stream) = self.session.first_mut().incoming_mut() {
            stream.leave(clock::now(), patience);
        }
        self.keep(Kept::Leftover(over))
    }

    /// The consumer has left a stream of a connection with many. The turns read the rest of it.
    pub fn leave_one(&mut self, number: u32, patience: Duration) {
        self.connection.forget_bodies(number);
        if let Ok(stream) = self.stream_mut(number)
            && let Some(incoming) = stream.incoming_mut()
        {
            incoming.leave_one(clock::now(), patience);
        }
    }

    /// The same for a connection that carries only the bodies of a stream; `stream` carries the
    /// rest.
    pub fn leave_bodies(&mut self, stream: Arc<EndLink>, over: Afterwards) -> bool {
        self.session.first_mut().discard_bodies();
        self.keep(Kept::LeftoverBodies(over, stream))
    }

    fn keep(&mut self, kept: Kept) -> bool {
        // A body that nobody wants need not be announced: it is thrown away.
        self.connection.forget_bodies(0);
        self.wake();
        if self.session.closed().is_none() {
            self.kept = kept;
        }
        self.session.closed().is_some()
    }

    /// Ends such a stream: nothing of it comes any more.
    pub(super) fn end_leftover(&mut self, effects: &mut EndEffects) {
        match std::mem::replace(&mut self.kept, Kept::Nothing) {
            Kept::Leftover(over) | Kept::LeftoverBodies(over, _) => effects.over = Some(over),
            kept @ (Kept::Nothing | Kept::Retired(_)) => self.kept = kept,
        }
    }

    /// The transport polls for messages from now on, until [`doze`](Self::doze).
    pub fn wake(&mut self) {
        if !std::mem::replace(&mut self.unread.is_polled, true) {
            self.connection.wake();
        }
    }

    /// The owner is about to wait for the descriptors. Returns whether there is something to be
    /// read first.
    pub fn doze(&mut self) -> bool {
        self.unread.is_polled = false;
        self.connection.doze()
    }

    /// Whether something waits for room to be written.
    pub fn is_writing(&self) -> bool {
        self.session.closed().is_none() && self.connection.traffic().queued > 0
    }

    /// Sends messages, and the returns that wait, in one system call.
    pub fn flush_with(
        &mut self,
        messages: impl IntoIterator<Item = Outgoing>,
        effects: &mut EndEffects,
    ) {
        if self.session.closed().is_some() {
            return;
        }
        let messages = messages.into_iter().map(|message| (0, message));
        for (number, message) in messages.chain(self.returns.drain()) {
            telling::sent(&*self.connection, &message);
            let _ = self.connection.queue(number, message);
        }
        self.write(effects);
    }

    /// Sends the returns that are due at once, and writes on.
    pub fn write_on(&mut self, effects: &mut EndEffects) {
        if self.returns.is_urgent() {
            self.flush_with(None, effects);
        } else if self.is_writing() {
            self.write(effects);
        }
    }

    /// The next message that has not been read. On an error the caller [closes](Self::close) the
    /// connection.
    pub fn receive(&mut self, cause: Cause) -> Result<Option<(u32, Incoming)>> {
        self.session.ensure_open()?;
        // The message is not moved on its way up, because a move would take as long as the read.
        let mut received = self.connection.receive();
        if matches!(received, Ok(None)) {
            if cause == Cause::Ready && self.readiness().peer_has_died() {
                return Err(self.peer_has_ended());
            }
            // The caller first gets all messages, including those that came after the read above,
            // and only then the failure of a write.
            if self.reads_on()
                && let Err(error) = self.connection.flush()
            {
                let last = self.connection.receive();
                received = last.and_then(|last| last.map(Some).ok_or(error));
            }
        }
        match &mut received {
            Ok(Some((_, message))) => telling::received(&*self.connection, message),
            // The sockets of a killed process close a moment before the process ends.
            Err(error)
                if self.reads_on()
                    && error.status() == Status::Disconnected
                    && self.readiness().peer_dies_within(RETRY) =>
            {
                *error = self.peer_has_ended();
            }
            Ok(None) | Err(_) => {}
        }
        received
    }

    fn peer_has_ended(&self) -> Error {
        peer_has_ended(&self.connection.identity().peer, self.session.is_server())
    }

    /// A failed write does not end the connection yet: the peer may be gone, and its last messages
    /// are still unread. After them, reading finds the end.
    pub(super) fn reads_on(&self) -> bool {
        !self.session.is_server()
    }

    /// Reads what has come, up to the bounds of a turn. Returns how many messages there were.
    pub fn read(&mut self, cause: Cause, effects: &mut EndEffects) -> usize {
        self.read_while(cause, |_| true, effects)
    }

    /// The same, while `goes_on` returns true.
    pub fn read_while(
        &mut self,
        mut cause: Cause,
        goes_on: impl Fn(&EndSession) -> bool,
        effects: &mut EndEffects,
    ) -> usize {
        // The clock is read once for all messages, and not at all if there are none.
        let (mut read, mut bytes, mut now) = (0, 0, None);
        let mut is_left = true;
        while self.session.closed().is_none() && goes_on(&self.session) {
            if read >= TURN_MESSAGES || bytes >= TURN_BYTES {
                break;
            }
            if self.is_flooded() {
                // Reading stops until the peer reads its answers. The death of the peer is still
                // noticed.
                if self.readiness().peer_has_died() {
                    self.close(self.peer_has_ended(), effects);
                }
                break;
            }
            match self.read_one(cause, &mut now, effects) {
                Ok(Some(held)) => bytes += held,
                Ok(None) => {
                    is_left = self.is_full();
                    break;
                }
                Err(error) => {
                    self.say_fault();
                    self.close(error, effects);
                    break;
                }
            }
            read += 1;
            // The event may have announced only these messages. Another event announces that the
            // process has ended.
            cause = Cause::Woken;
            // A request, a return or a credit may be followed by the next at once.
            if self.session.has_output() {
                self.pump(effects);
            }
            if effects.is_asked || effects.over.is_some() {
                break;
            }
        }
        self.unread.is_left = is_left;
        if read > 0
            && let Kept::LeftoverBodies(_, stream) = &self.kept
        {
            effects.bodies_for = Some(Arc::clone(stream));
        }
        read
    }

    /// Tells the peer which rule it broke, if the session has a message for that.
    fn say_fault(&mut self) {
        while let Some((number, transmit)) = self.session.poll_transmit() {
            if matches!(transmit, Transmit::Disconnect { .. })
                || self.transmit(number, transmit).is_err()
            {
                break;
            }
        }
        // If that fails, the peer cannot be told.
        let _ = self.connection.flush();
    }

    /// Reads a message, if there is one. Returns how much memory it takes.
    fn read_one(
        &mut self,
        cause: Cause,
        now: &mut Option<Timestamp>,
        effects: &mut EndEffects,
    ) -> Result<Option<u64>> {
        if self.is_full() {
            // The last messages of a client are useless without the client.
            return match self.session.is_server() && self.readiness().has_hung_up() {
                true => Err(Error::disconnected("the client has closed the connection")),
                false => Ok(None),
            };
        }
        let Some(message) = self.receive(cause)? else {
            let waiting = self.connection.waiting();
            if self.session.nothing_came(waiting)? {
                self.connection.forget_bodies(waiting.unwrap_or_default());
            }
            return Ok(None);
        };
        let bytes = message.1.held_bytes();
        self.handle(message, *now.get_or_insert_with(clock::now), effects)?;
        Ok(Some(bytes))
    }

    /// What a consumer waits for on this connection. `reads`: the stream may be read.
    pub fn wants_of_consumer(&mut self, reads: bool) -> Wants {
        // Messages that may not be read now must not end a sleep.
        let read = reads && self.session.closed().is_none() && self.connection.waiting().is_none();
        Wants {
            read,
            write: self.is_writing(),
            again: match (self.doze() || self.unread.is_left) && read {
                true => Again::Now,
                false => Again::OnEvent,
            },
        }
    }

    /// Gives back bodies that no consumer will see.
    pub(super) fn give_back(&mut self, bodies: Vec<Return>, effects: &mut EndEffects) {
        let (is_due, at) = self.returns.push(bodies.into_iter());
        effects.schedule(at);
        if is_due {
            self.write_on(effects);
        }
    }

    /// Unmaps a region of the peer's, and tells the peer that it may free the region.
    pub(super) fn unmap(&mut self, id: u16, effects: &mut EndEffects) -> Result<()> {
        let unmap = |regions: &mut dyn PeerRegions| regions.unmap(id);
        match self.connection.with_regions(unmap)? {
            Unmapped::Now if self.connection.traffic().queued > ANSWERS_HIGH_WATER_BYTES => {
                return Err(Error::protocol(
                    "the peer retires region after region and does not read the answers",
                ));
            }
            Unmapped::Now => self.flush_with([forget(id)], effects),
            Unmapped::Later => effects.unmapping.push(id),
        }
        Ok(())
    }
}

impl EndEffects {
    pub(super) fn schedule(&mut self, at: Option<Timestamp>) {
        self.upkeep_at = self.upkeep_at.into_iter().chain(at).min();
    }
}

/// Hands on what the connection `bodies` has brought to the stream of the connection `stream`, and
/// does what the stream asks for. No lock of a connection is held.
pub fn hand_on_bodies(bodies: &EndLink, stream: &EndLink) {
    let (messages, closed) = bodies.interfere(|end, _| {
        let messages = end.session.first_mut().take_bodies();
        (messages, end.session.closed().cloned())
    });
    let work = stream.interfere(|end, effects| {
        let handled =
            (end.session)
                .first_mut()
                .handle_bodies(clock::now(), messages, closed.as_ref());
        if let Err(error) = &handled {
            end.close(error.clone(), effects);
        }
        end.flush_output(effects);
        let work = end
            .session
            .first_mut()
            .incoming_mut()
            .map(IncomingStream::take_bodies_work);
        handled.map(|()| work.unwrap_or_default())
    });
    bodies.interfere(|end, effects| {
        match work {
            Ok(work) => (work.into_iter()).for_each(|work| end.work_for_bodies(0, work, effects)),
            Err(error) => end.close(error, effects),
        }
        end.flush_with(None, effects);
    });
}

/// The error of a connection whose peer's process has ended.
pub fn peer_has_ended(peer: &str, is_client: bool) -> Error {
    let name = if is_client { "peer" } else { "server" };
    Error::disconnected(format!("the {name}'s process ({peer}) has ended"))
}
