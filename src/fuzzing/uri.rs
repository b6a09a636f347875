use crate::proto::Uri;

/// Any text is refused, or read into what is written and read back the same (rule U1).
pub fn uri(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    if let Ok(uri) = Uri::parse(text) {
        let text = uri.to_string();
        let whole = Uri {
            is_bare: false,
            ..uri
        };
        assert_eq!(Uri::parse(&text), Ok(whole));
    }
    let pair: Vec<&str> = text.splitn(2, '\n').collect();
    if let Ok(uris) = Uri::parse_all(&pair) {
        assert_eq!(uris.len(), pair.len());
    }
}
