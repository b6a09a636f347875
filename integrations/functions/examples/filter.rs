//! A filter: the rows of a table with a column greater than a number.
//!
//! The arguments are a text, `COLUMN>NUMBER`, for example `price>9.5`. The column has the type int64
//! or float64.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use arrow_select::filter::filter_record_batch;
use dipc_guest::{Function, Out, Output, Result, arrow_array, arrow_schema};

enum Bound {
    Int64(i64),
    Float64(f64),
}

/// Keeps the rows with `column` > `bound`.
struct Keep {
    column: usize,
    bound: Bound,
}

impl Function for Keep {
    fn init(arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
        let input = input.ok_or("keep needs a table")?;
        let (name, number) = str::from_utf8(arguments)?
            .split_once('>')
            .ok_or("the arguments are COLUMN>NUMBER")?;
        let column = input.index_of(name)?;
        let bound = match input.field(column).data_type() {
            DataType::Int64 => Bound::Int64(number.parse()?),
            DataType::Float64 => Bound::Float64(number.parse()?),
            other => return Err(format!("column {name} is {other}: not int64 or float64").into()),
        };
        Ok((Keep { column, bound }, Output::table(input.clone())))
    }

    fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
        let column = batch.column(self.column);
        let wanted = match self.bound {
            Bound::Int64(bound) => {
                BooleanArray::from_unary(column.as_primitive::<Int64Type>(), |value| value > bound)
            }
            Bound::Float64(bound) => {
                BooleanArray::from_unary(column.as_primitive::<Float64Type>(), |value| {
                    value > bound
                })
            }
        };
        // A row that is null is not kept.
        out.emit(&filter_record_batch(batch, &wanted)?)
    }
}

dipc_guest::functions! { "keep" => Keep }
