//! The columns that `--columns` names, and types of columns.

use std::sync::Arc;

use anyhow::{Result, bail};
use arrow::datatypes::{DataType, FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use crate::display::escape;

/// Some columns of a table, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(Vec<usize>);

impl Columns {
    /// Finds the columns `names`, with commas between them. A column whose own name is the whole
    /// text comes first.
    pub fn find(names: &str, schema: &Schema) -> Result<Self> {
        let is_one = schema.fields().iter().any(|field| field.name() == names);
        let names = match is_one {
            true => vec![names],
            false => names.split(',').collect(),
        };
        let mut found = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                bail!("column {name:?} is given twice");
            }
            let before = found.len();
            let fields = schema.fields().iter().enumerate();
            found.extend(fields.filter(|(_, it)| it.name() == name).map(|(at, _)| at));
            if found.len() == before {
                let there = schema.fields().iter().map(|field| escape(field.name()));
                let there = there.collect::<Vec<_>>().join(", ");
                bail!("no column has the name {name:?}; the table has {there}");
            }
        }
        Ok(Self(found))
    }

    /// Whether these are all columns of the table, in its order.
    pub fn are_all_of(&self, schema: &Schema) -> bool {
        self.0.iter().copied().eq(0..schema.fields().len())
    }

    /// The schema with only these columns.
    pub fn of_schema(&self, schema: &Schema) -> Result<Arc<Schema>, ArrowError> {
        schema.project(&self.0).map(Arc::new)
    }

    /// The batch with only these columns.
    pub fn of_batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        batch.project(&self.0)
    }
}

/// Whether the columns have the same names and types.
pub fn are_same(one: &Schema, other: &Schema) -> bool {
    fn key(field: &FieldRef) -> (&String, &DataType) {
        (field.name(), field.data_type())
    }
    one.fields()
        .iter()
        .map(key)
        .eq(other.fields().iter().map(key))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    /// Promise of `--columns`: the columns of these names in this order, also of names with commas
    /// and of names that two columns have; a missing name is an error that lists the others.
    #[test]
    fn columns_are_found_by_name() {
        let names = ["a", "b", "a,b", "c", "b"];
        let fields = names.map(|name| Field::new(name, DataType::Int32, true));
        let schema = Schema::new(fields.to_vec());
        let find = |names| Columns::find(names, &schema);
        assert_eq!(find("c,a").unwrap(), Columns(vec![3, 0]));
        assert_eq!(find("a,b").unwrap(), Columns(vec![2]));
        assert_eq!(find("b").unwrap(), Columns(vec![1, 4]));
        let first = schema.project(&[0, 1]).unwrap();
        let all = |names| Columns::find(names, &first).unwrap().are_all_of(&first);
        assert!(all("a,b") && !all("b,a") && !all("a"));
        let missing = find("a,d").unwrap_err().to_string();
        assert!(
            missing.contains("\"d\"; the table has a, b, a,b, c"),
            "{missing}"
        );
        assert!(find("").is_err());
        assert!(find("a,c,a").unwrap_err().to_string().contains("twice"));
    }
}
