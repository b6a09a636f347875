//! The sum of a column of a table, in one row: `total`, null if no value is there, and `count`, the
//! number of values.
//!
//! The arguments are the column's name. It has the type int64 or float64.

use std::sync::Arc;

use arrow_arith::aggregate::{sum, sum_checked};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

enum Total {
    Int64(i64),
    Float64(f64),
}

struct Sum {
    column: usize,
    total: Total,
    count: i64,
    output: SchemaRef,
}

impl Function for Sum {
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let input = input.ok_or("sum needs a table")?;
        let name = str::from_utf8(arguments)?;
        let column = input.index_of(name)?;
        let data_type = input.field(column).data_type();
        let total = match data_type {
            DataType::Int64 => Total::Int64(0),
            DataType::Float64 => Total::Float64(0.0),
            other => return Err(format!("column {name} is {other}: not int64 or float64").into()),
        };
        let output = Arc::new(Schema::new(vec![
            Field::new("total", data_type.clone(), true),
            Field::new("count", DataType::Int64, false),
        ]));
        let function = Sum {
            column,
            total,
            count: 0,
            output: output.clone(),
        };
        Ok((function, Output::Table(output)))
    }

    fn process(&mut self, batch: &RecordBatch, _out: &mut Out) -> Result<()> {
        let column = batch.column(self.column);
        match &mut self.total {
            Total::Int64(total) => {
                let of_batch = sum_checked(column.as_primitive::<Int64Type>())?.unwrap_or(0);
                *total = total
                    .checked_add(of_batch)
                    .ok_or("the sum is too large for int64")?;
            }
            Total::Float64(total) => {
                *total += sum(column.as_primitive::<Float64Type>()).unwrap_or(0.0)
            }
        }
        self.count += i64::try_from(column.len() - column.null_count())?;
        Ok(())
    }

    fn finish(&mut self, out: &mut Out) -> Result<()> {
        let any = self.count > 0;
        let total: ArrayRef = match self.total {
            Total::Int64(total) => Arc::new(Int64Array::from(vec![any.then_some(total)])),
            Total::Float64(total) => Arc::new(Float64Array::from(vec![any.then_some(total)])),
        };
        let count = Arc::new(Int64Array::from(vec![self.count]));
        out.emit(&RecordBatch::try_new(
            self.output.clone(),
            vec![total, count],
        )?)
    }
}

dipc_guest::functions! { "sum" => Sum }

#[cfg(test)]
mod tests {
    use super::*;
    use dipc_guest::testing;

    #[test]
    fn a_sum_past_int64_fails() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let batches = [batch.clone(), batch];
        let input = Some((batches[0].schema_ref(), &batches[..]));
        let failure = testing::call::<Sum>(b"n", input).unwrap_err();
        assert_eq!(failure, "the sum is too large for int64");
    }
}
