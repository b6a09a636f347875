//! What a consumer does while nothing has come.

use std::sync::Arc;

use smallvec::SmallVec;

use super::taken::Look;
use super::{Fetch, HostState, StreamSource};
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::driver::waiting::{self, Cause, Wants};
use crate::error::Result;
use crate::proto::{Side, Timestamp};

/// What is waited for on each connection of a stream.
pub(super) type EachWants = SmallVec<[(Arc<EndLink>, Wants); 2]>;

impl Fetch {
    /// At a server: tells the connection whether the host waits for the client's next batch. If a
    /// stream waits for long, its place may go to another stream.
    pub(super) fn note_host(&mut self, state: HostState) {
        if let StreamSource::Client(known) = &mut self.source
            && std::mem::replace(known, state) != state
        {
            let batches = (state == HostState::Waits).then_some(self.stats.batches);
            for (_, connection) in self.connections.iter_mut() {
                let number = connection.number();
                connection.step(|end, _| {
                    if let Ok(stream) = end.stream_mut(number) {
                        stream.set_host_waiting(batches);
                    }
                });
            }
        }
    }

    /// Waits until something may have come. Fails if the stream has failed or `cancel` was
    /// triggered.
    pub(super) fn wait(&mut self, look: Look, cancel: Option<&Cancel>) -> Result<()> {
        if let Some(Err(error)) = cancel.map(Cancel::check) {
            return Err(self.abort(error));
        }
        self.change(|stream| stream.handle_timeout(clock::now()));
        self.check()?;
        if self.is_guest() && self.bell.is_none() {
            // The caller looks once more.
            self.share(Arc::new(Bell::new()?));
            return Ok(());
        }
        let finds = |this: &mut Self| this.look(look);
        if !self.spin.is_zero()
            && waiting::spin(self.spin, cancel, |upkeep| {
                if let Some(now) = upkeep {
                    self.upkeep(now);
                }
                finds(self)
            })
        {
            return Ok(());
        }
        // Rule E5: before a sleep, the server is told of everything that was taken. Otherwise both
        // ends would wait.
        self.flush_credit();
        let mut looks = std::mem::take(&mut self.looks);
        let found = self.spin.is_zero()
            && looks.look(|| match (self.is_guest(), &self.bell) {
                // The thread that reads needs the lock.
                (true, Some(bell)) => bell.has_rung(),
                _ => finds(self),
            });
        self.looks = looks;
        if !found {
            self.sleep(cancel)?;
        }
        Ok(())
    }

    /// What a spinning consumer does once in a millisecond, before it looks.
    fn upkeep(&mut self, now: Timestamp) {
        self.notice_death();
        // A ring does not announce that the server has ended or hung up.
        self.doze();
        // The server may wait for credit that is held back until half a window is taken.
        self.change(|stream| {
            stream.flush_credit();
            stream.handle_timeout(now);
        });
    }

    /// Asks the system whether a peer's process has ended. Returns the answer.
    pub(super) fn notice_death(&mut self) -> bool {
        if self.is_guest() {
            // The I/O thread asks the system.
            return false;
        }
        let mut connections = self.connections.iter();
        let has_died = connections.any(|it| it.link().readiness().peer_has_died());
        self.cause = match has_died {
            true => Cause::Ready,
            false => Cause::Woken,
        };
        has_died
    }

    /// Makes the descriptors announce what comes.
    pub(super) fn doze(&mut self) {
        let holders = self
            .connections
            .iter_mut()
            .map(|(_, connection)| connection);
        for connection in holders.filter(|it| !it.is_guest()) {
            connection.step(|end, _| end.doze());
        }
    }

    /// Makes the I/O thread watch the deadlines of a stream that shares its connection.
    pub(super) fn keep_time(&mut self) {
        let metadata = &mut self.connections.metadata;
        let number = metadata.number();
        metadata.step(|end, _| end.keep_time(number));
    }

    /// Sleeps until one of the connections has something, or time has passed.
    fn sleep(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        if self.is_guest() {
            self.keep_time();
        }
        let (all, deadline) = self.wants();
        let all = all.iter().map(|(link, wants)| (link.readiness(), *wants));
        let all = all.collect::<SmallVec<[_; 2]>>();
        let bell = self.bell.as_deref();
        self.cause = waiting::sleep(all, bell, cancel, deadline)?;
        Ok(())
    }

    /// What the stream waits for on each connection, and until when.
    pub(super) fn wants(&mut self) -> (EachWants, Option<Timestamp>) {
        let sides = [Side::Metadata, Side::Data];
        let (reads, deadline) = self.stream(|stream| {
            let reads = sides.map(|side| stream.may_read(side));
            (reads, stream.poll_timeout())
        });
        let wants = (self.connections.iter_mut().zip(reads)).map(|((_, connection), reads)| {
            let wants = match connection.is_guest() {
                true => Wants::default(),
                false => connection.step(|end, _| end.wants_of_consumer(reads)),
            };
            (Arc::clone(connection.link()), wants)
        });
        (wants.collect(), deadline)
    }
}
