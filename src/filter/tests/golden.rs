use std::fs::File;
use std::path::Path;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use arrow::ipc::reader::StreamReader;

use crate::filter::Filter;

/// A message, and the truth of each row of the table.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) message: Vec<u8>,
    rows: BooleanArray,
}

fn read(name: &str) -> RecordBatch {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filters");
    let file = File::open(folder.join(name)).unwrap();
    StreamReader::try_new(file, None)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
}

pub(super) fn table() -> RecordBatch {
    read("table.arrow")
}

pub(super) fn cases() -> Vec<Case> {
    let cases = read("cases.arrow");
    let names = cases.column(0).as_string::<i32>();
    let messages = cases.column(1).as_binary::<i32>();
    let rows = cases.column(2).as_list::<i32>();
    (0..cases.num_rows())
        .map(|at| Case {
            name: names.value(at).to_owned(),
            message: messages.value(at).to_vec(),
            rows: rows.value(at).as_boolean().clone(),
        })
        .collect()
}

/// Promise of the module: each message gives pyarrow's truth for each row, and for each part of the
/// rows, whatever comes before it in memory.
#[test]
fn rows_are_those_of_pyarrow() {
    let table = table();
    let mut wrong = Vec::new();
    for case in cases() {
        let filter = match Filter::parse(&case.message, &table.schema()) {
            Ok(filter) => filter,
            Err(error) => {
                wrong.push(format!("{}: {error}", case.name));
                continue;
            }
        };
        for (start, len) in [(0, table.num_rows()), (3, 5), (1, 1), (7, 3), (4, 0)] {
            let part = table.slice(start, len);
            let expected = case.rows.slice(start, len);
            match filter.evaluate(&part) {
                Ok(rows) if rows == expected => {}
                other => wrong.push(format!(
                    "{} from {start}: {other:?}, not {expected:?}",
                    case.name
                )),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Promise of `apply`: the rows that are true stay, in their order, with all columns.
#[test]
fn rows_that_are_true_stay() {
    let table = table();
    for case in cases().into_iter().step_by(17) {
        let filter = Filter::parse(&case.message, &table.schema()).unwrap();
        let kept = filter.apply(&table).unwrap();
        let rows = prep_null_mask_filter(&case.rows);
        assert_eq!(
            kept,
            filter_record_batch(&table, &rows).unwrap(),
            "{}",
            case.name
        );
        assert_eq!(kept.num_rows(), rows.true_count());
    }
}
