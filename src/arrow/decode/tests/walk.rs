//! A consumer that reads as far as an array says it reaches.

use std::ffi::CStr;

use super::support::*;
use crate::arrow::abi::{ArrowArray, ArrowSchema};

/// Reads the ends of every buffer as far as the type and length say that it reaches, and follows
/// the last offset: AddressSanitizer sees what lies outside.
pub fn touch(decoded: &Decoded) {
    for batch in &decoded.batches {
        walk(decoded.schema.raw(), &batch.array.raw().array, 0);
    }
}

/// Element `index` of `T`s from `base` on.
fn at<T: Copy>(base: *const u8, index: usize) -> T {
    assert!(!base.is_null());
    let element = base.wrapping_add(index * size_of::<T>()).cast::<T>();
    // SAFETY: the promise under test: the buffer reaches that far.
    unsafe { element.read_unaligned() }
}

fn ends(base: *const u8, bytes: usize) {
    if bytes != 0 {
        std::hint::black_box(at::<u8>(base, 0));
        std::hint::black_box(at::<u8>(base, bytes - 1));
    }
}

fn walk(schema: &ArrowSchema, array: &ArrowArray, need: usize) {
    assert!(array.release.is_some());
    assert!(array.length >= 0 && (0..=array.length).contains(&array.null_count));
    let len = usize::try_from(array.length).unwrap();
    assert!(len >= need);
    // SAFETY: the schema is ours, its format a string.
    let format = unsafe { CStr::from_ptr(schema.format) }.to_str().unwrap();
    let buffer = |index: usize| -> *const u8 {
        assert!(index < usize::try_from(array.n_buffers).unwrap());
        // SAFETY: an array has as many buffers as it says.
        unsafe { *array.buffers.wrapping_add(index) }.cast()
    };
    if !matches!(format.as_bytes(), [b'n', ..] | [b'+', b'u' | b'r', ..]) {
        if array.null_count > 0 {
            ends(buffer(0), len.div_ceil(8));
        } else {
            assert!(buffer(0).is_null());
        }
    }
    let wide = |index: usize, row: usize| -> usize {
        let offset = if matches!(format, "U" | "Z" | "+L" | "+vL") {
            at::<i64>(buffer(index), row)
        } else {
            at::<i32>(buffer(index), row).into()
        };
        usize::try_from(offset).unwrap()
    };
    let mut child_need = 0;
    match format {
        "n" | "+r" => assert_eq!(array.n_buffers, 0),
        "b" => ends(buffer(1), len.div_ceil(8)),
        "u" | "z" | "U" | "Z" => {
            assert!(wide(1, 0) <= wide(1, len));
            ends(buffer(2), wide(1, len));
        }
        "vu" | "vz" => {
            ends(buffer(1), len * 16);
            let last = usize::try_from(array.n_buffers).unwrap() - 1;
            for index in 2..last {
                ends(
                    buffer(index),
                    at::<i64>(buffer(last), index - 2).try_into().unwrap(),
                );
            }
        }
        "+l" | "+L" | "+m" => child_need = wide(1, len),
        "+vl" | "+vL" => {
            ends(buffer(1), len * if format == "+vL" { 8 } else { 4 });
            ends(buffer(2), len * if format == "+vL" { 8 } else { 4 });
        }
        "+s" => child_need = len,
        _ if format.starts_with("+w:") => child_need = len * format[3..].parse::<usize>().unwrap(),
        _ if format.starts_with("w:") => {
            ends(buffer(1), len * format[2..].parse::<usize>().unwrap())
        }
        _ if format.starts_with("+u") => {
            ends(buffer(0), len);
            if format.starts_with("+ud") {
                ends(buffer(1), len * 4);
            } else {
                child_need = len;
            }
        }
        _ => {
            let width = match format.as_bytes() {
                [b'c' | b'C'] => 1,
                [b's' | b'S' | b'e'] => 2,
                [b'i' | b'I' | b'f'] | b"tdD" | b"tts" | b"ttm" | b"tiM" => 4,
                b"tin" => 16,
                [b'd', b':', rest @ ..] => match rest.split(|byte| *byte == b',').nth(2) {
                    None => 16,
                    Some(bits) => std::str::from_utf8(bits).unwrap().parse::<usize>().unwrap() / 8,
                },
                _ => 8,
            };
            ends(buffer(1), len * width);
            assert_eq!(buffer(1).addr() % width.min(8), 0);
        }
    }
    assert_eq!(schema.n_children, array.n_children);
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: an array and its schema have as many children as they say.
        let child = unsafe { *array.children.wrapping_add(index) };
        // SAFETY: as above.
        let child_schema = unsafe { *schema.children.wrapping_add(index) };
        // SAFETY: children live as long as their parent.
        let (child, child_schema) = (unsafe { &*child }, unsafe { &*child_schema });
        walk(child_schema, child, child_need);
    }
    // SAFETY: the dictionary is NULL or lives as long as the array; the same for the schema's.
    if let Some(dictionary) = unsafe { array.dictionary.as_ref() } {
        // SAFETY: as above.
        walk(
            unsafe { schema.dictionary.as_ref() }.unwrap(),
            dictionary,
            0,
        );
    }
}
