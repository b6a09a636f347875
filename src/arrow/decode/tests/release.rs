//! The owners of a body's memory, and its release.

use std::sync::atomic::Ordering;

use arrow::ipc::writer::IpcWriteOptions;

use super::support::*;
use super::types::every_type;
use crate::arrow::abi::{ArrowArray, ArrowSchema};
use crate::arrow::decode::Level;
use crate::arrow::{OwnedArray, OwnedSchema};

fn one_batch() -> Decoded {
    let batch = every_type();
    let bytes = write(&batch.schema(), &[batch], IpcWriteOptions::default());
    decode(&bytes, Level::Full, Place::Packed).unwrap()
}

/// Moves child `index` out, as the C data interface describes.
fn move_child_out(parent: &ArrowArray, index: usize) -> OwnedArray {
    assert!(index < usize::try_from(parent.n_children).unwrap());
    // SAFETY: the parent lives, and has more than `index` children.
    let child = unsafe { *parent.children.wrapping_add(index) };
    // SAFETY: the child is not released, and nobody else uses it.
    unsafe { OwnedArray::take(child) }
}

/// The first byte of the last buffer. The drop of `Counted` overwrites it.
fn read_first_byte(array: &ArrowArray) -> u8 {
    let last = usize::try_from(array.n_buffers).unwrap() - 1;
    // SAFETY: the array has `n_buffers` buffers.
    let buffer = unsafe { *array.buffers.wrapping_add(last) };
    // SAFETY: the columns of these tests have data in their last buffer.
    unsafe { buffer.cast::<u8>().read() }
}

/// The release of the array returns the memory: every body is dropped once.
#[test]
fn releasing_a_batch_returns_its_body() {
    let Decoded {
        batches,
        drops,
        bodies,
        ..
    } = one_batch();
    // The batch uses the dictionaries until its release.
    assert_eq!((bodies, drops.load(Ordering::SeqCst)), (4, 0));
    drop(batches);
    assert_eq!(drops.load(Ordering::SeqCst), bodies);
}

/// Children that were moved out survive the release of their parent, and each holds the body.
#[test]
fn children_moved_out_hold_the_body() {
    let Decoded {
        batches,
        drops,
        bodies,
        ..
    } = one_batch();
    let parent = &batches[0].array.raw().array;
    let mut children: Vec<_> = (0..usize::try_from(parent.n_children).unwrap())
        .rev()
        .map(|index| move_child_out(parent, index))
        .collect();
    drop(batches);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    // Column 0 is Int8 [1, ..].
    assert_eq!(read_first_byte(children.last().unwrap().raw()), 1);
    while let Some(child) = children.pop() {
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        drop(child);
    }
    assert_eq!(drops.load(Ordering::SeqCst), bodies);
}

/// A grandchild and a dictionary that were moved out hold the body as well.
#[test]
fn what_lies_deeper_holds_the_body() {
    let Decoded {
        batches,
        drops,
        bodies,
        ..
    } = one_batch();
    let parent = &batches[0].array.raw().array;
    let columns = usize::try_from(parent.n_children).unwrap();
    let mut held = Vec::new();
    for index in 0..columns {
        let child = move_child_out(parent, index);
        for inner in 0..usize::try_from(child.raw().n_children).unwrap() {
            held.push(move_child_out(child.raw(), inner));
        }
        if !child.raw().dictionary.is_null() {
            // SAFETY: the dictionary is not released, and nobody else uses it.
            held.push(unsafe { OwnedArray::take(child.raw().dictionary) });
        }
    }
    drop(batches);
    assert!(held.len() > 10);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(held);
    assert_eq!(drops.load(Ordering::SeqCst), bodies);
}

/// Arrays may be released on any thread, and the parts of one batch on several at once.
#[test]
fn parts_are_released_on_many_threads() {
    for _ in 0..20 {
        let Decoded {
            batches,
            drops,
            bodies,
            ..
        } = one_batch();
        let parent = &batches[0].array.raw().array;
        let children: Vec<_> = (0..usize::try_from(parent.n_children).unwrap())
            .map(|index| move_child_out(parent, index))
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(batches));
            for child in children {
                scope.spawn(move || drop(child));
            }
        });
        assert_eq!(drops.load(Ordering::SeqCst), bodies);
    }
}

/// A refused message drops its body at once.
#[test]
fn a_refused_body_is_returned() {
    let batch = every_type();
    let mut messages = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    let (_, body) = messages.last_mut().unwrap();
    body.fill(0xff);
    let parsed: Vec<_> = messages
        .iter()
        .map(|(header, _)| crate::proto::Header::parse(header).unwrap())
        .collect();
    let drops = std::sync::Arc::default();
    let mut decoder = crate::arrow::decode::Decoder::new(
        &parsed[0],
        crate::arrow::decode::DecodeOptions::default(),
    )
    .unwrap();
    let last = parsed.len() - 1;
    for (header, (_, body)) in parsed.iter().zip(&messages).take(last).skip(1) {
        let body = place(header, body, Place::Packed, &drops);
        decoder.add_dictionary(header, &body).unwrap();
    }
    let body = place(&parsed[last], &messages[last].1, Place::Packed, &drops);
    decoder.batch(&parsed[last], &body).unwrap_err();
    drop(body);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    drop(decoder);
    assert_eq!(drops.load(Ordering::SeqCst), last);
}

/// Children of a schema can be moved out and outlive it. Every call returns a new schema.
#[test]
fn schemas_release_their_parts() {
    let decoded = one_batch();
    let schema = decoded.schema;
    let count = usize::try_from(schema.raw().n_children).unwrap();
    let mut children = Vec::new();
    for index in 0..count {
        // SAFETY: the schema lives, and has more than `index` children.
        let child: *mut ArrowSchema = unsafe { *schema.raw().children.wrapping_add(index) };
        // SAFETY: the child is not released, and nobody else uses it.
        children.push(unsafe { OwnedSchema::take(child) });
    }
    drop(schema);
    let expected = every_type();
    for (child, field) in children.into_iter().zip(expected.schema().fields()) {
        let ffi = import_schema(child);
        let read = arrow::datatypes::Field::try_from(&ffi).unwrap();
        assert_eq!(&read, field.as_ref());
    }
}
