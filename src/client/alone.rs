//! How many connections of a client have one stream at a time.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use crate::fork::Generation;

/// The connections with one stream at a time, by URI: those in use, and those kept.
#[derive(Default)]
pub(super) struct AloneConnections(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Counts one such connection until it is dropped.
pub(super) struct AlonePlace {
    all: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    uri: Arc<str>,
    generation: Generation,
}

impl AloneConnections {
    pub(super) fn count(&self, uri: &str) -> usize {
        self.0.lock().get(uri).copied().unwrap_or(0)
    }

    /// Counts one more connection.
    pub(super) fn add(&self, uri: &Arc<str>) -> AlonePlace {
        *self.0.lock().entry(Arc::clone(uri)).or_default() += 1;
        AlonePlace {
            all: Arc::clone(&self.0),
            uri: Arc::clone(uri),
            generation: Generation::now(),
        }
    }
}

impl Drop for AlonePlace {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever.
        if !self.generation.is_same_process() {
            return;
        }
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.uri) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.uri);
            }
        }
    }
}
