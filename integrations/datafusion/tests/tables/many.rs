//! A table of more columns than a request can name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::prelude::{Expr, SessionContext, col, lit};
use dipc_datafusion::DipcServer;

use crate::server::Serving;

/// 4,096 names are the most of a request, which has no room for 3,000 of these.
const COLUMNS: i64 = 5000;

fn name(column: i64) -> String {
    format!("a_column_whose_number_is_{column:04}")
}

/// Eight rows. Each value tells its column and its row.
pub fn many() -> RecordBatch {
    let column = |column| {
        let values = (0..8).map(|row| column * 10 + row);
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        (name(column), values)
    };
    RecordBatch::try_from_iter((0..COLUMNS).map(column)).unwrap()
}

async fn rows(
    context: &SessionContext,
    table: &str,
    columns: i64,
    condition: Option<&Expr>,
    most: Option<usize>,
) -> RecordBatch {
    let mut frame = context.table(table).await.unwrap();
    if let Some(condition) = condition {
        frame = frame.filter(condition.clone()).unwrap();
    }
    // Backwards, so that the order shows.
    let names: Vec<_> = (0..columns).rev().map(name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let frame = frame.select_columns(&names).unwrap();
    let frame = frame.limit(0, most).unwrap();
    let batches = frame.collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

/// Promise of `DipcTableProvider`: queries see columns and rows that a request has no room to ask
/// for. The server then leaves nothing out, or columns alone.
#[tokio::test]
async fn queries_want_more_than_a_request_can_name() {
    let server = Serving::start();
    let context = SessionContext::new();
    let there = DipcServer::new(&server.uris[0]).unwrap();
    there.register(&context, "there", "many").await.unwrap();
    context.register_batch("here", many()).unwrap();
    let last = || col(name(COLUMNS - 1));
    let from = (COLUMNS - 1) * 10;
    let by_server = last().gt(lit(from + 2));
    // DataFusion looks again at what the server has left.
    let by_both = last().gt(lit(2.5)).and(last().lt(lit(from + 6)));
    let list = (from + 2..from + 1000).map(lit).collect();
    let long = last().in_list(list, false);
    for (columns, condition, most) in [
        (2100, Some(&long), None),
        (3000, Some(&by_both), Some(3)),
        (4500, Some(&by_server), Some(3)),
    ] {
        let got = rows(&context, "there", columns, condition, most).await;
        let expected = rows(&context, "here", columns, condition, most).await;
        assert_eq!(got, expected, "{columns} {condition:?} {most:?}");
    }
}
