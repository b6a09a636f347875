//! A consumer that trusts its arrays, for the tests and the fuzz target `decode`.
#![allow(
    clippy::unwrap_used,
    reason = "a broken promise of the decoder must stop the test or the fuzzer"
)]

use std::ffi::CStr;
use std::sync::Arc;

use crate::arrow::abi::{ArrowArray, ArrowSchema};
use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, schema_from_c, schema_to_c};
use crate::device::{BufferRef, DeviceKind, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind, HeaderParser};

/// Decodes `data` as a stream of the IPC format, at both levels, with bodies as sent and as lent.
/// Reads the decoded buffers up to their ends (rule A8).
pub fn decode(data: &[u8]) {
    let messages = messages(data);
    for level in [Level::Structure, Level::Full] {
        for shared in [false, true] {
            // An error is a valid outcome.
            let Ok((schema, batches)) = decode_messages(&messages, level, shared) else {
                continue;
            };
            for batch in &batches {
                walk(schema.raw(), &batch.raw().array, 0);
            }
        }
    }
}

/// The table of a stream of the IPC format, as a client has it at the level `Full`.
///
/// # Errors
///
/// The schema is not valid.
pub fn table(data: &[u8]) -> Result<Box<dyn ArrayReader>> {
    let (schema, batches) = decode_messages(&messages(data), Level::Full, false)?;
    let batches = batches.into_iter();
    Ok(Box::new(Table { schema, batches }))
}

struct Table {
    schema: OwnedSchema,
    batches: std::vec::IntoIter<OwnedDeviceArray>,
}

impl ArrayReader for Table {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&schema_from_c(&self.schema)?)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.batches.next())
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}

fn decode_messages(
    messages: &[(Vec<u8>, Vec<u8>)],
    level: Level,
    shared: bool,
) -> Result<(OwnedSchema, Vec<OwnedDeviceArray>)> {
    let Some(((first, _), rest)) = messages.split_first() else {
        return Err(Error::invalid_data("no message"));
    };
    // A small limit: the fuzzer looks for invalid reads, not for large allocations.
    let options = DecodeOptions {
        level,
        message_limit: 1 << 20,
    };
    let mut parser = HeaderParser::default();
    let mut decoder = Decoder::new(&parser.parse(first)?, options)?;
    let schema = decoder.schema();
    let mut batches = Vec::new();
    for (header, body) in rest {
        let Ok(header) = parser.parse(header) else {
            continue;
        };
        let mut memory = HostBuffer::new(body.len())?;
        memory.as_mut_slice().copy_from_slice(body);
        let buffers = header.buffers().map(|span| {
            let start = usize::try_from(span.offset).unwrap_or(usize::MAX);
            let len = usize::try_from(span.length).unwrap_or(usize::MAX);
            let bytes = memory
                .as_slice()
                .get(start..)
                .and_then(|rest| rest.get(..len));
            BufferRef::of(bytes.unwrap_or_default())
        });
        let buffers = buffers.collect();
        // SAFETY: the buffers are slices of `memory`. A move of it does not move its bytes, and
        // nobody writes to them.
        let body = unsafe { ReceivedBody::new(buffers, Arc::new(memory), shared) };
        // The stream goes on after an invalid message, so that one invalid message does not hide
        // the next.
        if header.kind() == HeaderKind::Dictionary {
            let _ = decoder.add_dictionary(&header, &body);
        } else if let Ok(batch) = decoder.batch(&header, &body) {
            batches.push(batch.array);
        }
    }
    Ok((schema, batches))
}

/// The header and body of each message of a stream. Accepts as much as possible.
pub(super) fn messages(mut bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some((word, rest)) = bytes.split_first_chunk::<4>() {
        bytes = rest;
        let mut length = u32::from_le_bytes(*word);
        if length == u32::MAX {
            let Some((word, rest)) = bytes.split_first_chunk::<4>() else {
                break;
            };
            bytes = rest;
            length = u32::from_le_bytes(*word);
        }
        let length = length as usize;
        let Some((header, rest)) = bytes.split_at_checked(length) else {
            break;
        };
        if length == 0 {
            break;
        }
        let body_len = Header::parse(header).map_or(0, |header| header.body_len());
        let body_len = usize::try_from(body_len)
            .unwrap_or(usize::MAX)
            .min(rest.len());
        let (body, rest) = rest.split_at(body_len);
        bytes = rest;
        messages.push((header.to_vec(), body.to_vec()));
    }
    messages
}

/// Element `index` of an array of `T` at `base`.
fn at<T: Copy>(base: *const u8, index: usize) -> T {
    assert!(!base.is_null());
    let element = base.wrapping_add(index * size_of::<T>()).cast::<T>();
    // SAFETY: the promise under test is that the buffer contains the element.
    unsafe { element.read_unaligned() }
}

fn ends(base: *const u8, bytes: usize) {
    if bytes != 0 {
        std::hint::black_box(at::<u8>(base, 0));
        std::hint::black_box(at::<u8>(base, bytes - 1));
    }
}

/// Reads the first and last byte of every buffer, as type and length require, and follows the last
/// offset. AddressSanitizer reports invalid reads.
pub(super) fn walk(schema: &ArrowSchema, array: &ArrowArray, need: usize) {
    assert!(array.release.is_some());
    assert!(array.length >= 0 && (0..=array.length).contains(&array.null_count));
    let len = usize::try_from(array.length).unwrap();
    assert!(len >= need);
    // SAFETY: the decoder made the schema, whose format is a C string.
    let format = unsafe { CStr::from_ptr(schema.format) }.to_str().unwrap();
    let buffer = |index: usize| -> *const u8 {
        assert!(index < usize::try_from(array.n_buffers).unwrap());
        // SAFETY: an array has `n_buffers` buffers.
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
        // SAFETY: an array and its schema have `n_children` children.
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
