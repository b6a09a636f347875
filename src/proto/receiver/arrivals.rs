//! Counts the bodies of a stream, even those that nobody wants (rule S3).

/// The bodies that have come, and those that will.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    bodies: u64,
    /// Messages of the whole stream, the schema among them, once the sender has said its last word.
    messages: Option<u32>,
}

impl Arrivals {
    pub(super) fn body(&mut self) {
        self.bodies = self.bodies.saturating_add(1);
    }

    /// No message comes from the number `end` on, in a stream whose schema has the number `first`.
    /// The lowest number counts.
    pub(super) fn end(&mut self, first: u32, end: u32) {
        let messages = end.wrapping_sub(first);
        let most = self.messages.get_or_insert(messages);
        *most = messages.min(*most);
    }

    /// Whether no body comes any more.
    pub(super) fn is_whole(&self) -> bool {
        // The schema has no body.
        (self.messages).is_some_and(|messages| self.bodies >= messages.saturating_sub(1).into())
    }
}
