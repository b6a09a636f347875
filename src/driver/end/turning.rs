//! A turn of a connection.

use std::sync::Arc;

use super::attached::Attached;
use super::receiving::hand_on_bodies;
use super::{
    ArrivedRequest, Context, End, EndEffects, EndLink, LentHold, Outbound, Progress, Writes,
};
use crate::driver::clock;
use crate::driver::turning::{ANSWERS_HIGH_WATER_BYTES, Stirred, TURN_MESSAGES, Turn};
use crate::driver::waiting::{Again, Cause, HOST_PATIENCE, RETRY, Wants};
use crate::error::Error;
use crate::lines::Lines;
use crate::proto::{SenderState, SessionEvent, Timestamp};

impl Turn for End {
    type Context = Context;
    type Effects = EndEffects;

    fn turn(&mut self, cause: Cause, effects: &mut EndEffects) -> Wants {
        if self.session.first().has_request() {
            effects.is_asked = true;
            return self.wants_and(true);
        }
        self.turn_on(cause, effects)
    }

    fn turn_as_deputy(&mut self, cause: Cause, effects: &mut EndEffects) -> Wants {
        // The answer takes some time.
        self.session.first_mut().say_pending();
        self.turn_without_request(cause, effects)
    }

    fn wants(&self) -> Wants {
        let soon = self.session.first().has_request()
            || self.begins()
            || self.unread.is_polled
            || self.reads_soon()
            || self.has_work_of_many();
        self.wants_and(soon)
    }

    fn is_quiet(&self) -> bool {
        self.stirred.is_empty()
            && !self.was_crowded
            && !self.is_over()
            && !self.session.has_output()
            && self.attached.ready() == 0
            && !self.unread.is_left
            && !self.unread.is_polled
            && self.connection.traffic().queued == 0
    }

    fn upkeep(&mut self, now: Timestamp, effects: &mut EndEffects) {
        self.retire_when_due(now);
        self.probe_when_due(now, effects);
        self.end_quiet_when_due(now, effects);
        self.say_pending_when_due(now);
        self.look_when_due(now);
        self.pump(effects);
        self.flush_with(None, effects);
    }

    fn next_upkeep(&self) -> Option<Timestamp> {
        let times = [
            self.retire_at,
            self.probe_at,
            self.session.poll_timeout(),
            self.returns.deadline(),
            self.unanswered.front().map(|(at, _)| *at),
            self.alarms.next(),
        ];
        times.into_iter().flatten().min()
    }

    fn fail(&mut self, error: Error, effects: &mut EndEffects) {
        self.close(error, effects);
    }

    fn is_over(&self) -> bool {
        self.session.closed().is_some()
    }

    fn take_stirred(&mut self) -> Stirred {
        let mut stirred = std::mem::take(&mut self.stirred);
        let is_crowded = self.is_crowded();
        stirred.all |= self.is_over() || (self.was_crowded && !is_crowded);
        self.was_crowded = is_crowded;
        stirred
    }

    fn has_news(&self, number: u32) -> bool {
        !self.awaits_schema(number)
    }

    fn leave(&mut self, number: u32, effects: &mut EndEffects) {
        let is_sent_on = |attached: &Attached| attached.outbound.is_some();
        if self.attached.get(number).is_some_and(is_sent_on) {
            // The stream is released after its end.
            return;
        }
        self.release(number);
        self.pump(effects);
    }

    fn leave_writes(&mut self) {
        self.writes = Writes::InTurn;
    }

    fn let_go(&mut self) {
        if self.is_over() {
            return;
        }
        self.writes = Writes::AtOnce;
        self.flush_with(None, &mut EndEffects::default());
        if !self.is_over() {
            let peer = &self.connection.identity().peer;
            tracing::debug!("the connection to {peer} ends: nothing needs it");
        }
        // Not cut: the transport first closes the regions that it mapped.
    }

    fn settle(link: &Arc<EndLink>, effects: EndEffects) {
        let EndEffects {
            is_asked,
            asked,
            given_up,
            lost,
            sent,
            closed,
            upkeep_at,
            unmapping,
            unkept,
            over,
            bodies_for,
        } = effects;
        drop((given_up, unkept));
        drop(sent);
        if let Some(pool) = &link.context.pool
            && pool.has_retired()
        {
            link.interfere(|served, effects| served.retire_at_once(effects));
        }
        lost.iter().for_each(|watch| watch.lost());
        if let Some(at) = upkeep_at {
            link.schedule(at);
        }
        link.forget_when_unmapped(unmapping);
        if let Some(stream) = bodies_for {
            hand_on_bodies(link, &stream);
        }
        if let Some(over) = over {
            over();
        }
        // For most batches there is nothing else to do.
        if !is_asked && asked.is_empty() && closed.is_none() {
            return;
        }
        if let Some(error) = &closed {
            tracing::debug!("connection {} ({}): {error}", link.context.id, link.peer());
        }
        let host = link.context.host();
        // Another thread may still have the connection for its last stream. Then that thread finds
        // the request.
        if is_asked
            && let Some(mut turner) = link.acquire()
            && let Some(request) = turner.step(End::take_request)
            && let Some(host) = &host
        {
            host.requested(turner, request);
        }
        for number in asked {
            if let Some(mut guest) = link.guest(number)
                && let Some(request) = guest.step(|end, _| end.take_request_of(number))
                && let Some(host) = &host
            {
                host.requested(guest, request);
            }
        }
        if closed.is_some()
            && let Some(host) = host
        {
            host.closed(link);
        }
    }
}

impl End {
    /// A turn that begins no request, because this holder serves a stream.
    pub fn turn_without_request(&mut self, cause: Cause, effects: &mut EndEffects) -> Wants {
        let wants = self.turn_on(cause, effects);
        effects.is_asked = false;
        wants
    }

    /// Reads and writes.
    fn turn_on(&mut self, cause: Cause, effects: &mut EndEffects) -> Wants {
        self.writes = Writes::AtOnce;
        if self.unread.is_polled {
            self.doze();
        }
        if cause != Cause::Look {
            self.write_on(effects);
        }
        // If a stream begins, its answer comes before anything else is read.
        if !self.begins() {
            self.read(cause, effects);
        }
        let mut soon = self.begins() || self.reads_soon();
        let sends_soon = !effects.is_asked && self.send_outbound(effects);
        self.pump(effects);
        // Asked last, because this turn may have made room by its writes.
        soon |= sends_soon && !self.is_crowded();
        self.wants_and(soon)
    }

    /// The request that waits; the caller begins its stream.
    pub fn take_request(&mut self, effects: &mut EndEffects) -> Option<ArrivedRequest> {
        effects.is_asked = false;
        let stream = self.session.first_mut();
        let request = (stream.has_request()).then(|| stream.take_waiting());
        request.flatten().map(|request| *request)
    }

    fn take_request_of(&mut self, number: u32) -> Option<ArrivedRequest> {
        let waiting = self.stream_mut(number).ok()?.take_waiting();
        waiting.map(|request| *request)
    }

    /// Puts back a request, because the holder gives the connection back before it begins the
    /// stream.
    pub fn put_back(&mut self, request: ArrivedRequest) {
        self.session.first_mut().put_back(Box::new(request));
    }

    /// How many messages were sent of a stream that the turns send; `None` without such a stream.
    pub fn sent_in_turns(&self) -> Option<usize> {
        let outbound = self.attached.get(0)?.outbound.as_ref()?;
        Some(outbound.sent().unwrap_or(0))
    }

    /// Queues all messages of the state machine, carries out its events, and writes the queue in
    /// one system call.
    pub(super) fn pump(&mut self, effects: &mut EndEffects) {
        self.pump_unwritten(effects);
        self.write_later(self.writes, effects);
    }

    /// [`pump`](Self::pump) without a write. Returns whether there was a message.
    pub(super) fn pump_unwritten(&mut self, effects: &mut EndEffects) -> bool {
        let mut has_output = false;
        // For most batches there is nothing to do.
        while !self.is_over() && self.session.has_output() {
            if let Some((number, transmit)) = self.session.poll_transmit() {
                has_output = true;
                let sent = self.transmit(number, transmit);
                self.ensure_sent(sent, effects);
            } else if let Some((number, event)) = self.session.poll_event(clock::now) {
                self.do_event(number, event, effects);
            } else {
                break;
            }
        }
        has_output
    }

    /// Sends the output of the session together with the returns that wait.
    pub fn flush_output(&mut self, effects: &mut EndEffects) {
        match self.pump_unwritten(effects) {
            true => self.flush_with(None, effects),
            false => self.write_on(effects),
        }
    }

    /// Ends the connection. Rule F4: memory that the peer may have mapped is given up first.
    pub fn close(&mut self, error: Error, effects: &mut EndEffects) {
        if self.is_over() {
            return;
        }
        effects.closed = Some(error.clone());
        for attached in self.attached.take_all() {
            if let Some(mut outbound) = attached.outbound {
                outbound.lost(&error);
                effects.sent.push(outbound);
            }
            effects.lost.extend(attached.watch);
        }
        if let Some(pool) = &self.pool {
            pool.abandon();
        }
        let lent = self.session.handle_disconnect(&error);
        let lent = (!lent.is_empty()).then(|| Box::new(lent) as Box<dyn Send>);
        effects.given_up = self.connection.close(lent);
        self.let_go_retired(effects);
        self.end_leftover(effects);
    }

    /// Sends on streams, one after the other. Returns whether more can be sent as soon as there is
    /// room.
    fn send_outbound(&mut self, effects: &mut EndEffects) -> bool {
        if !self.session.is_many() {
            // Credit for it may have come at any time.
            self.attached.make_ready(0);
        }
        let mut soon = false;
        for sent in 0..self.attached.ready().min(TURN_MESSAGES) {
            if self.session.closed().is_some() || (sent > 0 && self.is_crowded()) {
                break;
            }
            let Some((number, mut outbound)) = self.attached.take_ready() else {
                break;
            };
            let progress = outbound.advance(self, effects);
            self.writes = Writes::AtOnce;
            if progress == Progress::Over {
                effects.sent.push(outbound);
                self.release(number);
                continue;
            }
            // The write may have closed the connection.
            self.keep_outbound(number, outbound, effects);
            if progress == Progress::Soon {
                self.attached.make_ready(number);
                soon = true;
            }
        }
        soon || self.attached.ready() > 0
    }

    /// Whether a connection of many streams has left something for the next turn: a table to be
    /// sent, or messages of any stream that are to leave together with later ones.
    fn has_work_of_many(&self) -> bool {
        let is_unwritten = self.writes != Writes::AtOnce && self.connection.traffic().queued > 0;
        let is_unsent = self.attached.ready() > 0 && !self.is_crowded();
        self.session.is_many() && (is_unwritten || is_unsent)
    }

    /// Whether there may be messages that no event announces and that this end may read now.
    fn reads_soon(&self) -> bool {
        self.unread.is_left && !self.is_full() && !self.is_flooded()
    }

    /// Whether there is a stream to be sent that has sent nothing yet.
    fn begins(&self) -> bool {
        let is_new = |outbound: &dyn Outbound| outbound.sent().is_none();
        let first = self.attached.get(0).and_then(|it| it.outbound.as_deref());
        first.is_some_and(is_new)
    }

    fn wants_and(&self, soon: bool) -> Wants {
        if self.is_over() {
            return Wants::default();
        }
        let is_flooded = self.is_flooded();
        let queued = self.connection.traffic().queued > 0;
        // A body that waits for its holder must not end a sleep.
        let is_held_up = !self.session.is_many()
            && (self.is_full()
                || (self.session.first().is_receiving() && self.connection.waiting().is_some()));
        Wants {
            read: !is_flooded && !is_held_up,
            write: is_flooded || (queued && self.writes == Writes::AtOnce),
            again: match soon {
                true => Again::Now,
                // If the descriptor does not announce room, the turn is repeated after a while.
                false if is_flooded && !self.readiness().socket => Again::At(clock::after(RETRY)),
                false => Again::OnEvent,
            },
        }
    }

    /// Whether the peer asks for one thing after the other and does not read the answers.
    pub(super) fn is_flooded(&self) -> bool {
        if !self.session.is_server() {
            return false;
        }
        let traffic = self.connection.traffic();
        match self.session.is_many() {
            // Streams reach their own limit earlier.
            true => traffic.held > ANSWERS_HIGH_WATER_BYTES,
            false => {
                traffic.queued > ANSWERS_HIGH_WATER_BYTES
                    && self.session.first().state() != SenderState::Streaming
            }
        }
    }

    /// Whether so much waits for the consumer of the only stream that nothing more is read. Rule
    /// S3: a connection with many streams is always read.
    pub(super) fn is_full(&self) -> bool {
        !self.session.is_many() && self.session.first().is_full()
    }

    /// Releases a stream: the host needs it no more.
    pub(super) fn release(&mut self, number: u32) {
        if number > 0 {
            self.attached.remove(number);
        }
        self.alarms.remove(number);
        self.session.release(number);
    }

    fn do_event(&mut self, number: u32, event: SessionEvent<LentHold>, effects: &mut EndEffects) {
        match event {
            SessionEvent::Requested(asked) => {
                if self.probe_at.is_none() {
                    self.probe(effects);
                }
                let request = &asked.request;
                // Rule S6: the lent memory belongs to the connection, not to the stream.
                if let Some(pool) = self
                    .pool
                    .as_ref()
                    .filter(|_| asked.extension && number == 0)
                {
                    pool.set_client(request.lent_limit, request.device_type, &request.gpus);
                }
                if let Ok(stream) = self.stream_mut(number) {
                    stream.put_back(asked);
                }
                match number {
                    0 => effects.is_asked = true,
                    _ => effects.asked.push(number),
                }
                if self.session.is_many() {
                    let at = clock::after(HOST_PATIENCE);
                    self.unanswered.push_back((at, number));
                }
            }
            SessionEvent::Lost => {
                let attached = self.attached.get(number);
                effects
                    .lost
                    .extend(attached.and_then(|it| it.watch.clone()));
            }
            SessionEvent::Freed(hold) => {
                // Dropped under the lock: memory that is back must not count as lent if the
                // connection ends now.
                drop(hold);
                if let Some(pool) = &self.pool {
                    (self.retire_at).get_or_insert_with(|| clock::after(pool.idle_time()));
                }
                self.let_go(effects);
            }
            SessionEvent::RegionForgotten { id } => {
                if let Some(pool) = &self.pool {
                    pool.region_forgotten(id);
                }
            }
            SessionEvent::Granted {
                lent_limit,
                device_type,
            } => {
                if let Some(pool) = &self.pool {
                    pool.set_client(lent_limit, device_type, &[]);
                }
            }
            SessionEvent::Answered => self.let_go(effects),
            SessionEvent::Bodies(work) => self.work_for_bodies(number, work, effects),
            SessionEvent::LeftOver if self.session.is_many() => self.end_receiving(number),
            SessionEvent::LeftOver => self.end_leftover(effects),
            SessionEvent::Silent(silent) => {
                static SAID: Lines = Lines::new();
                SAID.say(|more| {
                    tracing::warn!(
                        "a cancelled stream is cut: its server has not said its end for \
                         {silent:?}{more}"
                    );
                });
                // Rule S7: on a connection with many streams, the stream keeps its place.
                if !self.session.is_many() {
                    self.end_leftover(effects);
                }
            }
        }
    }
}
