//! Filters of rows, sent as an extended expression of [Substrait](https://substrait.io).
//!
//! A [`Filter`] is parsed from the message and bound to a table's schema; then it is evaluated on
//! each batch, by the kernels of `arrow`. A row passes where the expression is true; null counts as
//! false. `docs/filters.md` lists types and functions, and what a message may be.

pub mod build;
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
pub mod rows;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, BooleanBufferBuilder,
    GenericByteViewArray, RecordBatch, RecordBatchOptions, StringViewArray,
};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::FilterBuilder;
use arrow::datatypes::{ByteViewType, DataType, Schema};
use arrow::error::ArrowError;
use prost::bytes::Bytes;

use self::extensions::Extensions;
use self::message::ExtendedExpression;
use self::names::Names;
use self::node::Node;
use self::parse::Parser;
use self::value::{Column, Found};
use crate::error::{Error, Result, Status};

/// Most bytes of a message.
pub const MOST_BYTES: usize = 64 << 10;

/// Most levels of expressions in expressions.
pub const MOST_LEVELS: usize = 64;

/// Most expressions in a message, each of which may be computed for every row.
pub const MOST_NODES: usize = 1024;

/// How many rows of a batch go through all expressions at a time. The results of expressions take
/// memory until they are combined, and the sender of the message chooses the number of expressions.
const ROWS_AT_ONCE: usize = 16 << 10;

/// Up to this many rows of a batch, the rows that pass become a list of row numbers.
const MOST_NUMBERED: usize = 1 << 20;

/// A condition on the rows of a table.
pub struct Filter {
    root: Node,
    /// The columns that `root` refers to.
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

    /// True for each row of `batch` that passes. `batch` must have the schema that the filter was
    /// parsed for.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`]: the text says why the filter has no result for a row, for
    /// example a division by zero. [`Status::InvalidData`]: `batch` has another schema.
    /// [`Status::OutOfMemory`]. [`Status::Unsupported`]: as [`rows::ensure_bounded`].
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        self.passing(batch, &mut || Ok(()))
    }

    /// Which rows of `batch` pass. Calls `check` between parts; its error ends the work.
    fn passing(&self, batch: &RecordBatch, check: Check<'_>) -> Result<BooleanArray> {
        rows::ensure_bounded(batch)?;
        let columns = self.columns.iter().map(|column| column.find(batch));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let rows = batch.num_rows();
        if rows <= ROWS_AT_ONCE {
            return self.part(&columns, 0, rows);
        }
        let mut values = BooleanBufferBuilder::new(rows);
        let mut known = BooleanBufferBuilder::new(rows);
        for start in (0..rows).step_by(ROWS_AT_ONCE) {
            check()?;
            let part = self.part(&columns, start, ROWS_AT_ONCE.min(rows - start))?;
            values.append_buffer(part.values());
            match part.nulls() {
                Some(nulls) => known.append_buffer(nulls.inner()),
                None => known.append_n(part.len(), true),
            }
        }
        let known = NullBuffer::new(known.finish());
        Ok(BooleanArray::new(values.finish(), Some(known)))
    }

    /// Which of `len` rows pass; `columns` are those of the filter.
    fn part(&self, columns: &[Found<'_>], start: usize, len: usize) -> Result<BooleanArray> {
        let columns = columns.iter().map(|column| column.rows(start, len));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let value = self.root.evaluate(&columns).map_err(failed)?;
        value.booleans(len).map_err(failed)
    }

    /// The rows of `batch` that pass; if all do, `batch` itself. Columns of views keep the bytes of
    /// the other rows only if these are at most half of all bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`].
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.apply_to(batch, None, &mut || Ok(()))
    }

    /// As [`apply`](Self::apply), with the columns at these positions only; `None`: all columns.
    /// Calls `check` between parts of the work; its error ends the work.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`]; [`Status::InvalidData`]: there is no such column.
    pub fn apply_to(
        &self,
        batch: &RecordBatch,
        columns: Option<&[usize]>,
        check: Check<'_>,
    ) -> Result<RecordBatch> {
        let passing = self.passing(batch, check)?;
        let wanted = match columns.map(|columns| batch.project(columns)) {
            None => batch.clone(),
            Some(projected) => projected.map_err(|error| Error::invalid_data(error.to_string()))?,
        };
        if passing.true_count() == batch.num_rows() {
            return Ok(wanted);
        }
        let mut builder = FilterBuilder::new(&passing);
        // A list of the rows that pass is faster to apply than a bit for each row, but takes more
        // memory.
        if wanted.num_columns() > 1 && wanted.num_rows() <= MOST_NUMBERED {
            builder = builder.optimize();
        }
        let passing = builder.build();
        let mut columns = Vec::with_capacity(wanted.num_columns());
        for column in wanted.columns() {
            check()?;
            let passed = passing.filter(column).map_err(failed)?;
            columns.push(without_unused(&passed));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(passing.count()));
        RecordBatch::try_new_with_options(wanted.schema(), columns, &options).map_err(failed)
    }
}

/// Asks whether work goes on.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Removes the bytes that no row uses from a column of views, if they are more than half of all
/// bytes. The kernels of `arrow` keep all bytes.
fn without_unused(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View if is_sparse(column.as_string_view()) => {
            Arc::new(column.as_string_view().iter().collect::<StringViewArray>())
        }
        DataType::BinaryView if is_sparse(column.as_binary_view()) => {
            Arc::new(column.as_binary_view().iter().collect::<BinaryViewArray>())
        }
        _ => column.clone(),
    }
}

/// Whether the bytes that the rows use are fewer than half of the bytes that the array holds.
/// Shared bytes count for each of their rows, because each row would get a copy.
fn is_sparse<T: ByteViewType>(array: &GenericByteViewArray<T>) -> bool {
    let held: usize = array.data_buffers().iter().map(Buffer::len).sum();
    array.total_buffer_bytes_used() < held / 2
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
