//! A stream of a provider, or of a host that pushes batches, on its way out.
//!
//! A stream has one outlet or two. Every item of the stream is kept in a log until each outlet has
//! sent it. With one outlet the log is empty between two batches. With two outlets it holds what
//! the slower one has still to send, bounded by the window: nothing is pulled while an outlet has
//! no room.
//!
//! A second outlet may come late. It never comes if the other connection leads to another server
//! (rule E6 shares a provider call only within one server). The log drops the batches that the
//! consumer has taken, because the consumer must have had both parts of these.

use std::collections::VecDeque;
use std::sync::Arc;

use super::filtering::RowFilter;
use super::options::ProduceOptions;
use super::outlet::{Outlet, StreamItem};
use super::stream::OutStream;
use crate::arrow::select::Selector;
use crate::arrow::{Encoder, OwnedDeviceArray};
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::polling::Poller;
use crate::driver::telling::Account;
use crate::driver::turning::Turner;
use crate::driver::waiting::{self, Cause, Looks, RETRY};
use crate::error::{Error, Result, Status};
use crate::proto::{Role, StreamInfo, Timestamp};

/// The producing side of one stream. Dropping it unfinished fails the stream.
pub struct Production {
    pub(super) stream: Arc<OutStream>,
    looks: Looks,
    pub(super) options: ProduceOptions,
    pub(super) encoder: Option<Encoder>,
    /// What the client has selected, if anything.
    pub(super) selector: Option<Selector>,
    /// The rows that the client wants, if it sent a filter.
    pub(super) filter: Option<RowFilter>,
    pub(super) log: VecDeque<StreamItem>,
    first: u64,
    /// Record batches so far, and how many of them an absent part no longer needs.
    batches: u64,
    passed: u64,
    pub(super) outlets: Vec<Outlet>,
    pub(super) finished: bool,
    /// Until when a finished stream waits for a part that may never come.
    pub(super) linger: Option<Timestamp>,
    /// A failure after a batch had been taken: the next call returns it.
    pub(super) broken: Option<Error>,
    /// There was room, and nothing was sent since then. In that time credit can only grow.
    has_room: bool,
    pub(super) ending: Option<Box<dyn FnOnce() + Send>>,
    pub(super) account: Option<Box<Account>>,
    /// The poller of a host with an event loop.
    pub(super) poller: Option<Box<Poller>>,
    /// When the poller wakes the host in any case.
    pub(super) alarm: Option<Timestamp>,
    /// Once it is cancelled, nothing more is sent, and each wait for the consumer ends.
    pub(super) cancel: Option<Cancel>,
}

impl Production {
    /// Begins to produce for `stream`. `ending` is called just before the last word is sent,
    /// because a client may ask for the next stream as soon as it has the last word.
    pub fn new(
        stream: Arc<OutStream>,
        options: ProduceOptions,
        ending: Box<dyn FnOnce() + Send>,
    ) -> Self {
        Self {
            looks: Looks::default(),
            account: options.counting.account(&stream.ticket, &stream.peer),
            stream,
            options,
            encoder: None,
            selector: None,
            filter: None,
            log: VecDeque::new(),
            first: 0,
            batches: 0,
            passed: 0,
            outlets: Vec::new(),
            finished: false,
            linger: None,
            broken: None,
            has_room: false,
            ending: Some(ending),
            poller: None,
            alarm: None,
            cancel: None,
        }
    }

    /// Fails if the stream was begun.
    pub fn ensure_fresh(&self) -> Result<()> {
        if self.finished || self.encoder.is_some() {
            return Err(Error::invalid_argument("the stream was begun before"));
        }
        Ok(())
    }

    /// Makes `callbacks` release the arrays of a stream that was not begun.
    pub fn release_by(&mut self, callbacks: Callbacks) -> Result<()> {
        self.ensure_fresh()?;
        self.options.callbacks = callbacks;
        Ok(())
    }

    /// Begins with the schema of the encoder, whose arrays are on this device.
    pub(super) fn begin(&mut self, encoder: Encoder, device_type: i32) -> Result<()> {
        self.log.push_back(StreamItem::Schema {
            header: Arc::clone(encoder.schema_header()),
            info: StreamInfo::of(device_type, 0),
        });
        self.encoder = Some(encoder);
        self.advance().map(drop)
    }

    /// Sends one record batch, after its dictionaries. Once the batch is taken, a failure is
    /// returned by the next call, because the consumer may have a part of the batch.
    ///
    /// Gives the array back if there was no room in time, the array is not valid, or something has
    /// ended the stream.
    pub(super) fn send(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        deadline: Option<Timestamp>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let ready = self.ensure_room(deadline);
        let encoder = match ready.and_then(|()| self.encoder.as_mut().ok_or_else(no_schema)) {
            Ok(encoder) => encoder,
            Err(error) => return Err((error, array)),
        };
        self.has_room = false;
        let given = self.options.counting.given(self.batches);
        let messages = encoder
            .try_encode(array, custom_metadata)
            .map_err(|refused| *refused)?;
        self.batches += 1;
        let items = messages.into_iter();
        (self.log).extend(items.map(|message| StreamItem::Message(message, given)));
        self.broken = self.advance().err();
        Ok(())
    }

    /// Waits for room, unless there was room and nothing was sent since.
    pub(super) fn ensure_room(&mut self, deadline: Option<Timestamp>) -> Result<()> {
        match self.finished {
            true => Err(Error::invalid_argument(
                "the stream has been finished already",
            )),
            false if self.has_room => self.ensure_not_cancelled(),
            false => self.wait_for_room(deadline),
        }
    }

    fn ensure_not_cancelled(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), Cancel::check)
    }

    /// Waits until everything said so far has been sent and the consumer has room for more. Fails
    /// with `Timeout` at the deadline, `Cancelled`, `Disconnected`.
    pub fn wait_for_room(&mut self, deadline: Option<Timestamp>) -> Result<()> {
        self.wait_until(deadline, |this| Ok(this.advance()? && this.may_pull()?))?;
        self.has_room = true;
        Ok(())
    }

    /// Batches that the consumer has room for now, if they are small enough. Fails as
    /// [`wait_for_room`](Self::wait_for_room) without time does.
    pub fn room(&mut self) -> Result<u64> {
        self.wait_for_room(Some(clock::now()))?;
        let rooms = self.present().map(|outlet| outlet.room.batches());
        Ok(rooms.min().unwrap_or(0))
    }

    pub(super) fn wait_until(
        &mut self,
        deadline: Option<Timestamp>,
        mut done: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let is_done = self.is_done(&mut done)?;
        let outcome = match is_done {
            true => Ok(()),
            false => self.wait_undone(deadline, &mut done),
        };
        let has_waited = !is_done;
        if let Some(mut poller) = self.poller.take() {
            let comes_back = (outcome.as_ref()).is_err_and(|it| it.status() == Status::Timeout);
            match comes_back {
                true => self.arm(&mut poller),
                false => poller.wait_for([], None),
            }
            self.poller = Some(poller);
            if comes_back {
                // The host turns the connections again when the descriptor announces something, so
                // the I/O thread need not stand in.
                return outcome;
            }
        }
        if has_waited {
            self.outlets.iter_mut().for_each(Outlet::enter_host);
        }
        outcome
    }

    fn wait_undone(
        &mut self,
        deadline: Option<Timestamp>,
        done: &mut impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let has_time = deadline.is_none_or(|deadline| clock::now() < deadline);
            if has_time && !self.is_guest() && self.look(done)? {
                return Ok(());
            }
            let bell = self.set_bell();
            // A call without time may be made because the descriptor announced room to write.
            self.turn(match has_time {
                true => Cause::Look,
                false => Cause::Woken,
            });
            if self.is_done(done)? {
                return Ok(());
            }
            self.sleep(bell.as_deref(), deadline)?;
            if self.is_done(done)? {
                return Ok(());
            }
        }
    }

    /// Whether the I/O thread reads the peer's messages, so that a look here is useless.
    fn is_guest(&self) -> bool {
        self.present()
            .any(|outlet| outlet.turner.as_ref().is_some_and(Turner::is_guest))
    }

    fn is_done(&mut self, done: &mut impl FnMut(&mut Self) -> Result<bool>) -> Result<bool> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let is_done = done(self)?;
        if !is_done && self.stream.is_given_up() {
            return Err(given_up());
        }
        Ok(is_done)
    }

    /// Turns the connections for a moment. Returns whether the wait is over.
    fn look(&mut self, done: &mut impl FnMut(&mut Self) -> Result<bool>) -> Result<bool> {
        let mut looks = std::mem::take(&mut self.looks);
        let mut outcome = Ok(false);
        looks.look(|| {
            self.turn(Cause::Look);
            outcome = self.is_done(done);
            !matches!(outcome, Ok(false))
        });
        self.looks = looks;
        outcome
    }

    /// Makes other threads ring from now on when they change something.
    fn set_bell(&mut self) -> Option<Arc<Bell>> {
        let bell = self.stream.bell().ok().cloned();
        let turners = self.outlets.iter_mut().filter_map(|it| it.turner.as_mut());
        turners.for_each(|turner| turner.set_bell(bell.clone()));
        // Silenced before the turn that sees what it rang for.
        if let Some(bell) = bell.as_ref().filter(|bell| bell.has_rung()) {
            bell.silence();
        }
        bell
    }

    /// Sleeps until a connection has something to do, and turns the connections.
    fn sleep(&mut self, bell: Option<&Bell>, deadline: Option<Timestamp>) -> Result<()> {
        let now = clock::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Err(Error::timeout(
                "the consumer took no batch within the time given",
            ));
        }
        if let Some(poller) = &mut self.poller {
            // The poller's descriptor may belong to the bell.
            poller.wait_for([], None);
        }
        // No event announces the end of lingering, nor, without a bell, a change.
        let linger = self.linger.filter(|linger| now < *linger);
        let unheard = bell.is_none().then(|| now.saturating_add(RETRY));
        let until = [deadline, linger, unheard].into_iter().flatten().min();
        let turners = self.outlets.iter().filter_map(|it| it.turner.as_ref());
        let links = turners.map(|turner| (turner.link().readiness(), turner.wants()));
        let cause = waiting::sleep(links, bell, self.cancel.as_ref(), until)?;
        self.turn(cause);
        Ok(())
    }

    fn turn(&mut self, cause: Cause) {
        self.outlets
            .iter_mut()
            .for_each(|outlet| outlet.turn(cause));
    }

    pub(super) fn may_pull(&self) -> Result<bool> {
        let mut present = self.present();
        present.try_fold(true, |all, outlet| Ok(outlet.room.may_pull()? && all))
    }

    fn present(&self) -> impl Iterator<Item = &Outlet> {
        self.outlets.iter().filter(|outlet| outlet.turner.is_some())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.present().count() == self.outlets.len()
    }

    /// Whether nobody needs the stream any more, once all present parts have sent everything.
    pub(super) fn is_over(&self, linger: Timestamp) -> bool {
        if self.is_whole() || self.present().any(|it| it.room.ensure_streaming().is_err()) {
            return true;
        }
        match self.batches {
            0 => self.taken() > 0 || clock::now() >= linger,
            batches => self.taken() >= batches,
        }
    }

    fn taken(&self) -> u64 {
        let taken = self.outlets.iter().map(|outlet| outlet.room.taken);
        taken.max().unwrap_or(0)
    }

    pub(super) fn attach_joined(&mut self) {
        // A stream that has begun with one part gets no second part.
        if self.outlets.len() == 1 {
            return;
        }
        let (joined, absent) = {
            let mut outlets = self.stream.outlets.lock();
            (std::mem::take(&mut outlets.joined), outlets.absent)
        };
        for (turner, role) in joined {
            self.outlet(role).join(turner);
        }
        if let Some(absent) = absent {
            self.outlet(absent);
        }
    }

    fn outlet(&mut self, role: Role) -> &mut Outlet {
        let known = (self.outlets.iter()).position(|outlet| outlet.placer.role == role);
        let at = known.unwrap_or_else(|| {
            let outlet = Outlet::new(role, &self.options, self.first);
            self.outlets.push(outlet);
            self.outlets.len() - 1
        });
        &mut self.outlets[at]
    }

    /// Sends what can be sent now. Returns whether every part that is present has sent everything.
    /// Every wait calls this, so a cancel ends each of them.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.ensure_not_cancelled()?;
        self.attach_joined();
        let mut caught_up = true;
        for index in 0..self.outlets.len() {
            caught_up &= self.advance_one(index)?;
        }
        self.trim();
        Ok(caught_up)
    }

    fn advance_one(&mut self, index: usize) -> Result<bool> {
        loop {
            let outlet = &mut self.outlets[index];
            if outlet.turner.is_none() || outlet.done {
                return Ok(true);
            }
            if !outlet.send_placed(&mut self.account)? {
                return Ok(false);
            }
            match self.log.get(place(outlet.next, self.first)) {
                None => return Ok(true),
                Some(StreamItem::Message(message, given)) => {
                    if !outlet.place((message, *given), &self.options)? {
                        return Ok(false);
                    }
                    outlet.next += 1;
                }
                Some(item) => {
                    let item = item.clone();
                    outlet.next += 1;
                    if matches!(item, StreamItem::End) {
                        self.end();
                    }
                    self.outlets[index].send(item)?;
                }
            }
        }
    }

    fn trim(&mut self) {
        let taken = self.taken();
        for outlet in self.outlets.iter_mut().filter(|it| it.turner.is_none()) {
            while self.passed < taken
                && let Some(item) = self.log.get(place(outlet.next, self.first))
            {
                outlet.next += 1;
                self.passed += u64::from(item.is_batch());
            }
        }
        let needed = self.outlets.iter().map(|outlet| outlet.next).min();
        let needed = needed.unwrap_or(self.first);
        while self.first < needed && self.log.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// The index of an item in a log that begins with the item `first`.
fn place(item: u64, first: u64) -> usize {
    usize::try_from(item - first).unwrap_or(usize::MAX)
}

pub(super) fn given_up() -> Error {
    Error::cancelled("another call has failed the request")
}

pub(super) fn no_schema() -> Error {
    Error::invalid_argument("the stream has no schema yet: start it first")
}
