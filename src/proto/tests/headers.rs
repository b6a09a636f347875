use super::*;
use proptest::prelude::*;

fn made(pairs: &[(&str, &[u8])]) -> Headers {
    let mut headers = Headers::new();
    for (key, value) in pairs {
        headers.add(key, *value).unwrap();
    }
    headers
}

/// Rule Q1: the bytes of docs/wire.md, in order, with a repeated key.
#[test]
fn headers_are_as_documented() {
    let headers = made(&[("b.c", b"\x00\xff"), ("a", b""), ("b.c", b"2")]);
    let mut bytes = Vec::new();
    headers.encode(&mut bytes);
    let expected = b"\x03\x02\0\0\0b.c\x00\xff\x01\0\0\0\0a\x03\x01\0\0\0b.c2";
    assert_eq!(bytes, expected);
    assert_eq!(headers.encoded_len(), bytes.len());
    assert_eq!(
        Headers::decode(&bytes, MAX_REQUEST_HEADERS).unwrap(),
        headers
    );
    assert_eq!(headers.get("b.c"), Some(&b"\x00\xff"[..]));
    assert_eq!(headers.get("c"), None);
    let keys: Vec<_> = headers.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["b.c", "a", "b.c"]);
}

/// Rule Q1: keys are lower-case ASCII, and the host may not set keys with `dipc-`.
#[test]
fn keys_are_checked() {
    let mut headers = Headers::new();
    let long = "k".repeat(256);
    for key in ["", "A", "a b", "ä", "a:", "a\0", &long] {
        let error = headers.add(key, "v").unwrap_err();
        assert!(error.text().contains("other characters"), "{key}: {error}");
    }
    let error = headers.add("dipc-retry-after-ms", "1").unwrap_err();
    assert!(error.text().contains("sets such headers itself"), "{error}");
    assert!(headers.is_empty());
    headers.add(&long[1..], "v").unwrap();
    headers.add("traceparent", "00-ab-cd-01").unwrap();
    assert_eq!(headers.len(), 2);
}

/// Rule Q1: headers have a limit, both for senders and for readers.
#[test]
fn headers_have_a_limit() {
    let headers = made(&[("k", &[7; 94])]);
    assert_eq!(headers.encoded_len(), 100);
    headers.ensure_fit(100).unwrap();
    let error = headers.ensure_fit(99).unwrap_err();
    assert!(
        error.text().contains("100 bytes; the limit is 99"),
        "{error}"
    );
    let mut bytes = Vec::new();
    headers.encode(&mut bytes);
    Headers::decode(&bytes, 100).unwrap();
    let error = Headers::decode(&bytes, 99).unwrap_err();
    assert_eq!(error.rule(), "Q1");
}

/// Rule Q1: malformed headers are refused, cut at any byte.
#[test]
fn malformed_headers_are_refused() {
    let mut bytes = Vec::new();
    made(&[("key", b"value")]).encode(&mut bytes);
    for len in 1..bytes.len() {
        Headers::decode(&bytes[..len], 100).unwrap_err();
    }
    for bad in [
        &b"\0\0\0\0\0"[..],
        b"\x01\0\0\0\0K",
        b"\x01\xff\xff\xff\xffk",
    ] {
        Headers::decode(bad, 100).unwrap_err();
    }
}

proptest! {
    /// Headers that are read are written the same, and any bytes can be read without a panic.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(headers) = Headers::decode(&bytes, 64) {
            let mut again = Vec::new();
            headers.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
