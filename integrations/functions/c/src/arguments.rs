//! Arguments of C, checked.

use std::ffi::{CStr, c_char};

use crate::error::{Failure, Result};
use crate::sys::{DIPC_ERR_INVALID_ARGUMENT, DIPC_ERR_NULL_ARGUMENT};

fn null(name: &str) -> Failure {
    Failure::new(DIPC_ERR_NULL_ARGUMENT, format!("{name} is NULL"))
}

pub fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(DIPC_ERR_INVALID_ARGUMENT, text)
}

/// A handle, shared.
///
/// # Safety
///
/// `handle` is NULL or live for `'a`, and nobody writes to it.
pub unsafe fn shared<'a, T>(handle: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller promises that `handle` is NULL, or live for `'a` and written to by nobody.
    unsafe { handle.as_ref() }.ok_or_else(|| null(name))
}

/// A place for an output of any old content; the result writes it.
///
/// # Safety
///
/// `place` is NULL, or aligned and writable until the result is called, and used by nobody else.
pub unsafe fn output<T>(place: *mut T, name: &str) -> Result<impl FnOnce(T)> {
    if place.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises that it is aligned, writable, and used by
    // nobody else.
    Ok(move |value| unsafe { place.write(value) })
}

/// A handle, for this call alone.
///
/// # Safety
///
/// `handle` is NULL, or live for `'a` and used by nobody else.
pub unsafe fn exclusive<'a, T>(handle: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: the caller promises that `handle` is NULL, or live for `'a` and used by nobody else.
    unsafe { handle.as_mut() }.ok_or_else(|| null(name))
}

/// Bytes; NULL is allowed for length 0.
///
/// # Safety
///
/// `bytes` is NULL, or readable for `length` bytes for `'a`.
pub unsafe fn bytes<'a>(bytes: *const u8, length: usize, name: &str) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() {
        return Err(null(name));
    }
    if isize::try_from(length).is_err() {
        return Err(invalid(format!("{name}: no memory has {length} bytes")));
    }
    // SAFETY: it is not NULL and the length is possible, both checked above; the caller promises
    // `length` bytes that are readable for `'a`.
    Ok(unsafe { std::slice::from_raw_parts(bytes, length) })
}

/// 32 bytes: a hash or a key.
///
/// # Safety
///
/// `bytes` is NULL or readable for 32 bytes.
pub unsafe fn thirty_two(bytes: *const u8, name: &str) -> Result<[u8; 32]> {
    // SAFETY: the caller promises that `bytes` is NULL or readable for 32 bytes; an array of bytes
    // has no alignment.
    unsafe { shared(bytes.cast::<[u8; 32]>(), name) }.copied()
}

/// A string of C.
///
/// # Safety
///
/// `text` is NULL, or NUL-terminated for `'a`.
pub unsafe fn c_str<'a>(text: *const c_char, name: &str) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, checked above; the caller promises that it is NUL-terminated for
    // `'a`.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A text.
///
/// # Safety
///
/// As [`c_str`].
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller promises that `text` is NULL, or NUL-terminated for `'a`.
    let text = unsafe { c_str(text, name) }?;
    text.to_str()
        .map_err(|_| invalid(format!("{name} is not UTF-8")))
}
