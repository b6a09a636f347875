//! Lent bodies of a receiver that go back.

use super::{Body, Receiver, ReceiverEvent};
use crate::proto::window::Arrived;
use crate::proto::{FEATURE_RETURN, Return, Span};

impl<B> Receiver<B> {
    /// Takes the lent bodies that nobody will see. Return them on the connection of the bodies.
    pub fn abandoned(&mut self) -> Vec<Return> {
        std::mem::take(&mut self.abandoned)
    }

    /// The way to return the lent body of message `seq` after use; `None` for a body of empty
    /// buffers (rule F3).
    pub fn to_return(&self, seq: u32, spans: &[Span]) -> Option<Return> {
        let mut named = spans.iter().filter(|span| span.length != 0).peekable();
        named.peek()?;
        let info = self.data.as_ref().unwrap_or(&self.metadata).info;
        if info.is_some_and(|info| info.features & FEATURE_RETURN != 0) {
            let request = &self.config.request;
            return Some(Return::Number {
                number: request.number,
                stream: request.mark(),
                seq,
            });
        }
        Some(Return::Addresses(named.map(|span| span.address).collect()))
    }

    pub(super) fn abandon(&mut self, seq: u32, spans: Vec<Span>) {
        if self.data.as_ref().unwrap_or(&self.metadata).is_unanswered() {
            self.early_spans = self.early_spans.saturating_add(spans.len());
            self.early.push((seq, spans));
            return;
        }
        let back = self.to_return(seq, &spans);
        self.abandoned.extend(back);
    }

    /// Drops everything that has arrived.
    pub(super) fn abandon_all(&mut self) {
        let base = self.window.base();
        self.abandon_from(base);
        for message in std::mem::take(&mut self.ready) {
            if let Body::Lent(spans) = message.body {
                self.abandon(message.seq, spans);
            }
        }
        self.ready_bytes = 0;
        self.bounds.forget();
        self.events
            .retain(|event| !matches!(event, ReceiverEvent::Expect(_)));
    }

    /// Drops the messages in the window from this number on.
    pub(super) fn abandon_from(&mut self, seq: u32) {
        for (seq, body) in self.window.cut(seq) {
            if let Arrived::List(list) = body {
                self.abandon(seq, list.spans);
            }
        }
    }
}
