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
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, GenericByteViewArray, RecordBatch,
    RecordBatchOptions, StringViewArray,
};
use arrow::buffer::Buffer;
use arrow::compute::{concat, filter_record_batch};
use arrow::datatypes::{ByteViewType, DataType, Schema};
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

    /// The rows of `batch` that pass; if all do, `batch` itself. Columns of views keep the bytes of
    /// other rows only where these are the fewer ones.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`].
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.apply_to(batch, None)
    }

    /// The same of these columns alone, by their positions; `None`: all.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`]; [`Status::InvalidData`]: there is no such column.
    pub fn apply_to(&self, batch: &RecordBatch, columns: Option<&[usize]>) -> Result<RecordBatch> {
        let passing = self.evaluate(batch)?;
        let wanted = match columns.map(|columns| batch.project(columns)) {
            None => batch.clone(),
            Some(projected) => projected.map_err(|error| Error::invalid_data(error.to_string()))?,
        };
        if passing.true_count() == batch.num_rows() {
            return Ok(wanted);
        }
        let passed = filter_record_batch(&wanted, &passing).map_err(failed)?;
        let columns = passed.columns().iter().map(without_unused).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(passed.num_rows()));
        RecordBatch::try_new_with_options(passed.schema(), columns, &options).map_err(failed)
    }
}

/// A column of views without the bytes that no row uses, if these are most. The kernels keep all.
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

/// Whether copies of what the rows use are smaller than half of what the array holds. Of rows that
/// share bytes each would get a copy.
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
