//! What a consumer does while nothing has come.

use smallvec::SmallVec;

use super::{Fetch, side_index};
use crate::cancel::Cancel;
use crate::driver::turning::Wants;
use crate::driver::waiting;
use crate::error::Result;
use crate::proto::{Side, Timestamp};

impl Fetch {
    /// Spins for a while. Returns whether something came, or the token was triggered.
    pub(super) fn look_on(&mut self, cancel: Option<&Cancel>) -> bool {
        if self.spin.is_zero() {
            return false;
        }
        self.links().iter().for_each(|link| link.wake());
        if self.step() {
            return true;
        }
        waiting::spin(self.spin, cancel, |upkeep| match upkeep {
            None => self.step(),
            Some(now) => self.look_after(now),
        })
    }

    /// What a spinning consumer does each millisecond. Returns whether something came.
    fn look_after(&mut self, now: Timestamp) -> bool {
        // Nobody says in a ring that the server has ended, or hung up.
        let links = self.links();
        self.suspected = links.iter().any(|link| link.readiness().peer_has_died());
        for link in &links {
            link.doze();
        }
        let came = self.step();
        links.iter().for_each(|link| link.wake());
        if came {
            return true;
        }
        // The server may wait for credit that is held back until half a window is taken.
        self.tell_credit();
        self.receiver.handle_timeout(now);
        self.receiver.error().is_some()
    }

    /// Looks for a moment, where it is not to spin. Returns whether something came.
    pub(super) fn look_briefly(&mut self) -> bool {
        if !self.spin.is_zero() {
            return false;
        }
        let mut looks = std::mem::take(&mut self.looks);
        let found = looks.look(|| self.step());
        self.looks = looks;
        found
    }

    /// Tells the server of everything that was taken.
    pub(super) fn tell_credit(&mut self) {
        self.receiver.flush_credit();
        self.pump();
    }

    /// Sleeps until one of the connections has something, or time has passed.
    pub(super) fn sleep(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        let sides = [(Side::Metadata, &self.metadata), (Side::Data, &self.data)];
        let count = if self.has_one_link() { 1 } else { 2 };
        let mut connections = SmallVec::<[_; 2]>::new();
        for (side, link) in sides.into_iter().take(count) {
            let wants = self.wants(side);
            if wants != Wants::default() && link.doze() && wants.read {
                return Ok(());
            }
            connections.push((link.readiness(), wants));
        }
        let deadline = self.receiver.poll_timeout();
        self.suspected = waiting::sleep(connections, None, cancel, deadline)?;
        Ok(())
    }

    fn wants(&self, side: Side) -> Wants {
        let link = self.link(side);
        if self.gone[side_index(side)] {
            return Wants::default();
        }
        Wants {
            // What may not be read now must not wake this thread either, or it would spin.
            read: self.may_read(side) && !link.is_waiting(),
            write: link.is_writing(),
            ..Wants::default()
        }
    }
}
