//! What a consumer does while nothing has come.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Fetch;
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::driver::waiting;
use crate::error::Result;
use crate::proto::Timestamp;

/// What a consumer looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Take,
    /// Anything that ends its wait.
    Wait,
    /// How many batches are there. The consumer then waits for something else, so that the
    /// descriptors have to tell of what comes.
    Count,
}

impl Fetch {
    /// At a server: has the connection know whether the host waits for the client's next batch.
    /// Others may want the place of a stream that waits for long.
    pub(super) fn say_waiting(&mut self, waits: bool) {
        if self.inbound.receiver.is_of_client()
            && std::mem::replace(&mut self.is_waiting_said, waits) != waits
        {
            let batches = waits.then_some(self.stats.batches);
            for (_, connection) in self.connections.iter_mut() {
                connection.step(|end, _| end.session.set_host_waiting(batches));
            }
        }
    }

    /// Waits until something may have come. Fails if the stream has failed or `cancel` was
    /// triggered.
    pub(super) fn wait(&mut self, look: Look, cancel: Option<&Cancel>) -> Result<()> {
        if let Some(Err(error)) = cancel.map(Cancel::check) {
            return Err(self.abort(error));
        }
        self.inbound.receiver.handle_timeout(clock::now());
        self.check()?;
        let finds = |this: &mut Self| this.look(look) || this.inbound.receiver.error().is_some();
        if !self.spin.is_zero()
            && waiting::spin(self.spin, cancel, |upkeep| {
                if let Some(now) = upkeep {
                    self.look_after(now);
                }
                finds(self)
            })
        {
            return Ok(());
        }
        // Rule E5: before a sleep, the server is told of everything taken, or both would wait.
        self.tell_credit();
        let mut looks = std::mem::take(&mut self.looks);
        let found = self.spin.is_zero() && looks.look(|| finds(self));
        self.looks = looks;
        if !found {
            self.sleep(cancel)?;
        }
        Ok(())
    }

    /// What a spinning consumer does each millisecond, before it looks.
    fn look_after(&mut self, now: Timestamp) {
        let has_died = |link: &Arc<EndLink>| link.readiness().peer_has_died();
        self.peer_has_died = self.inbound.links.iter().any(has_died);
        // A ring does not tell that the server has ended, or hung up.
        self.doze();
        // The server may wait for credit that is held back until half a window is taken.
        self.inbound.receiver.flush_credit();
        self.inbound.receiver.handle_timeout(now);
    }

    /// Has the descriptors tell of what comes.
    pub(super) fn doze(&mut self) {
        for (_, connection) in self.connections.iter_mut() {
            connection.step(|end, _| end.doze());
        }
    }

    /// Sleeps until one of the connections has something, or time has passed.
    fn sleep(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        let Self {
            connections,
            inbound,
            bell,
            ..
        } = self;
        let mut all = SmallVec::<[_; 2]>::new();
        for (side, connection) in connections.iter_mut() {
            let wants = connection.step(|end, _| inbound.wants(side, end));
            all.push((connection.link().readiness(), wants));
        }
        let deadline = inbound.receiver.poll_timeout();
        self.peer_has_died = waiting::sleep(all, bell.as_deref(), cancel, deadline)?;
        Ok(())
    }
}
