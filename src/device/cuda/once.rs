//! Values that a process opens once and shares among their users.

use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;

/// Open values by key. The lock is never held during an open or a close, because the driver may
/// wait for the device.
pub(super) struct Once<K, V> {
    /// `None` during the open. A dead reference means that the value is being closed.
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

    /// The open value of `key`, or the result of `open`. The code that drops the last `Arc` must
    /// call [`closed`](Self::closed) after the close.
    ///
    /// # Errors
    ///
    /// The errors of `open`.
    pub(super) fn get(&self, key: &K, open: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let mut known = self.open.lock();
        loop {
            let found = known.iter().find(|(of, _)| of == key);
            match found.map(|(_, value)| value.as_ref().and_then(Weak::upgrade)) {
                None => break,
                Some(Some(value)) => return Ok(value),
                // Another thread is opening or closing the value.
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

    /// Records that the value of `key` is closed.
    pub(super) fn closed(&self, key: &K) {
        self.open.lock().retain(|(of, _)| of != key);
        self.changed.notify_all();
    }
}
