//! Files of other implementations, and files that once broke an implementation.

use std::fs::File;

use arrow::ipc::reader::StreamReader;

use super::support::*;

/// Rules A5 and A8: every golden stream arrives equal, at both levels, wherever its bodies lie.
#[test]
fn golden_streams_arrive_equal() {
    for path in golden("streams") {
        let bytes = std::fs::read(&path).unwrap();
        let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let schema = reader.schema();
        let expected: Vec<_> = reader.map(Result::unwrap).collect();
        for level in LEVELS {
            for at in PLACES {
                let decoded = decode(&bytes, level, at)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let (read_schema, batches) = read_back(decoded);
                assert_eq!(&read_schema, schema.as_ref(), "{}", path.display());
                assert_eq!(batches, expected, "{} {level:?} {at:?}", path.display());
            }
        }
    }
}

/// Rule A8: files that broke another implementation cause an error or a valid result.
#[test]
fn fuzz_files_are_errors_or_valid() {
    for path in golden("fuzz") {
        let bytes = std::fs::read(&path).unwrap();
        for at in PLACES {
            for level in LEVELS {
                let Ok(decoded) = decode(&bytes, level, at) else {
                    continue;
                };
                touch(&decoded);
            }
        }
    }
}
