//! What a server that refuses advises its client, as headers of ERROR (rule Q8).

use super::Headers;
use crate::error::Advice;

/// The URI of a server that the client may ask instead. May come several times, best first.
const REDIRECT: &str = "dipc-redirect";

/// Most URIs that a client reads, and most bytes of one.
const MOST_REDIRECTS: usize = 16;
const MOST_URI_BYTES: usize = 1024;

impl Headers {
    /// The headers that carry `advice`.
    pub fn of_advice(advice: &Advice) -> Self {
        let mut headers = Self::new();
        for uri in &advice.elsewhere {
            headers.add_own(REDIRECT, uri.as_bytes());
        }
        headers
    }

    /// The advice in these headers, if there is any. What cannot be a URI is left out.
    pub fn advice(&self) -> Option<Advice> {
        let uris = (self.iter())
            .filter(|(key, _)| *key == REDIRECT)
            .filter_map(|(_, value)| uri_of(value));
        let elsewhere: Vec<_> = uris.take(MOST_REDIRECTS).collect();
        (!elsewhere.is_empty()).then_some(Advice { elsewhere })
    }
}

fn uri_of(value: &[u8]) -> Option<String> {
    let text = str::from_utf8(value).ok()?;
    let is_one = (1..=MOST_URI_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    is_one.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule Q8: what a server advises reaches the client, in its order.
    #[test]
    fn advice_crosses_as_headers() {
        let advice = Advice {
            elsewhere: vec!["tcp://b:1".to_owned(), "shm:/c".to_owned()],
        };
        let headers = Headers::of_advice(&advice);
        assert_eq!(headers.get("dipc-redirect"), Some(&b"tcp://b:1"[..]));
        assert_eq!(headers.advice(), Some(advice));
        assert_eq!(Headers::new().advice(), None);
    }

    /// Rule Q8: a server cannot make its client keep more than a few URIs, or write into its log.
    #[test]
    fn advice_is_bounded() {
        let mut headers = Headers::new();
        for value in [&b""[..], b"tcp://a\n:1", b"\xff", &[b'a'; 1025]] {
            headers.add_own("dipc-redirect", value);
        }
        assert_eq!(headers.advice(), None);
        for _ in 0..100 {
            headers.add_own("dipc-redirect", b"tcp://b:1");
        }
        assert_eq!(headers.advice().unwrap().elsewhere.len(), 16);
    }
}
