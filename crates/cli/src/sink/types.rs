//! The types that a format can hold. A writer that meets another type writes it as something else,
//! writes what no reader takes, or panics. So the columns are checked before the first byte.

use std::fmt::{self, Write as _};

use arrow::datatypes::{DataType, Field, IntervalUnit, Schema};
use dipc::{Error, Result};

/// A format that has fewer types than Arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// Apache Parquet, as the `parquet` crate writes it and reads it back.
    Parquet,
    /// Text.
    Csv,
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
        })
    }
}

impl Narrow {
    /// Checks that each column comes back as it is.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the column, its type and the formats that hold it.
    pub fn ensure_holds(self, schema: &Schema) -> Result<()> {
        for field in schema.fields() {
            if let Some((path, ty)) = self.lacking(field) {
                let others = match self {
                    Self::Csv if Self::Parquet.lacking(field).is_none() => {
                        ".arrow, .arrows or .parquet"
                    }
                    _ => ".arrow or .arrows",
                };
                return Err(Error::unsupported(format!(
                    "{self} cannot hold column {path:?}, which has the type {}: write {others}, \
                     which can, or leave the column out (--columns)",
                    shown(ty)
                )));
            }
        }
        Ok(())
    }

    /// The first field within `field` that this format lacks, and its type.
    fn lacking(self, field: &Field) -> Option<(String, &DataType)> {
        let ty = field.data_type();
        let lacks = match self {
            Self::Parquet => parquet_lacks(ty),
            // CSV has no values within values.
            Self::Csv => ty.is_nested(),
        };
        if lacks {
            return Some((field.name().clone(), ty));
        }
        children(ty).into_iter().find_map(|child| {
            let (path, ty) = self.lacking(child)?;
            Some((format!("{}.{path}", field.name()), ty))
        })
    }
}

/// Whether Parquet lacks a type, whatever its children are.
fn parquet_lacks(ty: &DataType) -> bool {
    match ty {
        DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _)
        | DataType::FixedSizeBinary(0)
        | DataType::Interval(IntervalUnit::MonthDayNano) => true,
        DataType::Struct(fields) => fields.is_empty(),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale < 0,
        DataType::Dictionary(_, values) => !comes_back_in_a_dictionary(values),
        _ => false,
    }
}

/// Whether the `parquet` crate reads a dictionary of these values as one.
fn comes_back_in_a_dictionary(values: &DataType) -> bool {
    match values {
        DataType::Null
        | DataType::Boolean
        | DataType::Float16
        | DataType::Interval(_)
        | DataType::Dictionary(_, _) => false,
        // Longer ones are bytes of a fixed length in Parquet.
        DataType::Decimal128(digits, _) | DataType::Decimal256(digits, _) if *digits > 18 => false,
        values => !values.is_nested() && !parquet_lacks(values),
    }
}

/// The fields within a type.
fn children(ty: &DataType) -> Vec<&Field> {
    match ty {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => vec![field],
        DataType::Struct(fields) => fields.iter().map(AsRef::as_ref).collect(),
        _ => Vec::new(),
    }
}

/// The text of a type, which may have thousands of fields.
fn shown(ty: &DataType) -> String {
    const MOST: usize = 200;
    let mut text = String::new();
    // To write to a string does not fail.
    let _ = write!(text, "{ty}");
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
#[path = "types_tests.rs"]
mod tests;
