//! Serves a table: the first program of docs/quick-start.md.

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("n", column)])?;
    let server = dipc::Server::new()?;
    server.publish("numbers", &batch.schema(), [batch])?;
    println!("{}", server.listen("shm:@quick-start")?);
    std::thread::park();
    Ok(())
}
