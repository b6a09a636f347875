//! Control messages of a receiver's peer.

use super::{Receiver, ReceiverEvent, ReceiverState, Side, Stop};
use crate::error::Error;
use crate::proto::control::error_of;
use crate::proto::{Control, FEATURE_HEADERS, Headers, ProtocolError, StreamInfo, Timestamp, Verb};

impl<B> Receiver<B> {
    /// Only answers among the control messages count as a sign of life from the server. The other
    /// messages do not advance the stream.
    pub(super) fn control(
        &mut self,
        now: Timestamp,
        side: Side,
        message: Control,
    ) -> Result<(), ProtocolError> {
        let extension = self
            .peer_mut(side)
            .is_some_and(|peer| peer.config.extension);
        if !extension {
            return Err(broken!(
                "E1",
                "{} message from a server that was not asked by dipc_want",
                message.name()
            ));
        }
        match message {
            Control::Abort {
                stream,
                status,
                seq,
                text,
            } if self.is_server => {
                if stream == self.config.request.mark() {
                    self.last_heard = now;
                    self.stop(side, seq, error_of(status, &text));
                }
                Ok(())
            }
            _ if self.is_server => Err(broken!(
                "E3",
                "{} message from a client: only servers send it",
                message.name()
            )),
            // These messages concern the stream that this side sends (rule Q5).
            Control::Grant { .. } | Control::Result { .. } | Control::End { .. }
                if self.config.request.verb == Verb::Exchange =>
            {
                Ok(())
            }
            Control::Stream(info, headers) => {
                // A second STREAM is an error.
                self.last_heard = now;
                self.stream(side, info, &headers)
            }
            Control::Error {
                status,
                seq,
                text,
                headers,
            } => {
                // Only the first ERROR counts: a server could send many without an end.
                let mut advice = None;
                if let Some(peer) = self.peer_mut(side)
                    && !peer.failed
                {
                    // Rule Q8: advice comes with a refusal, and not within a stream.
                    advice = headers.advice().filter(|_| peer.info.is_none());
                    self.last_heard = now;
                    self.answered(side, &headers)?;
                }
                let error = error_of(status, &text).context("the server");
                self.stop(side, seq, error.with_advice(advice));
                Ok(())
            }
            Control::Pending { stream } => {
                // PENDING of an earlier stream may come late. A second PENDING is no news.
                if stream == self.config.request.mark()
                    && let Some(peer) = self.peer_mut(side)
                    && !std::mem::replace(&mut peer.pending, true)
                {
                    self.last_heard = now;
                }
                Ok(())
            }
            // Regions belong to the connection, which hears of them before the stream does.
            Control::Region { .. } => Ok(()),
            Control::RegionGone { id } => {
                self.control_out(side, Control::RegionForgotten { id }.encode());
                Ok(())
            }
            // These belong to the connection too: the rest of the stream still comes.
            Control::GoAway | Control::Streams { .. } => Ok(()),
            // A client with a GPU handles READY before this state machine sees it.
            Control::Ready { seq, .. } => Err(broken!(
                "E3",
                "READY message for message {seq}, and this client did not say that it reads \
                     a GPU's memory"
            )),
            Control::Cancel { .. }
            | Control::Grant { .. }
            | Control::Result { .. }
            | Control::End { .. }
            | Control::Abort { .. }
            | Control::Credit { .. }
            | Control::RegionForgotten { .. }
            | Control::Return { .. } => Err(broken!(
                "E3",
                "{} message from a server that sends a stream",
                message.name()
            )),
        }
    }

    fn stream(
        &mut self,
        side: Side,
        info: StreamInfo,
        headers: &Headers,
    ) -> Result<(), ProtocolError> {
        let request = &self.config.request;
        let (min, max) = (request.lowest_version(), request.max_version);
        let unasked = info.features & !request.features;
        let broken = self.state.is_broken();
        let Some(peer) = self.peer_mut(side) else {
            return Ok(());
        };
        // Rule E2: one answer, within the limits of the request.
        let fault = if peer.info.is_some() {
            Some("a second time".to_owned())
        } else if !(min..=max).contains(&info.version) {
            Some(format!(
                "with version {}, asked for {min} to {max}",
                info.version
            ))
        } else if unasked != 0 {
            Some(format!(
                "with features {unasked:#x}, which were not asked for"
            ))
        } else {
            None
        };
        if let Some(fault) = fault {
            return Err(broken!("E2", "the server accepts {fault}"));
        }
        peer.info = Some(info);
        self.answered(side, headers)?;
        if side == Side::Data || self.data.is_none() {
            self.early_spans = 0;
            for (seq, spans) in std::mem::take(&mut self.early) {
                self.abandon(seq, spans);
            }
        }
        if broken {
            return Ok(());
        }
        if side == Side::Metadata && self.state == ReceiverState::Requested {
            self.state = ReceiverState::AwaitingSchema;
        }
        self.events.push_back(ReceiverEvent::Stream { side, info });
        Ok(())
    }

    /// Keeps the headers of an answer. With two connections, only the metadata's headers count.
    fn answered(&mut self, side: Side, headers: &Headers) -> Result<(), ProtocolError> {
        if headers.is_empty() {
            return Ok(());
        }
        if self.config.request.features & FEATURE_HEADERS == 0 {
            return Err(broken!(
                "Q1",
                "the server answers with headers, which were not asked for"
            ));
        }
        if side == Side::Metadata {
            self.answer_headers.extend(headers);
        }
        Ok(())
    }

    /// Notes that no message comes after those that are here. If an ERROR or ABORT announced more
    /// messages before it, it now covers only these.
    pub fn ends_here(&mut self) {
        self.lower_stop(self.window.base());
        self.settle();
    }

    /// An ERROR or ABORT covers no message from `seq` on.
    pub(super) fn lower_stop(&mut self, seq: u32) {
        let ahead = self.window.ahead(seq);
        if let Some(stop) = &mut self.stop
            && self.window.ahead(stop.seq) > ahead
        {
            stop.seq = seq;
            self.abandon_from(seq);
        }
    }

    /// Takes an ERROR: messages before `seq` stay valid, and later messages will not come.
    fn stop(&mut self, side: Side, seq: u32, error: Error) {
        if side == Side::Metadata {
            self.over_on_wire = true;
        }
        self.arrivals.end(self.config.first_seq, seq);
        if let Some(peer) = self.peer_mut(side) {
            peer.failed = true;
        }
        // An ERROR after the whole stream has no meaning.
        if self.state.is_broken() || self.state == ReceiverState::Ended {
            return;
        }
        let ahead = self.window.ahead(seq).unwrap_or(0);
        // If each connection brings an ERROR, the first ERROR gives the reason, and the lower
        // number counts.
        let earlier = self
            .stop
            .as_ref()
            .is_none_or(|stop| Some(ahead) < self.window.ahead(stop.seq));
        if earlier {
            self.abandon_from(seq);
            let error = self.stop.take().map_or(error, |stop| stop.error);
            self.stop = Some(Stop { seq, error });
        }
    }
}
