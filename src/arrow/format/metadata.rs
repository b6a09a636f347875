//! Key-value metadata in the encoding of the C data interface: native-endian 32-bit lengths, each
//! followed by its bytes.

use std::ffi::c_char;

/// Custom metadata of a batch, or of a field: keys and values, in order. A key may occur more than
/// once.
pub type Metadata = Vec<(String, String)>;

/// Most bytes of the metadata of a field or batch. A header contains the metadata, and must be
/// below the limit of transports for one message.
pub const MAX_METADATA: usize = 64 << 20;

/// Parses encoded metadata. The error is a text.
///
/// The encoding allows any bytes, but the strings of IPC headers are UTF-8, so keys and values must
/// be UTF-8.
pub fn parse_metadata(bytes: &[u8]) -> Result<Metadata, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "is not UTF-8");
    let pairs = parse_pairs(bytes)?.into_iter().enumerate();
    pairs
        .map(|(index, (key, value))| {
            let key = text(key).map_err(|why| format!("metadata key {index} {why}"))?;
            let value =
                text(value).map_err(|why| format!("the metadata value of \"{key}\" {why}"))?;
            Ok((key, value))
        })
        .collect()
}

/// A key and its value, of any bytes.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Parses encoded metadata of any bytes. The error is a text.
pub fn parse_pairs(mut bytes: &[u8]) -> Result<Vec<Pair<'_>>, String> {
    if bytes.len() > MAX_METADATA {
        return Err(format!("the metadata is larger than {MAX_METADATA} bytes"));
    }
    let count = take_length(&mut bytes)?;
    // Each pair has two lengths. So a too large count is found before any allocation.
    if count > bytes.len() / 8 {
        return Err(format!(
            "the metadata claims {count} pairs and is too short for them"
        ));
    }
    let mut pairs = Vec::with_capacity(count);
    for index in 0..count {
        let key = take_bytes(&mut bytes).map_err(|text| format!("metadata key {index} {text}"))?;
        let value = take_bytes(&mut bytes).map_err(|text| {
            let key = String::from_utf8_lossy(key);
            format!("the metadata value of \"{key}\" {text}")
        })?;
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Encodes metadata; `None` if a length does not fit 32 bits.
pub fn write_metadata(pairs: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Option<Vec<u8>> {
    let mut bytes = i32::try_from(pairs.len()).ok()?.to_ne_bytes().to_vec();
    for (key, value) in pairs {
        for text in [key.as_ref(), value.as_ref()] {
            bytes.extend(i32::try_from(text.len()).ok()?.to_ne_bytes());
            bytes.extend(text);
        }
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

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = take_length(bytes).map_err(|text| format!("cannot be read: {text}"))?;
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or("reaches past the metadata's end")?;
    *bytes = rest;
    Ok(taken)
}

/// Reads the metadata of a C struct; empty for a NULL pointer.
///
/// # Safety
///
/// As [`metadata_bytes`].
pub(super) unsafe fn metadata_from_c(pointer: *const c_char) -> Result<Metadata, String> {
    // SAFETY: the caller promises it; the bytes are read at once.
    match unsafe { metadata_bytes(pointer) }? {
        Some(bytes) => parse_metadata(bytes),
        None => Ok(Metadata::new()),
    }
}

/// The encoded metadata behind a pointer of a C struct; `None` for NULL.
///
/// # Safety
///
/// `pointer` is NULL or points to metadata in the C data interface's encoding, which is there for
/// `'a`. Nobody writes to it.
pub unsafe fn metadata_bytes<'a>(pointer: *const c_char) -> Result<Option<&'a [u8]>, String> {
    if pointer.is_null() {
        return Ok(None);
    }
    let start: *const u8 = pointer.cast();
    // The encoding has no total length, so this function follows the lengths to find the end.
    let read_length = |at: usize| {
        // SAFETY: `at` is the end of the entries before, and the caller promises that the encoding
        // continues.
        let place = unsafe { start.add(at) };
        // SAFETY: the caller promises an encoding, which has four bytes at `place`.
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
    // SAFETY: the loop found that the encoding has `end` bytes, and nobody writes to them.
    Ok(Some(unsafe { std::slice::from_raw_parts(start, end) }))
}
