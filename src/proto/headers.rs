//! Headers of requests and answers (rule Q1).

use crate::error::Error;
use crate::proto::ProtocolError;
use crate::proto::wire::{Fields, Wire};

/// Limit for the headers of a request, in bytes on the wire.
pub const MAX_REQUEST_HEADERS: usize = 64 << 10;

/// Limit for the headers of an answer, in bytes on the wire.
pub const MAX_ANSWER_HEADERS: usize = 32 << 10;

/// Prefix of the keys that only libdipc sets.
const OWN: &str = "dipc-";

/// Bytes of a pair besides its key and its value: the two lengths.
const PAIR: usize = 5;

/// Pairs of a key and a value, in order. A key may occur more than once.
///
/// A key has 1 to 255 characters: `a` to `z`, digits, `-`, `_` and `.`. A value may have any bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers {
    pairs: Vec<(String, Vec<u8>)>,
}

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self { pairs: Vec::new() }
    }

    /// Adds a header of the host program.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the key is malformed or begins with `dipc-`.
    pub fn add(&mut self, key: &str, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        if !is_key(key.as_bytes()) {
            return Err(Error::invalid_argument(format!(
                "the key {key:?} of a header has other characters than a to z, 0 to 9, `-`, `_` \
                 and `.`, or not 1 to 255 of them"
            )));
        }
        if key.starts_with(OWN) {
            return Err(Error::invalid_argument(format!(
                "the key `{key}` of a header begins with `{OWN}`: libdipc sets such headers itself"
            )));
        }
        self.pairs.push((key.to_owned(), value.into()));
        Ok(())
    }

    /// Adds a header of libdipc's own. `key` has few characters, of those that a key may have.
    pub(super) fn add_own(&mut self, key: &str, value: &[u8]) {
        self.pairs.push((key.to_owned(), value.to_vec()));
    }

    /// Adds the pairs of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.pairs.extend_from_slice(&other.pairs);
    }

    /// All pairs except those with this key.
    pub(crate) fn without(&self, key: &str) -> Self {
        let others = self.pairs.iter().filter(|(of, _)| of != key);
        Self {
            pairs: others.cloned().collect(),
        }
    }

    /// The first value with this key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(of, _)| *of == key)
            .map(|(_, value)| value)
    }

    /// The pairs, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        let pairs = self.pairs.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_slice()))
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the set of pairs is empty.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Refuses headers that take more than `limit` bytes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with the limit.
    #[doc(hidden)]
    pub fn ensure_fit(&self, limit: usize) -> Result<(), Error> {
        let len = self.encoded_len();
        if len <= limit {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "the headers take {len} bytes; the limit is {limit}"
        )))
    }

    /// Bytes on the wire.
    pub(crate) fn encoded_len(&self) -> usize {
        let lens = self
            .pairs
            .iter()
            .map(|(key, value)| key.len().saturating_add(value.len()).saturating_add(PAIR));
        lens.fold(0, usize::saturating_add)
    }

    /// Appends the pairs to a message.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        for (key, value) in &self.pairs {
            // `add` and `decode` limit the key, and each message limits its headers.
            bytes.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(value);
        }
    }

    /// Reads the pairs that fill `bytes`.
    ///
    /// # Errors
    ///
    /// Rule Q1: the headers take more than `limit` bytes, or a pair is malformed.
    pub(crate) fn decode(bytes: &[u8], limit: usize) -> Result<Self, ProtocolError> {
        if bytes.len() > limit {
            let len = bytes.len();
            return Err(broken!(
                "Q1",
                "headers of {len} bytes; the limit is {limit}"
            ));
        }
        let mut headers = Self::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (key, value, after) = pair(rest)
                .ok_or_else(|| broken!("Q1", "a header is malformed: see docs/wire.md"))?;
            headers.pairs.push((key.to_owned(), value.to_vec()));
            rest = after;
        }
        Ok(headers)
    }
}

/// The first pair of `bytes`, and the bytes after the pair.
fn pair(bytes: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let mut fields = Fields::new(bytes);
    let key = usize::from(fields.take::<u8>()?);
    let value = usize::try_from(fields.take::<u32>()?).ok()?;
    let (key, rest) = fields.rest().split_at_checked(key)?;
    let (value, rest) = rest.split_at_checked(value)?;
    let key = is_key(key).then(|| str::from_utf8(key).ok()).flatten()?;
    Some((key, value, rest))
}

fn is_key(key: &[u8]) -> bool {
    let allowed = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    (1..=255).contains(&key.len()) && key.iter().all(allowed)
}

/// The headers of an answer, up to the end.
impl Wire for Headers {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.encode(bytes);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Self::decode(fields.rest(), MAX_ANSWER_HEADERS).ok()
    }
}

#[cfg(test)]
#[path = "tests/headers.rs"]
mod tests;
