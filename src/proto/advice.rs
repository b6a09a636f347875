//! The advice of a server that refuses a request, as headers of ERROR (rule Q8).

use std::time::Duration;

use super::Headers;
use crate::error::Advice;

/// The URI of a server that the client may ask instead. May come several times, best first.
const REDIRECT: &str = "dipc-redirect";
/// How long to wait before the next request: milliseconds, as a decimal number.
const RETRY_AFTER: &str = "dipc-retry-after-ms";

/// Most URIs that a client reads, and most bytes of one.
const MOST_REDIRECTS: usize = 16;
const MOST_URI_BYTES: usize = 1024;

impl Headers {
    /// The headers that carry `advice`.
    #[doc(hidden)]
    pub fn of_advice(advice: &Advice) -> Self {
        let mut headers = Self::new();
        for uri in &advice.elsewhere {
            headers.add_own(REDIRECT, uri.as_bytes());
        }
        if let Some(time) = advice.retry_after {
            headers.add_own(RETRY_AFTER, time.as_millis().to_string().as_bytes());
        }
        headers
    }

    /// The advice in these headers, if there is any. Values that cannot be advice are left out.
    pub fn advice(&self) -> Option<Advice> {
        let uris = (self.iter())
            .filter(|(key, _)| *key == REDIRECT)
            .filter_map(|(_, value)| uri_of(value));
        let advice = Advice {
            elsewhere: uris.take(MOST_REDIRECTS).collect(),
            retry_after: self.get(RETRY_AFTER).and_then(time_of),
        };
        (advice != Advice::default()).then_some(advice)
    }
}

fn uri_of(value: &[u8]) -> Option<String> {
    let text = str::from_utf8(value).ok()?;
    let is_one = (1..=MOST_URI_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    is_one.then(|| text.to_owned())
}

fn time_of(value: &[u8]) -> Option<Duration> {
    let millis: u32 = str::from_utf8(value).ok()?.parse().ok()?;
    Some(Duration::from_millis(millis.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule Q8: what a server advises reaches the client, in its order.
    #[test]
    fn advice_crosses_as_headers() {
        let advice = Advice {
            elsewhere: vec!["tcp://b:1".to_owned(), "shm:/c".to_owned()],
            retry_after: Some(Duration::from_millis(250)),
        };
        let headers = Headers::of_advice(&advice);
        assert_eq!(headers.get("dipc-redirect"), Some(&b"tcp://b:1"[..]));
        assert_eq!(headers.get("dipc-retry-after-ms"), Some(&b"250"[..]));
        assert_eq!(headers.advice(), Some(advice));
        assert_eq!(Headers::new().advice(), None);
    }

    /// Rule Q8: a server cannot make its client keep more than a few URIs, write into its log, or
    /// wait for a time that is not a number.
    #[test]
    fn advice_is_bounded() {
        let mut headers = Headers::new();
        for value in [&b""[..], b"tcp://a\n:1", b"\xff", &[b'a'; 1025]] {
            headers.add_own("dipc-redirect", value);
        }
        for value in [&b""[..], b"-1", b"1.5", b"99999999999"] {
            headers.add_own("dipc-retry-after-ms", value);
        }
        assert_eq!(headers.advice(), None);
        for _ in 0..100 {
            headers.add_own("dipc-redirect", b"tcp://b:1");
        }
        assert_eq!(headers.advice().unwrap().elsewhere.len(), 16);
    }
}
