//! Whose memory the batches lie in.

use dipc::{Arena, Client};

use crate::serving::Serving;
use crate::{batch, table};

/// Promise of `Arena::copy_batch`: the copy is equal and compact, also of a slice, and its memory
/// goes with the last buffer.
#[test]
fn batches_are_copied_into_an_arena() {
    let arena = Arena::host().unwrap();
    let whole = batch(0, 1000);
    for rows in [whole.clone(), whole.slice(10, 20), whole.slice(5, 0)] {
        let copy = arena.copy_batch(&rows).unwrap();
        assert_eq!(copy, rows);
        assert!(arena.used_bytes() < 40 * 1000);
        drop(copy);
        assert_eq!(arena.used_bytes(), 0);
    }
}

/// Promise of `Arena::buffer`: zero at first, writable, and then a buffer of arrow.
#[test]
fn a_buffer_of_an_arena_is_written_and_frozen() {
    let arena = Arena::host().unwrap();
    let mut bytes = arena.buffer(100).unwrap();
    assert_eq!(&bytes[..], [0; 100]);
    bytes[3] = 7;
    let buffer = bytes.freeze();
    assert_eq!(buffer.len(), 100);
    assert_eq!(buffer[3], 7);
    assert_eq!(arena.used_bytes(), 128);
    drop(buffer.slice(50));
    drop(buffer);
    assert_eq!(arena.used_bytes(), 0);
}

/// Promise of shm: the reader's batches lie in the server's arena, and outlive reader, client and
/// server.
#[test]
fn batches_of_an_arena_are_lent_and_stay() {
    let server = Serving::start("shm:@dipc-api-");
    let client = Client::new().unwrap();
    let mut reader = client.get(&server.uri, "published").unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        batches.push(batch);
    }
    let stats = reader.stats();
    assert_eq!(stats.bytes_copied, 0, "{stats:?}");
    assert!(stats.bytes_lent > 3 * 8000, "{stats:?}");
    drop((reader, client, server));
    assert_eq!(batches, table(3));
}
