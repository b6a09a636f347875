//! A turn of a connection.

use std::sync::Arc;

use super::receiving::peer_has_ended;
use super::{
    ArrivedRequest, Beside, End, EndEffects, EndLink, LentHold, Outbound, Progress, Writes,
};
use crate::driver::clock;
use crate::driver::turning::{ANSWERS_HIGH_WATER_BYTES, Budget, Turn};
use crate::driver::waiting::RETRY;
use crate::driver::waiting::Wants;
use crate::error::Error;
use crate::proto::{SenderState, SessionEvent, Timestamp};

impl Turn for End {
    type Beside = Beside;
    type Effects = EndEffects;

    fn turn(&mut self, budget: Budget, effects: &mut EndEffects) -> Wants {
        if let Some(request) = self.session.take_waiting() {
            effects.request = Some(request);
            return self.wants_and(true);
        }
        self.writes = Writes::AtOnce;
        if self.is_awake {
            self.doze();
        }
        if budget.writes_on {
            self.write_on(effects);
        }
        // A stream that begins is answered before anything else is read.
        let mut soon = self.begins() || self.read(budget, effects);
        let progress = match effects.request {
            None => self.send_outbound(budget, effects),
            Some(_) => None,
        };
        self.pump(effects);
        soon |= match progress {
            // Asked last: this turn has written.
            Some(Progress::Soon) => !self.is_crowded(),
            Some(Progress::Waits | Progress::Over) | None => false,
        };
        self.wants_and(soon)
    }

    fn turn_as_deputy(&mut self, budget: Budget, effects: &mut EndEffects) -> Wants {
        // The answer takes its time.
        self.session.say_pending();
        self.turn_without_request(budget, effects)
    }

    fn wants(&self) -> Wants {
        let soon = self.session.has_waiting() || self.begins() || self.has_unread;
        self.wants_and(soon || self.is_awake)
    }

    fn upkeep(&mut self, now: Timestamp, effects: &mut EndEffects) {
        self.retire_when_due(now);
        self.probe_when_due(now, effects);
        self.end_quiet_when_due(now, effects);
        self.pump(effects);
        self.say(None, effects);
        if let Some((_, left)) = self.leftover() {
            left.end_silence(now, effects);
        }
    }

    fn next_upkeep(&self) -> Option<Timestamp> {
        let left = self.leftover().and_then(|(_, left)| left.deadline());
        let times = [
            self.retire_at,
            self.probe_at,
            self.session.poll_timeout(),
            self.returns.deadline(),
            left,
        ];
        times.into_iter().flatten().min()
    }

    fn fail(&mut self, error: Error, effects: &mut EndEffects) {
        self.close(error, effects);
        if let Some((_, left)) = self.leftover() {
            self.forget_leftover();
            effects.over = left.take();
        }
    }

    fn is_over(&self) -> bool {
        self.session.closed().is_some()
    }

    fn let_go(&mut self) {
        if self.is_over() {
            return;
        }
        self.say(None, &mut EndEffects::default());
        if !self.is_over() {
            let peer = &self.connection.identity().peer;
            tracing::debug!("the connection to {peer} ends: nothing needs it");
        }
        // Not cut: the transport closes the regions that it mapped first.
    }

    fn settle(link: &Arc<EndLink>, effects: EndEffects) {
        let EndEffects {
            request,
            given_up,
            lost,
            sent,
            closed,
            write_at,
            unmapping,
            unkept,
            over,
        } = effects;
        drop((given_up, unkept));
        drop(sent);
        if let Some(lender) = &link.beside.lender
            && lender.has_retired()
        {
            link.interfere(|served, effects| served.retire_at_once(effects));
        }
        if let Some(lost) = lost {
            lost.lost();
        }
        if let Some(at) = write_at {
            link.look_after(at);
        }
        link.forget_when_unmapped(unmapping);
        if let Some(stream) = over {
            stream();
        }
        // For most batches there is nothing else.
        if request.is_none() && closed.is_none() {
            return;
        }
        if let Some(error) = &closed {
            tracing::debug!("connection {} ({}): {error}", link.beside.id, link.peer());
        }
        let Some(host) = link.beside.host() else {
            return;
        };
        match request.map(|request| (link.take(), request)) {
            Some((Some(turner), request)) => host.requested(turner, *request),
            // The thread of the last stream has taken the connection meanwhile.
            Some((None, request)) => {
                link.interfere(|served, _| served.session.put_back(request));
            }
            None => {}
        }
        if closed.is_some() {
            host.closed(link);
        }
    }
}

impl End {
    /// A turn in which a request that comes waits for the next one: this holder serves a stream.
    pub fn turn_without_request(&mut self, budget: Budget, effects: &mut EndEffects) -> Wants {
        let wants = self.turn(budget, effects);
        match effects.request.take() {
            Some(request) => {
                self.session.put_back(request);
                self.wants()
            }
            None => wants,
        }
    }

    /// The holder gives the connection back before it has begun the stream of `request`.
    pub fn put_back(&mut self, request: ArrivedRequest) {
        self.session.put_back(Box::new(request));
    }

    /// Messages of a stream that the turns send, while there is one.
    pub fn sent_in_turns(&self) -> Option<usize> {
        let outbound = self.outbound.as_ref()?;
        Some(outbound.sent().unwrap_or(0))
    }

    /// Queues all messages of the state machine, does its events, and writes the queue in one
    /// system call.
    pub(super) fn pump(&mut self, effects: &mut EndEffects) {
        self.pump_unwritten(effects);
        self.write_later(self.writes, effects);
    }

    /// Does what follows from messages that concern the connection, or what this side sends. A
    /// request waits for the end of the stream that comes in.
    pub fn pump_own(&mut self, effects: &mut EndEffects) {
        self.pump(effects);
        if let Some(request) = effects.request.take() {
            self.session.put_back(request);
        }
    }

    /// The same as [`pump`](Self::pump), but nothing is written.
    pub(super) fn pump_unwritten(&mut self, effects: &mut EndEffects) {
        while !self.is_over() {
            if let Some(transmit) = self.session.poll_transmit() {
                if let Err(error) = self.transmit(transmit) {
                    self.close(error, effects);
                }
            } else if let Some(event) = self.session.poll_event(clock::now) {
                self.do_event(event, effects);
            } else {
                return;
            }
        }
    }

    /// Reads what has come, up to the budget. Returns whether there may be more.
    pub fn read(&mut self, budget: Budget, effects: &mut EndEffects) -> bool {
        self.has_unread = self.read_some(budget, effects);
        self.has_unread
    }

    fn read_some(&mut self, budget: Budget, effects: &mut EndEffects) -> bool {
        if let Some((side, left)) = self.leftover() {
            return left.turn(side, self, budget, effects) > 0;
        }
        for read in 0..budget.messages {
            if self.is_over() {
                return false;
            }
            if self.is_flooded() {
                // Until the peer reads its answers; its death is still noticed.
                self.ensure_peer_lives(effects);
                return false;
            }
            // Messages that came may be all that the event told of. Another event tells of a
            // process that has ended.
            let budget = Budget {
                asks_for_death: budget.asks_for_death && read == 0,
                ..budget
            };
            match self.read_own(budget, effects) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    self.close(error, effects);
                    return false;
                }
            }
            // A request, a return or a credit may be followed by the next at once.
            self.pump(effects);
            if effects.request.is_some() {
                return true;
            }
        }
        !self.is_over()
    }

    /// The connection is over. Rule F4: memory that the peer may have mapped is given up first.
    pub fn close(&mut self, error: Error, effects: &mut EndEffects) {
        if self.is_over() {
            return;
        }
        effects.closed = Some(error.clone());
        if let Some(mut outbound) = self.outbound.take() {
            outbound.lost(&error);
            effects.sent = Some(outbound);
        }
        if let Some(lender) = &self.lender {
            lender.abandon();
        }
        let lent = self.session.handle_disconnect(error);
        let lent = (!lent.is_empty()).then(|| Box::new(lent) as Box<dyn Send>);
        effects.given_up = self.connection.close(lent);
        effects.lost = self.watch.take();
        self.let_go_retired(effects);
    }

    fn ensure_peer_lives(&mut self, effects: &mut EndEffects) {
        if self.readiness().peer_has_died() {
            let error = peer_has_ended(&self.connection.identity().peer, self.session.is_server());
            self.close(error, effects);
        }
    }

    /// Sends on a stream, if there is one.
    fn send_outbound(&mut self, budget: Budget, effects: &mut EndEffects) -> Option<Progress> {
        let mut outbound = self.outbound.take_if(|_| self.session.closed().is_none())?;
        let progress = outbound.advance(self, budget, effects);
        self.writes = Writes::AtOnce;
        if progress == Progress::Over {
            effects.sent = Some(outbound);
        } else {
            // To write may have closed the connection.
            self.send_in_turns(outbound, effects);
        }
        Some(progress)
    }

    /// Whether a stream is to be sent of which nothing has been sent.
    fn begins(&self) -> bool {
        let is_new = |outbound: &dyn Outbound| outbound.sent().is_none();
        self.outbound.as_deref().is_some_and(is_new)
    }

    fn wants_and(&self, soon: bool) -> Wants {
        if self.is_over() {
            return Wants::default();
        }
        let is_flooded = self.is_flooded();
        let queued = self.connection.queued().bytes > 0;
        // A body that waits for its holder must not end a sleep.
        let is_held_up = self.session.is_full_of_early()
            || (self.session.is_receiving() && self.connection.is_waiting());
        // Where the descriptor cannot tell when there is room, time does.
        let at = (is_flooded && !self.readiness().socket).then(|| clock::after(RETRY));
        Wants {
            read: !is_flooded && !is_held_up,
            write: is_flooded || (queued && self.writes == Writes::AtOnce),
            at,
            soon,
        }
    }

    /// The peer asks for one thing after the other and does not read the answers.
    fn is_flooded(&self) -> bool {
        self.session.is_server()
            && self.connection.queued().bytes > ANSWERS_HIGH_WATER_BYTES
            && self.session.state() != SenderState::Streaming
    }

    fn do_event(&mut self, event: SessionEvent<LentHold>, effects: &mut EndEffects) {
        match event {
            SessionEvent::Requested(asked) => {
                if self.probe_at.is_none() {
                    self.probe(effects);
                }
                let request = &asked.request;
                if let Some(lender) = self.lender.as_ref().filter(|_| asked.extension) {
                    lender.set_client(request.lent_limit, request.device_type, &request.gpus);
                }
                effects.request = Some(asked);
            }
            SessionEvent::Lost => effects.lost.clone_from(&self.watch),
            SessionEvent::Freed(hold) => {
                // Under the lock: memory that is back must not count as lent if the connection
                // ends.
                drop(hold);
                let idle = self.region_idle;
                self.retire_at.get_or_insert_with(|| clock::after(idle));
                self.let_go(effects);
            }
            SessionEvent::RegionForgotten { id } => {
                if let Some(lender) = &self.lender {
                    lender.region_forgotten(id);
                }
            }
            SessionEvent::Granted {
                lent_limit,
                device_type,
            } => {
                if let Some(lender) = &self.lender {
                    lender.set_client(lent_limit, device_type, &[]);
                }
            }
            SessionEvent::Answered => self.let_go(effects),
        }
    }
}
