//! Texts of bounded length in messages.

use crate::proto::Fields;

/// Adds a text: its length in bytes (u32), then UTF-8. At most `most` bytes of the text, up to the
/// end of a character.
pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str, most: usize) {
    let text = bounded(text, most);
    put_bytes(bytes, text.as_bytes());
}

/// The text of [`put_text`]; `None` if the text is longer than `most` bytes or is not UTF-8.
pub(super) fn take_text(fields: &mut Fields<'_>, most: usize) -> Option<String> {
    let bytes = take_bytes(fields)?;
    (bytes.len() <= most).then_some(())?;
    Some(str::from_utf8(bytes).ok()?.to_owned())
}

/// Adds bytes: their number (u32), then the bytes. Bytes after 4 GiB are left out.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&len.to_le_bytes());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    bytes.extend_from_slice(value.get(..len).unwrap_or(value));
}

/// The bytes of [`put_bytes`]; `None` if the message ends before.
pub(super) fn take_bytes<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(fields.take::<u32>()?).ok()?;
    let (value, rest) = fields.rest().split_at_checked(len)?;
    *fields = Fields::new(rest);
    Some(value)
}

/// The text up to the last end of a character within `most` bytes.
pub(super) fn bounded(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}
