//! String and byte arguments.

use std::ffi::{CStr, c_char};

use crate::error::{Error, Result, Status};
use crate::ffi::handle::{Out, null_argument, try_out};

/// A string argument.
///
/// # Safety
///
/// `text` is NULL, or a NUL-terminated string that nobody writes to for `'a`.
pub(super) unsafe fn try_str<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null_argument(name));
    }
    // SAFETY: it is not NULL; the caller promises a NUL-terminated string that nobody writes to for
    // 'a.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Error::invalid_argument(format!("{name} is not UTF-8")))
}

/// An argument of bytes. NULL is allowed for length 0.
///
/// # Safety
///
/// `data` is readable for `len_bytes`, and nobody writes to it for `'a`.
pub(super) unsafe fn try_bytes<'a>(
    data: *const u8,
    len_bytes: usize,
    name: &str,
) -> Result<&'a [u8]> {
    // SAFETY: the caller promises that `data` is readable for `len_bytes`, and that nobody writes
    // to it for 'a. Bytes have no alignment.
    unsafe { try_slice(data, len_bytes, name) }
}

/// An argument of `len` elements. NULL is allowed for length 0.
///
/// # Safety
///
/// `data` is aligned and readable for `len` elements, and nobody writes to it for `'a`.
pub(super) unsafe fn try_slice<'a, T>(data: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(null_argument(name));
    }
    if len
        .checked_mul(size_of::<T>())
        .is_none_or(|bytes| bytes > isize::MAX.unsigned_abs())
    {
        return Err(Error::invalid_argument(format!(
            "{name}: no memory has {len} elements"
        )));
    }
    // SAFETY: it is not NULL and its size was checked; the caller promises that it is aligned and
    // readable for `len` elements, and that nobody writes to it for 'a.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// An argument of URIs.
///
/// # Safety
///
/// `uris` points to `n_uris` pointers, each NULL or a NUL-terminated string; nobody writes to them
/// for `'a`.
pub(super) unsafe fn try_strs<'a>(
    uris: *const *const c_char,
    n_uris: usize,
) -> Result<Vec<&'a str>> {
    // SAFETY: the caller promises `uris` holds `n_uris` pointers.
    let uris = unsafe { try_slice(uris, n_uris, "uris") }?;
    // SAFETY: the caller promises that each is NULL or a string.
    uris.iter()
        .map(|uri| unsafe { try_str(*uri, "a URI") })
        .collect()
}

/// An argument of `len` elements to write to.
///
/// # Safety
///
/// `data` is aligned, readable and writable for `len` elements, and nobody else uses it for `'a`.
pub(super) unsafe fn try_mut_slice<'a, T>(
    data: *mut T,
    len: usize,
    name: &str,
) -> Result<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller promises that `data` is aligned and readable for `len` elements, and that
    // nobody else uses it; the result only proves the checks.
    unsafe { try_slice(data.cast_const(), len, name) }?;
    // SAFETY: it is not NULL and its size is possible, checked above; the caller promises that it
    // is aligned, readable and writable for `len` elements, and used by nobody else for 'a.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
}

/// The caller's place for a string or bytes, and for the length.
pub(super) struct TextOut<'a> {
    buffer: *mut u8,
    size: usize,
    len: Out<'a, usize>,
}

impl<'a> TextOut<'a> {
    /// Takes the three arguments. A NULL buffer of size 0 asks for the length only.
    ///
    /// # Safety
    ///
    /// `buffer` is NULL or writable for `size` bytes, `len` is NULL or writable, both for `'a`,
    /// and nobody else uses them.
    pub(super) unsafe fn new(buffer: *mut u8, size: usize, len: *mut usize) -> Result<Self> {
        if buffer.is_null() && size > 0 {
            return Err(null_argument("buffer"));
        }
        // SAFETY: the caller promises that it is NULL or writable.
        let len = unsafe { try_out(len, "out_len_bytes") }?;
        Ok(Self { buffer, size, len })
    }

    /// Refuses a buffer smaller than `size`, for calls that must not fail after their work. A NULL
    /// buffer passes.
    pub(super) fn at_least(self, size: usize) -> Result<Self> {
        if !self.buffer.is_null() && self.size < size {
            let error = too_small(self.size, size);
            self.len.set(size);
            return Err(error);
        }
        Ok(self)
    }

    /// Writes a string and a NUL. The length does not count the NUL.
    pub(super) fn set_text(self, text: &str) -> Result<()> {
        self.put(text.as_bytes(), true)
    }

    /// Writes bytes, without a NUL.
    pub(super) fn set_bytes(self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, false)
    }

    fn put(self, bytes: &[u8], nul: bool) -> Result<()> {
        let (size, needed) = (self.size, bytes.len().saturating_add(usize::from(nul)));
        self.len.set(bytes.len());
        if self.buffer.is_null() {
            return Ok(());
        }
        if size < needed {
            return Err(too_small(size, needed));
        }
        // SAFETY: `new`'s caller promised that `size` bytes are writable, and `size >= needed`;
        // the bytes are ours and so do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer, bytes.len()) };
        if nul {
            // SAFETY: `bytes.len() < needed <= size` bytes are writable.
            let end = unsafe { self.buffer.add(bytes.len()) };
            // SAFETY: `end` is one of the `size` writable bytes, since `bytes.len() < size`.
            unsafe { end.write(0) };
        }
        Ok(())
    }
}

fn too_small(size: usize, needed: usize) -> Error {
    Error::new(
        Status::BufferTooSmall,
        format!("the buffer has {size} bytes where {needed} are needed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(size: usize, text: &str) -> (Result<()>, usize, [u8; 8]) {
        let (mut buffer, mut len) = ([b'?'; 8], usize::MAX);
        let start = if size == 0 {
            std::ptr::null_mut()
        } else {
            buffer.as_mut_ptr()
        };
        // SAFETY: `buffer` has 8 bytes, no `size` below is larger, and `len` is ours.
        let out = unsafe { TextOut::new(start, size, &raw mut len) }.unwrap();
        (out.set_text(text), len, buffer)
    }

    /// Promise: the length is always written, the text only if it fits.
    #[test]
    fn the_length_needed_always_comes_out() {
        let (result, len, buffer) = put(4, "abc");
        assert_eq!(
            (result, len, &buffer[..5]),
            (Ok(()), 3, b"abc\0?".as_slice())
        );
        let (result, len, buffer) = put(3, "abc");
        assert_eq!(result.unwrap_err().status(), Status::BufferTooSmall);
        assert_eq!((len, buffer), (3, [b'?'; 8]));
        let (result, len, buffer) = put(0, "abc");
        assert_eq!((result, len, buffer), (Ok(()), 3, [b'?'; 8]));
    }

    /// Promise: NULL with a length is refused by name, and so is a length larger than any memory.
    #[test]
    fn lengths_are_checked() {
        // SAFETY: NULL is refused before it is read.
        let error = unsafe { try_bytes(std::ptr::null(), 3, "ticket") }.unwrap_err();
        assert_eq!(
            (error.status(), error.text()),
            (Status::NullArgument, "ticket is NULL")
        );
        // SAFETY: nothing is read for a length of 0.
        let empty = unsafe { try_bytes(std::ptr::null(), 0, "ticket") };
        assert_eq!(empty, Ok(&[][..]));
        let word = 0u64;
        // SAFETY: the length is refused before anything is read.
        let error = unsafe { try_slice(&raw const word, usize::MAX / 4, "uris") }.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
}
