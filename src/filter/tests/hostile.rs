use arrow::array::RecordBatch;

use super::golden::{cases, table};
use crate::error::Status;
use crate::filter::{Filter, MOST_BYTES};

fn harmless(message: &[u8], table: &RecordBatch) {
    match Filter::parse(message, &table.schema()) {
        Ok(filter) => {
            // An error is a valid outcome: a changed message may divide by zero.
            let _ = filter.apply(table);
        }
        Err(error) => assert!(
            matches!(
                error.status(),
                Status::InvalidArgument | Status::Unsupported
            ),
            "{error}"
        ),
    }
}

/// Promise of the module: no message panics, however it is cut.
#[test]
fn every_beginning_of_a_message_is_harmless() {
    let table = table();
    for case in cases().into_iter().step_by(5) {
        for end in 0..case.message.len() {
            harmless(&case.message[..end], &table);
        }
    }
}

/// Promise of the module: no message panics, whichever byte is wrong.
#[test]
fn every_changed_byte_is_harmless() {
    let table = table();
    // All changes of all messages would take minutes, so each message gets only some of them.
    for (which, case) in cases().into_iter().enumerate() {
        for at in (which % 23..case.message.len()).step_by(23) {
            for change in [1, 0x10, 0x80, 0xFF] {
                let mut message = case.message.clone();
                message[at] ^= change;
                harmless(&message, &table);
            }
        }
    }
}

/// Promise of the module: one byte too many is an error.
#[test]
fn a_message_has_at_most_64_kibibytes() {
    let error = Filter::parse(&vec![0; MOST_BYTES + 1], &table().schema()).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.text().contains("65537 bytes"), "{error}");
}
