//! What the thread of a stream does while the consumer has no room for more: it reads what the consumer says, looks for
//! a while, and then it sleeps.

use std::sync::Arc;
use std::time::Duration;

use super::pace::Holds;
use super::{Cursor, Production};
use crate::driver::callbacks::release_here;
use crate::driver::clock;
use crate::driver::served::ServedLink;
use crate::error::{Error, Result};
use crate::proto::Timestamp;

/// How long a batch may take, to make and to send, for the stream's thread to read beside it. For a
/// slower one a wake of the I/O thread for every half window costs little, and two threads do more
/// than one.
const QUICK: Duration = Duration::from_micros(50);
/// After that many slow batches, one after the other, the next one is expected to be slow, too.
pub(super) const MOST_SLOW: u32 = 4;

impl Production {
    /// Waits until everything said so far has been sent and the consumer has room for more.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline, `Cancelled`, `Disconnected`.
    pub fn wait_for_room(&mut self, deadline: Option<Timestamp>) -> Result<()> {
        let took = clock::since(self.pulled_at);
        // Some take long only because their write woke the consumer, for those before them too.
        self.slow = match self.own_link().is_some() && took < QUICK {
            true => 0,
            false => (self.slow + 1).min(MOST_SLOW),
        };
        if self.is_quick() {
            self.read_along(false);
        } else {
            self.hand_back();
        }
        self.wait_until(deadline, |this| Ok(this.advance()? && this.may_pull()?))?;
        self.has_room = true;
        self.pulled_at = clock::now();
        self.returned_at = self.pulled_at;
        Ok(())
    }

    pub(super) fn wait_until(
        &mut self,
        deadline: Option<Timestamp>,
        mut done: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        loop {
            if let Some(error) = &self.broken {
                return Err(error.clone());
            }
            let seen = self.stream.signal.changes();
            if done(self)? {
                return Ok(());
            }
            if self.stream.is_given_up() {
                return Err(Error::cancelled("another call has failed the request"));
            }
            self.uncork();
            if self.look_briefly(seen) {
                continue;
            }
            // The end of lingering is no event: it has to be waited for.
            let linger = self.linger.filter(|linger| clock::now() < *linger);
            let wake = [deadline, linger].into_iter().flatten().min();
            let wait = || self.stream.signal.wait(seen, wake);
            let told = match &self.busy {
                Some(busy) => busy.rest(wait),
                None => wait(),
            };
            if !told && deadline.is_some_and(|d| clock::now() >= d) {
                return Err(Error::timeout(
                    "the consumer took no batch within the time given",
                ));
            }
        }
    }

    /// Whether a batch that was `made_in` so long may wait for those after it.
    pub(super) fn holds_back(&mut self, made_in: Duration) -> bool {
        // Both ends spin to be told at once.
        let link = self.own_link().filter(|link| link.io().spin().is_zero());
        let Some(link) = link.cloned() else {
            return false;
        };
        let holds = self.pace.holds(self.pulled_at, made_in);
        if holds == Holds::FromNow {
            link.cork_briefly();
        }
        holds != Holds::Nothing
    }

    /// Nothing said so far waits for a batch any more.
    pub(super) fn uncork(&mut self) {
        if !self.pace.take_held() {
            return;
        }
        for cursor in &self.cursors {
            if let Some(link) = &cursor.link {
                link.uncork();
            }
        }
    }

    /// Whether the next batch is expected to be sent soon after there is room for it.
    fn is_quick(&self) -> bool {
        self.slow < MOST_SLOW
    }

    /// The connection that this thread may read for itself.
    fn own_link(&self) -> Option<&Arc<ServedLink>> {
        match self.cursors.as_slice() {
            [Cursor { link, .. }] => link.as_ref(),
            _ => None,
        }
    }

    /// Reads what has come, where that is this thread's to do, and releases what is back.
    fn read_along(&self, at_once: bool) {
        if let Some(link) = self.own_link() {
            release_here(|| link.read_along(at_once));
        }
    }

    /// Leaves the reading to the I/O thread, of each part too: the thread that has read a request reads on at first.
    pub(super) fn hand_back(&self) {
        for link in self.cursors.iter().filter_map(|it| it.link.as_ref()) {
            link.hand_back();
        }
    }

    /// Looks for room before a sleep. Returns whether something has changed since `seen`.
    fn look_briefly(&mut self, seen: u64) -> bool {
        if !self.is_quick() || self.own_link().is_none() {
            return false;
        }
        let mut brief = std::mem::take(&mut self.brief);
        let found = brief.look(|| {
            self.read_along(true);
            self.stream.signal.changes() != seen
        });
        self.brief = brief;
        if !found {
            self.hand_back();
        }
        found
    }

    fn may_pull(&self) -> Result<bool> {
        for cursor in &self.cursors {
            if let Some(link) = &cursor.link
                && !link.has_room(None, false)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
