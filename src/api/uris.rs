//! The addresses of a server.

use std::fmt;

/// One URI of a server, or two: for metadata and for bodies.
///
/// Made of a text, of two texts, or of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uris(Vec<String>);

impl Uris {
    /// The texts, whole: with the parameters, which name the connection's tags.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// The texts, as the core of the client takes them.
    pub(super) fn texts(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

/// For texts: without the parameters, which name the connection's tags.
impl fmt::Display for Uris {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |uri: &String| uri.split('?').next().unwrap_or_default().to_owned();
        f.write_str(&self.0.iter().map(bare).collect::<Vec<_>>().join(" and "))
    }
}

impl From<&str> for Uris {
    fn from(uri: &str) -> Self {
        Self(vec![uri.to_owned()])
    }
}

impl From<String> for Uris {
    fn from(uri: String) -> Self {
        Self(vec![uri])
    }
}

impl From<&String> for Uris {
    fn from(uri: &String) -> Self {
        Self(vec![uri.clone()])
    }
}

impl<T: Into<String>> From<[T; 2]> for Uris {
    fn from(uris: [T; 2]) -> Self {
        Self(uris.map(Into::into).into())
    }
}

impl<T: Into<String>> From<Vec<T>> for Uris {
    fn from(uris: Vec<T>) -> Self {
        Self(uris.into_iter().map(Into::into).collect())
    }
}

impl From<&[String]> for Uris {
    fn from(uris: &[String]) -> Self {
        Self(uris.to_vec())
    }
}

impl From<&Self> for Uris {
    fn from(uris: &Self) -> Self {
        uris.clone()
    }
}
