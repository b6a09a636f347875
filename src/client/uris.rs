//! URIs that were read before.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use crate::error::Result;
use crate::proto::Uri;

/// Most URIs that are kept; then they are read anew.
pub(super) const MOST_KNOWN: usize = 64;

/// A URI, and the name by which its connections are found again.
pub(super) struct KnownUri {
    pub(super) uri: Uri,
    pub(super) name: Arc<str>,
}

/// URIs by their text: to read one takes longer than to ask for a stream.
#[derive(Default)]
pub(super) struct KnownUris(Mutex<HashMap<String, Arc<[KnownUri]>>>);

impl KnownUris {
    /// The URIs of one stream.
    ///
    /// # Errors
    ///
    /// `InvalidUri`.
    pub(super) fn read(&self, texts: &[&str]) -> Result<Arc<[KnownUri]>> {
        if let [text] = texts
            && let Some(known) = self.0.lock().get(*text)
        {
            return Ok(Arc::clone(known));
        }
        let uris = Uri::parse_all(texts)?.into_iter();
        let known: Arc<[KnownUri]> = uris
            .map(|uri| KnownUri {
                name: uri.to_string().into(),
                uri,
            })
            .collect();
        if let [text] = texts {
            let mut all = self.0.lock();
            if all.len() >= MOST_KNOWN {
                all.clear();
            }
            all.insert((*text).to_owned(), Arc::clone(&known));
        }
        Ok(known)
    }
}
