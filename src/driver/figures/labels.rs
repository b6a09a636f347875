//! The labels of a server's figures. Their number is bounded, and no client can create one.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Counters, StreamSums};

/// Most labels of one server, besides [`OTHER`].
pub const MOST_LABELS: usize = 1000;
/// Most bytes of a label.
pub const LABEL_BYTES: usize = 128;
/// The label of what a handler serves, unless the host names another.
pub const HANDLER: &str = "(handler)";
/// The label of lists that the server itself gives.
pub const LIST: &str = "(list)";
/// The label for all that come after the first [`MOST_LABELS`].
pub const OTHER: &str = "(other)";

/// The label of a ticket: its bytes as text, cut if it is long. Control characters other than `\n`
/// are replaced, because some readers of the figures' text end a line at them.
pub fn label_of(ticket: &[u8]) -> String {
    let is_unfit = |char: char| char.is_control() && char != '\n';
    let text = String::from_utf8_lossy(ticket).replace(is_unfit, "\u{fffd}");
    let mut label = text[..text.floor_char_boundary(LABEL_BYTES)].to_owned();
    if label.len() < text.len() {
        label.push('…');
    }
    label
}

/// The figures of one server, by label.
#[derive(Debug)]
pub struct Labels {
    known: RwLock<BTreeMap<String, Arc<Counters>>>,
    other: Arc<Counters>,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            known: RwLock::default(),
            other: Arc::new(Counters::of_server()),
        }
    }
}

impl Labels {
    /// The figures of `label`. If there are too many labels, these are the shared figures of
    /// [`OTHER`].
    pub fn find(&self, label: &str) -> Arc<Counters> {
        if let Some(counters) = self.known.read().get(label) {
            return Arc::clone(counters);
        }
        let mut known = self.known.write();
        if known.len() >= MOST_LABELS && !known.contains_key(label) {
            return Arc::clone(&self.other);
        }
        let counters = known.entry(label.to_owned());
        Arc::clone(counters.or_insert_with(|| Arc::new(Counters::of_server())))
    }

    /// The figures of one label now; `None` for a label without figures.
    pub fn sums_of(&self, label: &str) -> Option<StreamSums> {
        let mut sums = StreamSums::default();
        match self.known.read().get(label) {
            Some(counters) => sums.add(counters),
            None if label == OTHER => sums.add(&self.other),
            None => return None,
        }
        Some(sums)
    }

    /// The figures of all labels together, now.
    pub fn sums(&self) -> StreamSums {
        let mut sums = StreamSums::default();
        for counters in self.known.read().values() {
            sums.add(counters);
        }
        sums.add(&self.other);
        sums
    }

    /// The labels with figures, in the order of their bytes; [`OTHER`] comes last.
    pub fn all(&self) -> Vec<(String, Arc<Counters>)> {
        let known = self.known.read();
        let is_full = known.len() >= MOST_LABELS;
        let other = is_full.then(|| (OTHER.to_owned(), Arc::clone(&self.other)));
        let known = known.iter();
        let known = known.map(|(label, counters)| (label.clone(), Arc::clone(counters)));
        known.chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// Promise: a server has a bounded number of labels, and counts everything all the same.
    #[test]
    fn labels_are_bounded() {
        let labels = Labels::default();
        for number in 0..MOST_LABELS + 10 {
            labels
                .find(&format!("label {number}"))
                .batches
                .fetch_add(1, Relaxed);
        }
        assert_eq!(labels.all().len(), MOST_LABELS + 1);
        assert_eq!(labels.sums_of(OTHER).unwrap().batches, 10);
        assert_eq!(labels.sums_of("label 7").unwrap().batches, 1);
        assert_eq!(labels.sums_of("unheard of"), None);
        assert_eq!(labels.sums().batches, MOST_LABELS as u64 + 10);
    }

    /// Promise: a label is text of a bounded length, whatever the ticket is.
    #[test]
    fn labels_are_short_text() {
        assert_eq!(label_of(b"table"), "table");
        assert_eq!(label_of(b"\xff\n\r"), "\u{fffd}\n\u{fffd}");
        let long = label_of("é".repeat(LABEL_BYTES).as_bytes());
        assert_eq!(long, format!("{}…", "é".repeat(LABEL_BYTES / 2)));
    }
}
