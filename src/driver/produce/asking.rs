//! A stream that a client sends: the request, and the waits for the server's answers.

use super::production::Production;
use crate::driver::end::End;
use crate::error::Result;
use crate::proto::{PutProgress, PutStage, Request, Timestamp};

impl Production {
    /// Asks the server to take the stream. [`start`](Self::start) sends the schema (rule Q3).
    ///
    /// # Errors
    ///
    /// As [`End::ask`].
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        if let Some(account) = &mut self.account {
            account.is_asked = true;
        }
        self.attach_joined();
        for outlet in &mut self.outlets {
            outlet.ask(|number, end, effects| end.ask(number, request, effects))?;
        }
        Ok(())
    }

    /// Waits until `find` finds something in the server's answers. Meanwhile sends what can be
    /// sent.
    ///
    /// # Errors
    ///
    /// `Timeout` at the deadline, `Cancelled`, and whatever ended the stream.
    pub fn wait_for_answer<R>(
        &mut self,
        deadline: Option<Timestamp>,
        mut find: impl FnMut(&mut PutProgress) -> Option<R>,
    ) -> Result<R> {
        let mut found = None;
        self.wait_until(deadline, |this| {
            found = this.progress(&mut find);
            if found.is_none() {
                // An answer counts even if the connection has ended after it.
                this.advance()?;
                for outlet in &this.outlets {
                    outlet.room.ensure_streaming()?;
                }
            }
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| crate::error::Error::timeout("the server has not answered"))
    }

    /// Waits for the server's first word, which says whether the connection carries many streams.
    /// If it does, the stream becomes a guest. Only for a stream whose request is the first one on
    /// its connection.
    ///
    /// # Errors
    ///
    /// As [`wait_for_answer`](Self::wait_for_answer).
    pub fn wait_for_streams(&mut self, deadline: Option<Timestamp>) -> Result<bool> {
        let mut is_many = false;
        self.wait_until(deadline, |this| {
            let turner = this.outlets.first().and_then(|it| it.turner.as_ref());
            is_many = turner.is_some_and(|it| it.link().inspect(|end| end.session.is_many()));
            let heard = |put: &mut PutProgress| (put.stage > PutStage::Asked).then_some(());
            let is_heard = this.progress(heard).is_some();
            if !is_many && !is_heard {
                this.advance()?;
                for outlet in &this.outlets {
                    outlet.room.ensure_streaming()?;
                }
            }
            Ok(is_many || is_heard)
        })?;
        for outlet in self.outlets.iter().filter(|_| !is_many) {
            // A refusal does not say whether the server takes many streams.
            outlet.room.ensure_streaming()?;
        }
        let first = self.outlets.first_mut();
        if let Some(turner) = first.and_then(|it| it.turner.as_mut()) {
            match is_many {
                true => turner.become_guest(),
                false => turner.step(|end, _| end.session.keep_one()),
            }
        }
        Ok(is_many)
    }

    /// Waits until a batch may be pushed, or `find` finds something in the server's answers.
    ///
    /// # Errors
    ///
    /// As [`wait_for_answer`](Self::wait_for_answer).
    pub fn wait_for_room_or<R>(
        &mut self,
        deadline: Option<Timestamp>,
        mut find: impl FnMut(&mut PutProgress) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut found = None;
        self.wait_until(deadline, |this| {
            found = this.progress(&mut find);
            Ok(found.is_some() || (this.advance()? && this.may_pull()?))
        })?;
        Ok(found)
    }

    /// Finds something in the server's answers.
    pub fn progress<R>(&mut self, find: impl FnMut(&mut PutProgress) -> Option<R>) -> Option<R> {
        let outlet = self.outlets.first_mut()?;
        let progress =
            |number, end: &mut End, _: &mut _| Ok(end.stream_mut(number)?.put_mut().and_then(find));
        outlet.ask(progress).ok().flatten()
    }
}
