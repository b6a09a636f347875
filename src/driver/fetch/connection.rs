//! The client's end of one connection. It outlives the stream and the client while arrays point
//! into the server's memory (rule F6), and serves one stream after the other (rule E4).

use std::sync::Arc;

use super::left::{Left, LeftStream};
use super::returns::{ReturnQueue, forget};
use crate::device::cuda::{Device, later};
use crate::driver::clock;
use crate::driver::io::IoThread;
use crate::driver::telling;
use crate::driver::turning::{ANSWERS_HIGH_WATER_BYTES, Budget, Link, Turn, Turner, Wants};
use crate::driver::waiting::RETRY;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Control, Side, Timestamp};
use crate::transport::{Connection, Incoming, Outgoing, PeerRegions, Readiness, Unmapped};

/// One connection at a client: a stream holds its token, or the pool, or nobody.
pub type ClientLink = Link<ClientEnd>;

/// The client's end of a connection: what belongs to no stream alone.
pub struct ClientEnd {
    pub(super) link: Box<dyn Connection>,
    generation: Generation,
    returns: Arc<ReturnQueue>,
    closed: Option<Error>,
    /// Messages may come that the descriptor does not tell of.
    is_awake: bool,
    /// No stream comes after the last one, of which the rest is thrown away.
    is_retired: bool,
    /// The server serves no stream after the last one (GOAWAY).
    is_dismissed: bool,
    /// The stream that its consumer has left, and which of its connections this is.
    pub(super) left: Option<(Side, Arc<Left>)>,
}

/// What is done once the lock of the connection is released.
#[derive(Default)]
pub struct ClientEffects {
    /// Something could not be written: when to try again.
    write_at: Option<Timestamp>,
    /// Regions that a thread of ours is about to unmap.
    unmapping: Vec<u16>,
    /// The end of a stream that its consumer has left.
    pub(super) over: Option<Box<LeftStream>>,
}

impl ClientEnd {
    /// Takes over a connection. `free_tag` is the `free_data` of the server's URI (rule U2).
    pub fn open(link: Box<dyn Connection>, free_tag: Option<u64>, io: &IoThread) -> Turner<Self> {
        let returns = Arc::new(ReturnQueue::new(free_tag));
        let identity = link.identity().clone();
        let end = Self {
            link,
            generation: Generation::now(),
            returns: Arc::clone(&returns),
            closed: None,
            is_awake: false,
            is_retired: false,
            is_dismissed: false,
            left: None,
        };
        Link::held(end, returns, identity, io)
    }

    /// Whether the server runs as the same user.
    pub fn same_user(&self) -> bool {
        self.link.identity().same_user
    }

    /// Whether it can serve another stream: it is not over, and what the server has announced is
    /// there.
    pub fn is_sound(&mut self) -> bool {
        self.closed.is_none()
            && !self.is_dismissed
            && self.link.with_regions(|regions| regions.is_sound())
    }

    /// Why the connection is over, once it is.
    pub fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    /// See [`PeerRegions::misses_gpus`].
    pub fn misses_gpus(&mut self) -> bool {
        self.link.with_regions(|regions| regions.misses_gpus())
    }

    /// A stream is about to be asked for. `gpu` is where its packed bodies shall go
    /// ([`PeerRegions::receive_on`]), `gpus` are those that the request names.
    pub fn begin(&mut self, gpu: Option<&Arc<Device>>, gpus: &[[u8; 16]]) {
        self.link.begin_stream();
        self.link.with_regions(|regions| {
            regions.receive_on(gpu);
            regions.accept_gpus(gpus);
        });
        self.wake();
    }

    /// Everything of a stream has come, or nothing more comes.
    pub fn end(&mut self) {
        self.link.forget_bodies();
        self.link.end_stream();
    }

    /// No stream comes after the last one: the connection serves the arrays that point into its
    /// memory.
    pub fn retire(&mut self) {
        self.is_retired = true;
    }

    /// Messages are looked for from now on, until [`doze`](Self::doze).
    pub fn wake(&mut self) {
        if !self.is_awake {
            self.is_awake = true;
            self.link.wake();
        }
    }

    /// The owner is about to wait for the descriptors. Returns whether there is something to be
    /// read first.
    pub fn doze(&mut self) -> bool {
        self.is_awake = false;
        self.link.doze()
    }

    /// Whether something waits for room to be written.
    pub fn is_writing(&self) -> bool {
        self.closed.is_none() && self.link.queued().bytes > 0
    }

    /// Sends messages, and with them the returns that wait, in one system call.
    ///
    /// A failure to write ends nothing: a server may be gone whose last messages are not read yet.
    /// The reader finds the end behind them.
    pub fn say(
        &mut self,
        messages: impl IntoIterator<Item = Outgoing>,
        effects: &mut ClientEffects,
    ) {
        if self.closed.is_some() {
            return;
        }
        for message in messages.into_iter().chain(self.returns.take()) {
            telling::sent(&*self.link, &message);
            let _ = self.link.queue(message);
        }
        self.flush(effects);
    }

    fn flush(&mut self, effects: &mut ClientEffects) {
        let _ = self.link.flush();
        if self.is_writing() {
            effects.write_at = Some(clock::after(RETRY));
        }
    }

    /// Says the returns that are due at once, and writes on.
    pub fn write_on(&mut self, effects: &mut ClientEffects) {
        if self.returns.is_urgent() {
            self.say(None, effects);
        } else if self.is_writing() {
            self.flush(effects);
        }
    }

    /// The next message, which may be [the connection's own](Self::handles). `asks_for_death`: once
    /// nothing is left to be read, the system is asked whether the server's process has ended. On
    /// an error the caller [closes](Self::close) the connection.
    pub fn receive(&mut self, asks_for_death: bool) -> Result<Option<Incoming>> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        // A message is not moved on its way up, which would take as long as to read it.
        let mut received = self.link.receive();
        if matches!(received, Ok(None)) {
            if asks_for_death && self.readiness().peer_has_died() {
                return Err(server_has_ended(&self.link.identity().peer));
            }
            // The caller first gets all messages, also those that came after the read above, and
            // then a failure to write.
            if let Err(error) = self.link.flush() {
                let last = self.link.receive();
                received = last.and_then(|last| last.map(Some).ok_or(error));
            }
        }
        match &mut received {
            Ok(Some(message)) => telling::received(&*self.link, message),
            // A killed process's sockets end a moment before the process does.
            Err(error)
                if error.status() == Status::Disconnected
                    && self.readiness().peer_dies_within(RETRY) =>
            {
                *error = server_has_ended(&self.link.identity().peer);
            }
            Ok(None) | Err(_) => {}
        }
        received
    }

    fn readiness(&self) -> &Readiness {
        &self.link.identity().readiness
    }

    /// Handles REGION, REGION_GONE, READY and GOAWAY. Returns whether the message was one of them;
    /// a descriptor that came with another is closed. On an error the caller
    /// [closes](Self::close) the connection.
    pub fn handles(&mut self, message: &mut Incoming, effects: &mut ClientEffects) -> Result<bool> {
        let Incoming::Control { bytes, fd } = message else {
            return Ok(false);
        };
        let fd = fd.take();
        match Control::decode(bytes)? {
            Some(Control::Region { id, handle }) => {
                let map = |regions: &mut dyn PeerRegions| regions.map(id, &handle, fd);
                self.link.with_regions(map)?;
            }
            Some(Control::RegionGone { id }) => {
                match self.link.with_regions(|regions| regions.unmap(id))? {
                    Unmapped::Now => self.forget(id, effects)?,
                    Unmapped::Later => effects.unmapping.push(id),
                }
            }
            Some(Control::Ready { seq, event, handle }) => {
                let order = |regions: &mut dyn PeerRegions| regions.order(seq, event, &handle);
                self.link.with_regions(order)?;
            }
            Some(Control::GoAway) => self.is_dismissed = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Tells the server that it may free a region.
    fn forget(&mut self, id: u16, effects: &mut ClientEffects) -> Result<()> {
        if self.link.queued().bytes > ANSWERS_HIGH_WATER_BYTES {
            return Err(Error::protocol(
                "the server retires region after region and does not read the answers",
            ));
        }
        self.say([forget(id)], effects);
        Ok(())
    }

    /// Cuts the connection.
    pub fn close(&mut self, error: Error) {
        if self.closed.is_none() {
            tracing::debug!(
                "the connection to {} ends: {error}",
                self.link.identity().peer
            );
            self.closed = Some(error);
            self.link.close(None);
        }
    }

    /// Reads what comes while no stream is on the connection. Returns how many messages there were.
    fn read_idle(&mut self, budget: Budget, effects: &mut ClientEffects) -> Result<usize> {
        for read in 0..budget.messages {
            match self.receive(budget.asks_for_death)? {
                // A body that was not announced is thrown away.
                None if self.link.is_waiting() && self.is_retired => self.link.forget_bodies(),
                None if self.link.is_waiting() => return Err(unasked("a body")),
                // The server waits for the client's end, so that the client loses nothing unread.
                None if self.is_dismissed => {
                    return Err(Error::disconnected("the server is being stopped"));
                }
                None => return Ok(read),
                Some(mut message) => {
                    let is_known = self.handles(&mut message, effects)? || self.is_retired;
                    if !is_known && !is_unknown(&message)? {
                        return Err(unasked("a message"));
                    }
                }
            }
        }
        Ok(budget.messages)
    }
}

impl Turn for ClientEnd {
    type Beside = Arc<ReturnQueue>;
    type Effects = ClientEffects;

    /// A turn by the I/O thread. The thread of a stream turns the stream itself.
    fn turn(&mut self, budget: Budget, effects: &mut ClientEffects) -> Wants {
        self.doze();
        self.write_on(effects);
        let read = match self.left.clone() {
            Some((side, left)) => Ok(left.turn(side, self, budget, effects)),
            None => self.read_idle(budget, effects),
        };
        let soon = match read {
            Ok(read) => read > 0,
            Err(error) => {
                self.close(error);
                false
            }
        };
        Wants {
            soon,
            ..self.wants()
        }
    }

    fn wants(&self) -> Wants {
        Wants {
            read: true,
            write: self.is_writing(),
            at: None,
            soon: self.is_awake,
        }
    }

    fn upkeep(&mut self, now: Timestamp, effects: &mut ClientEffects) {
        self.say(None, effects);
        if let Some((_, left)) = &self.left {
            left.end_silence(now, effects);
        }
    }

    fn next_upkeep(&self) -> Option<Timestamp> {
        let silence = self.left.as_ref().and_then(|(_, left)| left.deadline());
        [self.returns.deadline(), silence]
            .into_iter()
            .flatten()
            .min()
    }

    fn fail(&mut self, error: Error, effects: &mut ClientEffects) {
        self.close(error);
        if let Some((_, left)) = self.left.take() {
            effects.over = left.take();
        }
    }

    fn is_over(&self) -> bool {
        self.closed.is_some()
    }

    fn settle(link: &Arc<ClientLink>, effects: ClientEffects) {
        if let Some(at) = effects.write_at {
            link.look_after(at);
        }
        for id in effects.unmapping {
            let weak = Arc::downgrade(link);
            // The server may free the memory once it is told.
            let tell = move || {
                if let Some(link) = weak.upgrade() {
                    link.forget(id);
                }
            };
            if later::after(tell).is_err() {
                link.forget(id);
            }
        }
        if let Some(stream) = effects.over {
            stream.end();
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        // A forked child closes its copies of the descriptors, and sends nothing.
        if !self.generation.is_same_process() {
            return;
        }
        self.say(None, &mut ClientEffects::default());
        if self.closed.is_none() {
            let peer = &self.link.identity().peer;
            tracing::debug!("the connection to {peer} ends: nothing needs it");
        }
        // Not cut: the transport closes the regions that it mapped first.
    }
}

pub(super) fn server_has_ended(peer: &str) -> Error {
    Error::disconnected(format!("the server's process ({peer}) has ended"))
}

/// Rule E4.
fn unasked(what: &str) -> Error {
    let text = format!("the server sent {what} while no stream was asked for");
    Error::protocol(text)
}

/// Rule E3: control messages of unknown kinds are ignored.
fn is_unknown(message: &Incoming) -> Result<bool> {
    match message {
        Incoming::Control { bytes, .. } => Ok(Control::decode(bytes)?.is_none()),
        _ => Ok(false),
    }
}
