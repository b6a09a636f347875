//! Columns by name.

use arrow::datatypes::Schema;

use crate::error::{Error, Result};

/// Most columns that an error names.
const MOST_NAMED: usize = 20;

/// The places of the columns with these names.
///
/// # Errors
///
/// `InvalidArgument`, with a list of the columns: no column, or more than one, has one of the
/// names.
pub fn find<'a>(names: impl Iterator<Item = &'a str>, schema: &Schema) -> Result<Vec<usize>> {
    names.map(|name| one(name, schema)).collect()
}

fn one(name: &str, schema: &Schema) -> Result<usize> {
    let all = schema.fields().iter().enumerate();
    let mut named = all.filter(|(_, field)| field.name() == name);
    match (named.next(), named.next()) {
        (Some((at, _)), None) => Ok(at),
        (None, _) => Err(Error::invalid_argument(format!(
            "there is no column \"{name}\": {}",
            list(schema)
        ))),
        (Some(_), Some(_)) => Err(Error::invalid_argument(format!(
            "more than one column is named \"{name}\": rename all but one; {}",
            list(schema)
        ))),
    }
}

fn list(schema: &Schema) -> String {
    let fields = schema.fields();
    if fields.is_empty() {
        return "the table has no columns".to_owned();
    }
    let named = fields.iter().take(MOST_NAMED);
    let named: Vec<_> = named.map(|field| format!("\"{}\"", field.name())).collect();
    let more = match fields.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the columns are {}{more}", named.join(", "))
}
