//! What a process opens once, however many users it has there.

use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// Open things, by what opens them. The lock is never held while something is opened or closed: the
/// driver may wait for the device.
pub(super) struct Once<K, V> {
    /// `None` while it is being opened; a dead one is being closed.
    open: Mutex<Vec<(K, Option<Weak<V>>)>>,
    changed: Condvar,
}

impl<K: PartialEq + Clone, V> Once<K, V> {
    pub(super) const fn new() -> Self {
        Self {
            open: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    /// What is open already, or what `open` opens now. Whoever drops the last `Arc` of it says so
    /// ([`closed`](Self::closed)) when it is closed.
    ///
    /// # Errors
    ///
    /// Those of `open`.
    pub(super) fn get(&self, key: &K, open: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let mut known = self.open.lock();
        loop {
            let found = known.iter().find(|(of, _)| of == key);
            match found.map(|(_, value)| value.as_ref().and_then(Weak::upgrade)) {
                None => break,
                Some(Some(value)) => return Ok(value),
                // Another thread opens it, or closes it since its last user is gone.
                Some(None) => self.changed.wait(&mut known),
            }
        }
        known.push((key.clone(), None));
        drop(known);
        let opened = open().map(Arc::new);
        let mut known = self.open.lock();
        match &opened {
            Ok(value) => {
                if let Some((_, slot)) = known.iter_mut().find(|(of, _)| of == key) {
                    *slot = Some(Arc::downgrade(value));
                }
            }
            Err(_) => known.retain(|(of, _)| of != key),
        }
        self.changed.notify_all();
        drop(known);
        opened
    }

    /// What `key` had opened is closed now.
    pub(super) fn closed(&self, key: &K) {
        self.open.lock().retain(|(of, _)| of != key);
        self.changed.notify_all();
    }
}
