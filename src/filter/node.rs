//! The filter's expression as a tree, with the type of each node.

use arrow::array::{ArrayRef, new_empty_array};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::function::Function;
use super::value::Value;
use crate::error::{Error, Result};

pub(super) enum Node {
    /// One of the filter's columns.
    Column { index: usize, data_type: DataType },
    /// One row.
    Literal(ArrayRef),
    Call {
        function: Function,
        arguments: Vec<Node>,
        data_type: DataType,
    },
}

impl Node {
    /// A call of `function` with `arguments`. A trial call without rows shows the type of the
    /// result. If all arguments are literals, the result is a literal.
    pub(super) fn call(function: Function, arguments: Vec<Self>) -> Result<Self> {
        let samples: Vec<_> = arguments.iter().map(Self::sample).collect();
        let result = function.call(&samples).map_err(refused)?;
        Ok(match result {
            Value::Scalar(array) => Self::Literal(array),
            Value::Array(array) => Self::Call {
                function,
                arguments,
                data_type: array.data_type().clone(),
            },
        })
    }

    pub(super) fn data_type(&self) -> &DataType {
        match self {
            Self::Column { data_type, .. } | Self::Call { data_type, .. } => data_type,
            Self::Literal(array) => array.data_type(),
        }
    }

    fn sample(&self) -> Value {
        match self {
            Self::Literal(array) => Value::Scalar(array.clone()),
            other => Value::Array(new_empty_array(other.data_type())),
        }
    }

    /// The values for the rows of `columns`, which are those of the filter.
    pub(super) fn evaluate(&self, columns: &[ArrayRef]) -> Result<Value, ArrowError> {
        match self {
            Self::Column { index, .. } => match columns.get(*index) {
                Some(array) => Ok(Value::Array(array.clone())),
                None => Err(ArrowError::InvalidArgumentError(format!(
                    "no column {index}"
                ))),
            },
            Self::Literal(array) => Ok(Value::Scalar(array.clone())),
            Self::Call {
                function,
                arguments,
                ..
            } => {
                let values: Result<Vec<_>, _> = arguments
                    .iter()
                    .map(|argument| argument.evaluate(columns))
                    .collect();
                function.call(&values?)
            }
        }
    }
}

/// The error of a call that cannot give a result, whatever the rows.
fn refused(error: ArrowError) -> Error {
    match error {
        ArrowError::InvalidArgumentError(text) | ArrowError::NotYetImplemented(text) => {
            Error::unsupported(format!("filters do not support this: {text}"))
        }
        other => Error::invalid_argument(format!("the filter has no result: {other}")),
    }
}
