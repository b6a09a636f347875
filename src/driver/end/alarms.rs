//! The deadlines of streams that share a connection, which the I/O thread watches.

use std::collections::BTreeSet;

use foldhash::HashMap;

use super::{End, EndStream};
use crate::driver::packed::PackedBody;
use crate::proto::{IncomingStream, Timestamp};

/// When to look at each stream that waits for its peer.
#[derive(Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Timestamp, u32)>,
    by_number: HashMap<u32, Timestamp>,
}

impl Alarms {
    /// Asks for a look at the stream at `at` or earlier.
    fn set(&mut self, number: u32, at: Timestamp) {
        match self.by_number.insert(number, at) {
            // The earlier look finds that the time has not come, and sets the next one.
            Some(before) if before <= at => {
                self.by_number.insert(number, before);
            }
            before => {
                if let Some(before) = before {
                    self.by_time.remove(&(before, number));
                }
                self.by_time.insert((at, number));
            }
        }
    }

    /// The stream is over.
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(at) = self.by_number.remove(&number) {
            self.by_time.remove(&(at, number));
        }
    }

    /// When to look next.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<u32> {
        let (_, number) = self.by_time.first().filter(|(at, _)| *at <= now).copied()?;
        self.by_time.pop_first();
        self.by_number.remove(&number);
        Some(number)
    }
}

impl End {
    /// From now on the I/O thread watches the deadline of a stream whose consumer waits.
    pub fn keep_time(&mut self, number: u32) {
        let stream = self.session.stream(number);
        let incoming = stream.and_then(EndStream::incoming);
        if let Some(at) = incoming.and_then(|incoming| incoming.poll_timeout()) {
            self.alarms.set(number, at);
        }
    }

    /// Looks at the streams whose time has come.
    pub(super) fn look_when_due(&mut self, now: Timestamp) {
        while let Some(number) = self.alarms.take_due(now) {
            if !self.awaits_schema(number) {
                // The consumer may be busy elsewhere. It finds out by itself what has come due.
                self.stirred.late.push(number);
                continue;
            }
            let stream = self.session.stream_mut(number);
            if let Some(incoming) = stream.and_then(|stream| stream.incoming_mut()) {
                incoming.handle_timeout(now);
            }
            self.stirred.add(number);
            self.keep_time(number);
        }
    }

    /// Whether a consumer waits for the server's answer to a get. Then only the schema and the last
    /// word of the server are news for the consumer.
    pub(super) fn awaits_schema(&self, number: u32) -> bool {
        self.session.stream(number).is_some_and(|stream| {
            let awaits = |incoming: &IncomingStream<PackedBody>| {
                !incoming.is_of_client() && incoming.schema().is_none() && !incoming.is_ready()
            };
            stream.put().is_none() && stream.incoming().is_some_and(awaits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream is looked at once, at the earliest of its times.
    #[test]
    fn the_earliest_time_counts() {
        let at = Timestamp::from_nanos;
        let mut alarms = Alarms::default();
        for time in [5, 7, 3] {
            alarms.set(1, at(time));
        }
        alarms.set(2, at(4));
        alarms.set(3, at(2));
        alarms.remove(3);
        assert_eq!(alarms.next(), Some(at(3)));
        assert_eq!(alarms.take_due(at(2)), None);
        let due: Vec<_> = std::iter::from_fn(|| alarms.take_due(at(9))).collect();
        assert_eq!(due, [1, 2]);
        assert_eq!(alarms.next(), None);
    }
}
