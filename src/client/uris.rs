//! A cache of parsed URIs.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use crate::error::Result;
use crate::proto::Uri;

/// Most URIs in the cache. A full cache is emptied.
pub(super) const MOST_KNOWN: usize = 64;

/// A URI, and the name of its connections in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownUri {
    pub(super) uri: Uri,
    pub(super) name: Arc<str>,
}

/// Parsed URIs by their text: parsing takes longer than asking for a stream.
#[derive(Default)]
pub(super) struct KnownUris(Mutex<HashMap<String, Arc<[KnownUri]>>>);

impl KnownUris {
    /// Parses the URIs of one stream, or finds them in the cache.
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
