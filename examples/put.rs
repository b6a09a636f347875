//! Puts a table into a server: the third program of docs/quick-start.md.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("n", column)])?;
    let table = dipc::Batches::of(batch.schema(), [batch]);
    let batches = dipc::Client::new()?.put("shm:@quick-start-taker", "numbers", table)?;
    println!("batches taken: {batches}");
    Ok(())
}
