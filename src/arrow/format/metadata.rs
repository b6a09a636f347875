//! Key-value metadata in the C data interface's encoding: native-endian 32-bit lengths, each
//! followed by that many bytes.

use std::ffi::c_char;

/// Keys and values, in order; a key may stand more than once.
pub type Metadata = Vec<(String, String)>;

/// Most bytes of one field's or batch's metadata: a header, which must hold it, has to stay below
/// what transports take as one message.
pub const MAX_METADATA: usize = 64 << 20;

/// Reads encoded metadata. What is wrong comes back as a text.
///
/// Keys and values must be UTF-8, because the strings of IPC headers are; the encoding itself would
/// allow any bytes.
pub fn parse_metadata(mut bytes: &[u8]) -> Result<Metadata, String> {
    if bytes.len() > MAX_METADATA {
        return Err(format!("the metadata is larger than {MAX_METADATA} bytes"));
    }
    let count = take_length(&mut bytes)?;
    // Each pair takes two lengths: a larger count is a lie, found before anything is allocated.
    if count > bytes.len() / 8 {
        return Err(format!(
            "the metadata claims {count} pairs and is too short for them"
        ));
    }
    let mut pairs = Vec::with_capacity(count);
    for index in 0..count {
        let key = take_string(&mut bytes).map_err(|text| format!("metadata key {index} {text}"))?;
        let value = take_string(&mut bytes)
            .map_err(|text| format!("the metadata value of \"{key}\" {text}"))?;
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Writes metadata as [`parse_metadata`] reads it; nothing where it would be too large.
pub fn write_metadata(pairs: &[(String, String)]) -> Option<Vec<u8>> {
    let mut bytes = i32::try_from(pairs.len()).ok()?.to_ne_bytes().to_vec();
    for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend(i32::try_from(text.len()).ok()?.to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    Some(bytes)
}

fn take_length(bytes: &mut &[u8]) -> Result<usize, String> {
    let (length, rest) = bytes
        .split_first_chunk()
        .ok_or("the metadata ends within a length")?;
    *bytes = rest;
    let length = i32::from_ne_bytes(*length);
    usize::try_from(length).map_err(|_| format!("the metadata has a negative length, {length}"))
}

fn take_string(bytes: &mut &[u8]) -> Result<String, String> {
    let length = take_length(bytes).map_err(|text| format!("cannot be read: {text}"))?;
    let (text, rest) = bytes
        .split_at_checked(length)
        .ok_or("reaches past the metadata's end")?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).map_err(|_| "is not UTF-8".to_owned())
}

/// Reads the metadata of a C struct; `None` of a NULL pointer.
///
/// # Safety
///
/// `pointer` is NULL or points to metadata in the C data interface's encoding; nobody writes to it.
pub(super) unsafe fn metadata_from_c(pointer: *const c_char) -> Result<Metadata, String> {
    if pointer.is_null() {
        return Ok(Metadata::new());
    }
    let start: *const u8 = pointer.cast();
    // The encoding carries no total, so its end is found by walking the lengths once.
    let read_length = |at: usize| {
        // SAFETY: `at` is the end of what the lengths before describe, and the caller promises
        // that the encoding goes on there.
        let place = unsafe { start.add(at) };
        // SAFETY: the encoding has four bytes there, by the caller's promise.
        let length = i32::from_ne_bytes(unsafe { place.cast::<[u8; 4]>().read_unaligned() });
        usize::try_from(length).map_err(|_| format!("the metadata has a negative length, {length}"))
    };
    let pairs = read_length(0)?;
    let mut end = 4;
    for _ in 0..pairs {
        for _ in 0..2 {
            end += 4 + read_length(end)?;
        }
    }
    // SAFETY: the walk above found `end` bytes that belong to the encoding, which nobody writes to.
    parse_metadata(unsafe { std::slice::from_raw_parts(start, end) })
}
