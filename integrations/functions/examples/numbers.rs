//! A table without a table: `range` gives the numbers from 0 on, in batches of 4,096 rows.
//!
//! The arguments are their count, as a text.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

const ROWS: i64 = 4096;

struct Range {
    count: i64,
    output: SchemaRef,
}

impl Function for Range {
    fn init(arguments: &[u8], _input: Option<&Schema>) -> Result<(Self, Output)> {
        let count = str::from_utf8(arguments)?.parse()?;
        let output = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let function = Range {
            count,
            output: output.clone(),
        };
        Ok((function, Output::Table(output)))
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let mut start = 0;
        // The receiver may need fewer rows than there are.
        while start < self.count && out.is_wanted() {
            let end = start.saturating_add(ROWS).min(self.count);
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(start..end));
            out.emit(&RecordBatch::try_new(self.output.clone(), vec![numbers])?)?;
            start = end;
        }
        Ok(())
    }
}

dipc_guest::functions! { "range" => Range }
