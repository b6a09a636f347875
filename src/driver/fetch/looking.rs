//! How a consumer uses its connections: it reads them, and takes messages of the stream. The
//! session of the first connection has the stream.

use std::sync::Arc;

use super::taken::{Look, Taken};
use super::{Connections, Fetch, Sides};
use crate::driver::end::{End, EndLink, EndSession, hand_on_bodies};
use crate::driver::packed::PackedBody;
use crate::proto::{IncomingStream, Message, Return, Side};

impl Fetch {
    /// The state of the stream.
    pub(super) fn stream<R: Default>(
        &self,
        inspect: impl FnOnce(&IncomingStream<PackedBody>) -> R,
    ) -> R {
        let number = self.number();
        let inspect = |end: &End| end.stream(number).ok()?.incoming().map(inspect);
        self.link().inspect(inspect).unwrap_or_default()
    }

    /// Changes the state of the stream, and sends the messages that result.
    pub(super) fn change<R: Default>(
        &mut self,
        change: impl FnOnce(&mut IncomingStream<PackedBody>) -> R,
    ) -> R {
        let number = self.number();
        let changed = self.connections.metadata.step(|end, effects| {
            let stream = end.stream_mut(number).ok();
            let changed = stream.and_then(|it| it.incoming_mut()).map(change);
            end.flush_output(effects);
            changed
        });
        self.hand_on();
        changed.unwrap_or_default()
    }

    /// Passes on what the two connections have for each other, if there are two.
    pub(super) fn hand_on(&self) {
        if let Some(data) = &self.connections.data {
            hand_on_bodies(data.link(), self.link());
        }
    }

    pub(super) fn link(&self) -> &Arc<EndLink> {
        self.connections.metadata.link()
    }

    pub(super) fn links(&self) -> Sides<Arc<EndLink>> {
        self.connections.map(|it| Arc::clone(it.link()))
    }

    /// Whether a guest may find something, or the schema is there. A ring from before this look is
    /// answered by the look.
    pub(super) fn has_news(&self) -> bool {
        self.silence();
        let number = self.number();
        (self.link()).inspect(|end| is_ready(&end.session, number, true))
    }

    /// Silences the bell, before the look that finds what it rang for.
    fn silence(&self) {
        if let Some(bell) = self.bell.as_ref().filter(|bell| bell.has_rung()) {
            bell.silence();
        }
    }

    /// One look at each connection, under its lock: writes, reads, and takes a message. Reads only
    /// if no message waits. Returns whether the consumer has a reason to go on.
    pub(super) fn look(&mut self, look: Look) -> bool {
        self.silence();
        let cause = self.cause;
        let is_split = self.connections.data.is_some();
        let awaits_schema = self.decoder.is_none();
        let Connections { metadata, data } = &mut self.connections;
        let link = Arc::clone(metadata.link());
        let (number, is_guest) = (metadata.number(), metadata.is_guest());
        // A message is moved as seldom as possible, because a move would take as long as a read.
        let taken = &mut self.taken;
        let mut came = metadata.step(|end, effects| {
            let mut came = false;
            // A guest's connection is read and written by the I/O thread.
            if !is_guest {
                end.write_on(effects);
                if look != Look::Take || !end.session.first().has_message() {
                    let may_read = |session: &EndSession| may_read(session, Side::Metadata);
                    came = end.read_while(cause, may_read, effects) > 0;
                }
                if look != Look::Count {
                    end.wake();
                }
            }
            let takes = look == Look::Take && !is_split;
            if takes && let Some(message) = next_message(end, number) {
                *taken = Some(Taken::find(message, number, end, &link));
                // The message that was taken may cause credit, and perhaps an end.
                end.flush_output(effects);
            }
            came || is_ready(&end.session, number, awaits_schema)
        });
        if let Some(data) = data {
            if metadata.step(|end, _| may_read(&end.session, Side::Data)) {
                came |= data.step(|end, effects| {
                    end.write_on(effects);
                    let read = end.read(cause, effects);
                    if look != Look::Count {
                        end.wake();
                    }
                    read > 0
                });
            }
            hand_on_bodies(data.link(), metadata.link());
            let next = metadata.step(|end, effects| {
                let next = (look == Look::Take).then(|| next_message(end, 0)).flatten();
                came |= is_ready(&end.session, 0, awaits_schema);
                end.flush_output(effects);
                next
            });
            if let Some(message) = next {
                let link = Arc::clone(data.link());
                *taken = Some(data.step(|end, _| Taken::find(message, 0, end, &link)));
                // Credit goes to both connections.
                hand_on_bodies(data.link(), metadata.link());
            }
        }
        came || self.taken.is_some()
    }

    /// Tells the server of everything that was taken.
    pub(super) fn flush_credit(&mut self) {
        self.change(IncomingStream::flush_credit);
    }
}

fn may_read(session: &EndSession, side: Side) -> bool {
    let stream = session.first().incoming();
    stream.is_some_and(|stream| stream.may_read(side))
}

/// Whether a consumer has a reason to wake.
fn is_ready(session: &EndSession, number: u32, awaits_schema: bool) -> bool {
    let stream = session.stream(number).and_then(|it| it.incoming());
    stream.is_none_or(|it| it.is_ready() || (awaits_schema && it.schema().is_some()))
}

/// The next message for the consumer, and how its lent body goes back.
fn next_message(end: &mut End, number: u32) -> Option<(Message<PackedBody>, Option<Return>)> {
    (end.stream_mut(number).ok()?.incoming_mut()?).next_message()
}
