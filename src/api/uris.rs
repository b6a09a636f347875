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

macro_rules! from {
    ($($type:ty $(where $generic:ident)?, $uris:ident => $texts:expr;)+) => {$(
        impl$(<$generic: Into<String>>)? From<$type> for Uris {
            fn from($uris: $type) -> Self {
                Self($texts)
            }
        }
    )+};
}

from! {
    &str, uri => vec![uri.to_owned()];
    String, uri => vec![uri];
    &String, uri => vec![uri.clone()];
    [T; 2] where T, uris => uris.map(Into::into).into();
    Vec<T> where T, uris => uris.into_iter().map(Into::into).collect();
    &[String], uris => uris.to_vec();
    &Uris, uris => uris.0.clone();
}
