//! A connection's part in a stream that comes in: messages, the peer's memory, and returns.

use std::sync::Arc;

use super::{End, EndEffects, EndLink, Kept, Leftover};
use crate::device::cuda::Device;
use crate::driver::clock;
use crate::driver::returns::forget;
use crate::driver::telling;
use crate::driver::turning::{ANSWERS_HIGH_WATER_BYTES, Budget};
use crate::driver::waiting::RETRY;
use crate::error::{Error, Result, Status};
use crate::proto::{Handled, Held, Side};
use crate::transport::{Incoming, Outgoing, PeerRegions, Unmapped};

impl End {
    /// Whether the peer runs as the same user.
    pub fn same_user(&self) -> bool {
        self.connection.identity().same_user
    }

    /// Whether it can serve another stream: it is not over, and what the server has announced is
    /// there.
    pub fn is_sound(&mut self) -> bool {
        self.session.closed().is_none()
            && !self.session.is_dismissed()
            && self.connection.with_regions(|regions| regions.is_sound())
    }

    /// Why the connection is over, once it is.
    pub fn closed(&self) -> Option<&Error> {
        self.session.closed()
    }

    /// See [`PeerRegions::misses_gpus`].
    pub fn misses_gpus(&mut self) -> bool {
        self.connection
            .with_regions(|regions| regions.misses_gpus())
    }

    /// A stream is about to come in. `gpu` is where its packed bodies shall go
    /// ([`PeerRegions::receive_on`]), `gpus` are those that the request names. `early_bytes`: so
    /// much is read in place of a holder that is in the host's code.
    pub fn begin_receiving(
        &mut self,
        gpu: Option<&Arc<Device>>,
        gpus: &[[u8; 16]],
        early_bytes: u64,
    ) {
        self.session.begin_receiving(early_bytes);
        self.connection.begin_stream(early_bytes);
        self.connection.with_regions(|regions| {
            regions.receive_on(gpu);
            regions.accept_gpus(gpus);
        });
        self.wake();
    }

    /// Everything of a stream has come, or nothing more comes.
    pub fn end_receiving(&mut self) {
        self.connection.forget_bodies();
        self.connection.end_stream();
        self.session.end_receiving();
    }

    /// No stream comes after the last one: the connection serves the arrays that point into its
    /// memory.
    pub fn retire(&mut self, link: &Arc<EndLink>, effects: &mut EndEffects) {
        self.session.retire();
        self.kept = Kept::Retired(Arc::clone(link));
        self.let_go(effects);
    }

    /// Ends a connection that no client has any more, unless the server still has memory of it, or
    /// owes an answer.
    pub(super) fn let_go(&mut self, effects: &mut EndEffects) {
        if !self.session.is_needed() {
            self.let_go_retired(effects);
        }
    }

    pub(super) fn let_go_retired(&mut self, effects: &mut EndEffects) {
        if let Kept::Retired(link) = &mut self.kept {
            effects.unkept = Some(Arc::clone(link));
            self.kept = Kept::Nothing;
        }
    }

    /// Has the rest of a stream keep the connection: it is read in the connection's turns.
    pub fn keep_for(&mut self, side: Side, left: Arc<dyn Leftover>) {
        self.kept = Kept::Leftover(side, left);
    }

    /// The rest of a stream that keeps the connection, and which of its connections this is.
    pub(super) fn leftover(&self) -> Option<(Side, Arc<dyn Leftover>)> {
        match &self.kept {
            Kept::Leftover(side, left) => Some((*side, Arc::clone(left))),
            Kept::Nothing | Kept::Retired(_) => None,
        }
    }

    /// Nothing of such a stream comes any more.
    pub fn forget_leftover(&mut self) {
        if matches!(self.kept, Kept::Leftover(..)) {
            self.kept = Kept::Nothing;
        }
    }

    /// Messages are looked for from now on, until [`doze`](Self::doze).
    pub fn wake(&mut self) {
        if !self.is_awake {
            self.is_awake = true;
            self.connection.wake();
        }
    }

    /// The owner is about to wait for the descriptors. Returns whether there is something to be
    /// read first.
    pub fn doze(&mut self) -> bool {
        self.is_awake = false;
        self.connection.doze()
    }

    /// Whether something waits for room to be written.
    pub fn is_writing(&self) -> bool {
        self.session.closed().is_none() && self.connection.queued().bytes > 0
    }

    /// Sends messages, and with them the returns that wait, in one system call.
    pub fn say(&mut self, messages: impl IntoIterator<Item = Outgoing>, effects: &mut EndEffects) {
        if self.session.closed().is_some() {
            return;
        }
        for message in messages.into_iter().chain(self.returns.take()) {
            telling::sent(&*self.connection, &message);
            let _ = self.connection.queue(message);
        }
        self.write(effects);
    }

    /// Says the returns that are due at once, and writes on.
    pub fn write_on(&mut self, effects: &mut EndEffects) {
        if self.returns.is_urgent() {
            self.say(None, effects);
        } else if self.is_writing() {
            self.write(effects);
        }
    }

    /// The next message that has not been read. `asks_for_death`: once nothing is left to be read,
    /// the system is asked whether the peer's process has ended. On an error the caller
    /// [closes](Self::close) the connection.
    pub fn receive(&mut self, asks_for_death: bool) -> Result<Option<Incoming>> {
        self.session.ensure_open()?;
        // A message is not moved on its way up, which would take as long as to read it.
        let mut received = self.connection.receive();
        if matches!(received, Ok(None)) {
            if asks_for_death && self.readiness().peer_has_died() {
                return Err(peer_has_ended(
                    &self.connection.identity().peer,
                    self.session.is_server(),
                ));
            }
            // The caller first gets all messages, also those that came after the read above, and
            // then a failure to write.
            if self.reads_on()
                && let Err(error) = self.connection.flush()
            {
                let last = self.connection.receive();
                received = last.and_then(|last| last.map(Some).ok_or(error));
            }
        }
        match &mut received {
            Ok(Some(message)) => telling::received(&*self.connection, message),
            // A killed process's sockets end a moment before the process does.
            Err(error)
                if self.reads_on()
                    && error.status() == Status::Disconnected
                    && self.readiness().peer_dies_within(RETRY) =>
            {
                *error = peer_has_ended(&self.connection.identity().peer, self.session.is_server());
            }
            Ok(None) | Err(_) => {}
        }
        received
    }

    /// A failure to write ends nothing: the peer may be gone, and its last messages are not read
    /// yet. The reader finds the end behind them.
    pub(super) fn reads_on(&self) -> bool {
        !self.session.is_server()
    }

    /// Reads a message, if there is one, and keeps it if it belongs to the stream that comes in.
    /// Returns whether there was one.
    pub(super) fn read_own(&mut self, budget: Budget, effects: &mut EndEffects) -> Result<bool> {
        if self.session.is_full_of_early() {
            // What a client says last is of no use without the client.
            return match self.session.is_server() && self.readiness().has_hung_up() {
                true => Err(Error::disconnected("the client has closed the connection")),
                false => Ok(false),
            };
        }
        let Some(mut message) = self.receive(budget.asks_for_death)? else {
            if self.session.nothing_came(self.connection.is_waiting())? {
                self.connection.forget_bodies();
            }
            return Ok(false);
        };
        if let Handled::Stream(control) = self.handle(&mut message, effects)? {
            let bytes = message.held_bytes();
            let held = match message.body_len() {
                0 => Held::Other(bytes),
                _ => Held::Body(bytes),
            };
            self.session.set_aside(message, control, held)?;
        }
        Ok(true)
    }

    /// Tells the peer that it may free a region.
    pub(super) fn forget(&mut self, id: u16, effects: &mut EndEffects) -> Result<()> {
        if self.connection.queued().bytes > ANSWERS_HIGH_WATER_BYTES {
            return Err(Error::protocol(
                "the peer retires region after region and does not read the answers",
            ));
        }
        self.say([forget(id)], effects);
        Ok(())
    }

    /// Maps and unmaps regions of the peer as it says.
    pub(super) fn retire_peers_region(&mut self, id: u16, effects: &mut EndEffects) -> Result<()> {
        let unmap = |regions: &mut dyn PeerRegions| regions.unmap(id);
        match self.connection.with_regions(unmap)? {
            Unmapped::Now => self.forget(id, effects),
            Unmapped::Later => {
                effects.unmapping.push(id);
                Ok(())
            }
        }
    }

    /// When to try to write again, where the holder may wait for something else.
    pub(super) fn write_later_at(&self, effects: &mut EndEffects) {
        if self.is_writing() {
            effects.write_at = Some(clock::after(RETRY));
        }
    }
}

/// Why a connection is over whose peer's process has ended.
pub fn peer_has_ended(peer: &str, is_client: bool) -> Error {
    let name = if is_client { "peer" } else { "server" };
    Error::disconnected(format!("the {name}'s process ({peer}) has ended"))
}
