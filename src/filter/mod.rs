//! Filters of rows, sent as an extended expression of [Substrait](https://substrait.io).
//!
//! A [`Filter`] is parsed from the message and bound to a table's schema; then it is evaluated on
//! each batch, by the kernels of `arrow`. A row passes where the expression is true; null counts as
//! false.
//!
//! # The message
//!
//! A `substrait.ExtendedExpression` with one expression, which gives booleans. `pyarrow` writes it
//! with `Expression.to_substrait(schema)`; DataFusion's producer writes another form of it, which
//! is understood too.
//!
//! A column is found by its name: the message's base schema names the columns to which the
//! expression refers by position, and may have fewer than the table, in another order. Without
//! names, positions are those of the table. Fields of structs are found in the same way. The types
//! of the base schema do not matter: those of the table do.
//!
//! A message has at most 64 KiB, 64 levels and 1024 expressions. Literals in a list of values do
//! not count as expressions.
//!
//! # Types
//!
//! | Column | Can be |
//! |---|---|
//! | boolean, integers, floats (half too), decimals of 32 to 256 bits | compared, listed, cast; calculated with, but for booleans |
//! | utf8, binary: plain, large and view; binary of a fixed size | compared, listed, searched, cast |
//! | date, time, timestamp (with a zone or without one), duration | compared, listed, cast |
//! | dictionary, run-end encoded | as its values |
//! | struct | asked for null; its fields are like columns |
//! | null, list, map, union, interval | asked for null |
//!
//! Types of both sides need not be equal: a literal takes the column's type if that keeps its value,
//! and else both get the smallest type that has all values of both. In arithmetic, a literal keeps
//! its type. Numbers are comparable with numbers, texts with texts, times with times of any unit;
//! times with a zone with each other alone.
//!
//! Literals may be those of Substrait but intervals of months, lists, maps and structs; `pyarrow`'s
//! own for unsigned integers, half floats, large texts, milliseconds of dates, seconds,
//! milliseconds and nanoseconds of times; and DataFusion's variations for unsigned integers, large
//! texts, views and units. An interval of days and seconds is a duration.
//!
//! # Functions
//!
//! | Names | Notes |
//! |---|---|
//! | `equal`, `not_equal`, `lt`, `lte`, `gt`, `gte`, `between` | NaN equals nothing; -0 equals 0 |
//! | `is_not_distinct_from`, `is_distinct_from` | nulls are equal |
//! | `is_null`, `is_not_null`, `is_nan`, `is_finite`, `is_infinite` | |
//! | `is_true`, `is_not_true`, `is_false`, `is_not_false`, `is_unknown`, `is_not_unknown` | |
//! | `and`, `or`, `xor`, `not` | Kleene's logic: false and null is false |
//! | `add`, `subtract`, `multiply`, `divide`, `modulus`, `negate` | option `overflow`: ERROR (default), SILENT. An integer or decimal divided by zero is an error |
//! | `coalesce` | |
//! | `starts_with`, `ends_with`, `contains` | option `case_sensitivity`: CASE_SENSITIVE (default), CASE_INSENSITIVE for a literal |
//! | `like`, `ilike` | the pattern is a literal; `\` makes the next character plain |
//! | `lower`, `upper` | |
//!
//! A signature behind the name (`equal:any_any`) is ignored, and so is the file that declares it,
//! but for `urn:arrow:substrait_simple_extension_function`: from there come the functions of these
//! kinds by Arrow's names (`less_equal`, `and_kleene`, `invert`, `utf8_lower`).
//!
//! Beside functions there are casts (a value that does not fit is an error, or null if the message
//! says so), lists of values (`SingularOrList`) and conditions (`IfThen`). All branches of a
//! condition are computed for all rows, so a condition does not prevent an error.
//!
//! # Where pyarrow differs
//!
//! A message has the meaning that Substrait gives it. The expression from which `pyarrow` has made
//! it can mean another thing in `pyarrow` itself:
//!
//! - `isin`: a null is in a list with a null, and is not in another one. Here both are null, so that
//!   `~f.isin(...)` drops nulls.
//! - `if_else`: a null condition gives null. Here it is as a false one.
//! - `cast(..., safe=False)`: a number that does not fit loses its high bits. Here it is an error.
//! - A float divided by zero is an error in `pyarrow`, and here infinite or NaN.

mod coerce;
mod compare;
mod extensions;
mod function;
mod literal;
mod members;
mod message;
mod names;
mod node;
mod parse;
#[cfg(test)]
mod tests;
mod types;
mod value;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{concat, filter_record_batch};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use prost::bytes::Bytes;

use self::extensions::Extensions;
use self::message::ExtendedExpression;
use self::names::Names;
use self::node::Node;
use self::parse::Parser;
use self::value::{Column, Value};
use crate::error::{Error, Result, Status};

/// Most bytes of a message.
pub const MOST_BYTES: usize = 64 << 10;

/// Most levels of expressions in expressions.
pub const MOST_LEVELS: usize = 64;

/// Most expressions in a message, each of which may be computed for every row.
pub const MOST_NODES: usize = 1024;

/// Rows of a batch that go through all expressions together. The results of expressions take memory
/// until they are joined, and a message chooses how many there are.
const ROWS_AT_ONCE: usize = 16 << 10;

/// A condition on the rows of a table.
pub struct Filter {
    root: Node,
    /// What `root` refers to.
    columns: Vec<Column>,
    tops: Vec<usize>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("columns", &self.tops)
            .finish_non_exhaustive()
    }
}

impl Filter {
    /// The filter in `message`, an extended expression of Substrait, for tables of `schema`.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`]: the message is malformed or too large, names a column that the
    /// table does not have, or does not give booleans. [`Status::Unsupported`]: the text names the
    /// function, type or form that filters do not support.
    pub fn parse(message: &[u8], schema: &Schema) -> Result<Self> {
        if message.len() > MOST_BYTES {
            return Err(Error::invalid_argument(format!(
                "the filter has {} bytes, of at most {MOST_BYTES}",
                message.len()
            )));
        }
        let mut message: ExtendedExpression = parse::decode(Bytes::copy_from_slice(message))?;
        let extensions = Extensions::new(&mut message);
        let advanced = message.advanced_extensions;
        if advanced.is_some_and(|advanced| advanced.enhancement.is_some()) {
            return Err(Error::unsupported(
                "filters do not support advanced extensions",
            ));
        }
        let expression = only_one(message.referred_expr)?;
        let names = Names::new(message.base_schema)?;
        let mut parser = Parser::new(extensions, names, schema.fields());
        let root = parser.expression(expression, 0)?;
        let root = match root.data_type() {
            DataType::Boolean => root,
            DataType::Null => coerce::convert(root, &DataType::Boolean)?,
            other => {
                return Err(Error::invalid_argument(format!(
                    "the filter gives {other}, not booleans"
                )));
            }
        };
        let columns = parser.columns;
        let mut tops: Vec<_> = columns.iter().filter_map(Column::top).collect();
        tops.sort_unstable();
        tops.dedup();
        Ok(Self {
            root,
            columns,
            tops,
        })
    }

    /// Positions of the table's columns that the filter reads, in ascending order.
    pub fn columns(&self) -> &[usize] {
        &self.tops
    }

    /// Which rows of `batch` pass: true. `batch` has the schema that the filter was parsed for.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`]: the text says why the filter has no result for a row, for
    /// example a division by zero. [`Status::InvalidData`]: `batch` has another schema.
    /// [`Status::OutOfMemory`].
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let columns = self.columns.iter().map(|column| column.load(batch));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let rows = batch.num_rows();
        if rows <= ROWS_AT_ONCE {
            return self.part(&columns, rows);
        }
        let mut parts = Vec::with_capacity(rows.div_ceil(ROWS_AT_ONCE));
        for start in (0..rows).step_by(ROWS_AT_ONCE) {
            let len = ROWS_AT_ONCE.min(rows - start);
            let columns = columns.iter().map(|column| column.slice(start, len));
            parts.push(self.part(&columns.collect::<Vec<_>>(), len)?);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        let all = concat(&parts).map_err(failed)?;
        Value::Array(all).booleans(rows).map_err(failed)
    }

    /// Which of `rows` pass; `columns` are those of the filter.
    fn part(&self, columns: &[ArrayRef], rows: usize) -> Result<BooleanArray> {
        let value = self.root.evaluate(columns).map_err(failed)?;
        value.booleans(rows).map_err(failed)
    }

    /// The rows of `batch` that pass.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`].
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        filter_record_batch(batch, &self.evaluate(batch)?).map_err(failed)
    }
}

/// The one expression of the message.
fn only_one(expressions: Vec<message::ExpressionReference>) -> Result<Bytes> {
    let count = expressions.len();
    let mut expressions = expressions.into_iter();
    match (expressions.next(), count) {
        (Some(reference), 1) => match (reference.expression, reference.measure) {
            (Some(expression), None) => Ok(expression),
            (_, Some(_)) => Err(Error::unsupported(
                "filters do not support aggregate functions",
            )),
            (None, None) => Err(Error::invalid_argument("the filter's expression is empty")),
        },
        _ => Err(Error::invalid_argument(format!(
            "the filter's message has {count} expressions: it needs one"
        ))),
    }
}

/// The error of a kernel.
fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::MemoryError(text) => {
            Error::new(Status::OutOfMemory, format!("the filter: {text}"))
        }
        other => Error::invalid_argument(format!("the filter failed: {other}")),
    }
}
