//! The columns that every batch of a stream must have: those of the stream's schema.
//!
//! A batch's values are read by the stream's schema. So its columns must have the same names and
//! types in the same order. The same holds for the fields of structs and unions. Metadata may
//! differ, and so may the names of parts that a type has exactly once: a list's values, a map's
//! entries, keys and values, the parts of run-end encoding. A column that is declared without nulls
//! may be declared with nulls in a batch that has none: the encoder looks at the nulls themselves.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};

use crate::error::{Error, Result};

/// Fails if a batch does not have the columns of its stream's schema.
///
/// # Errors
///
/// `InvalidData` with the first difference.
pub(crate) fn ensure_columns(declared: &Schema, batch: &RecordBatch) -> Result<()> {
    let given = batch.schema_ref();
    if std::ptr::eq(declared, &raw const **given) {
        return Ok(());
    }
    ensure_same_columns(declared, given)
}

/// Fails if a batch of the schema `given` does not have the columns of its stream's schema.
///
/// # Errors
///
/// `InvalidData` with the first difference.
pub fn ensure_same_columns(declared: &Schema, given: &Schema) -> Result<()> {
    difference(declared, given).map_or(Ok(()), |difference| {
        Err(Error::invalid_data(format!(
            "the batch does not have the columns of the stream's schema: {difference}"
        )))
    })
}

/// The first difference between the columns that a stream's schema declares and those of a batch,
/// in words; `None` if the batch fits.
pub fn difference(declared: &Schema, given: &Schema) -> Option<String> {
    let (declared, given) = (declared.fields(), given.fields());
    let mut pairs = declared.iter().zip(given.iter()).enumerate();
    let found = pairs.find_map(|(index, (declared, given))| {
        if declared.name() != given.name() {
            return Some(format!(
                "column {} is {:?} and not {:?}",
                index + 1,
                given.name(),
                declared.name()
            ));
        }
        in_type(declared.name(), declared.data_type(), given.data_type())
    });
    found.or_else(|| {
        (declared.len() != given.len())
            .then(|| format!("it has {} columns and not {}", given.len(), declared.len()))
    })
}

/// The first difference between the types of the column, or of the nested field, at `path`.
fn in_type(path: &str, declared: &DataType, given: &DataType) -> Option<String> {
    if declared == given {
        return None;
    }
    let other = || Some(format!("{path:?} is of type {given} and not {declared}"));
    let one = |declared: &FieldRef, given: &FieldRef| {
        in_type(path, declared.data_type(), given.data_type())
    };
    match (declared, given) {
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::LargeList(b))
        | (DataType::ListView(a), DataType::ListView(b))
        | (DataType::LargeListView(a), DataType::LargeListView(b)) => one(a, b),
        (DataType::FixedSizeList(a, length), DataType::FixedSizeList(b, other_length))
            if length == other_length =>
        {
            one(a, b)
        }
        (DataType::Map(a, sorted), DataType::Map(b, other_sorted)) if sorted == other_sorted => {
            match (a.data_type(), b.data_type()) {
                (DataType::Struct(a), DataType::Struct(b)) if a.len() == b.len() => {
                    a.iter().zip(b).find_map(|(a, b)| one(a, b))
                }
                _ => other(),
            }
        }
        (DataType::RunEndEncoded(ends, a), DataType::RunEndEncoded(other_ends, b)) => {
            one(ends, other_ends).or_else(|| one(a, b))
        }
        (DataType::Dictionary(index, a), DataType::Dictionary(other_index, b))
            if index == other_index =>
        {
            in_type(path, a, b)
        }
        (DataType::Struct(a), DataType::Struct(b)) if a.len() == b.len() => {
            in_fields(path, a.iter().zip(b))
        }
        (DataType::Union(a, mode), DataType::Union(b, other_mode))
            if mode == other_mode && a.iter().map(|(id, _)| id).eq(b.iter().map(|(id, _)| id)) =>
        {
            in_fields(
                path,
                a.iter()
                    .map(|(_, field)| field)
                    .zip(b.iter().map(|(_, field)| field)),
            )
        }
        _ => other(),
    }
}

/// The first difference between the fields of a struct or union at `path`.
fn in_fields<'a>(
    path: &str,
    mut pairs: impl Iterator<Item = (&'a FieldRef, &'a FieldRef)>,
) -> Option<String> {
    pairs.find_map(|(declared, given): (&FieldRef, &FieldRef)| {
        let name = Field::name;
        if name(declared) != name(given) {
            return Some(format!(
                "{path:?} has the field {:?} in the place of {:?}",
                name(given),
                name(declared)
            ));
        }
        let path = format!("{path}.{}", name(declared));
        in_type(&path, declared.data_type(), given.data_type())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::datatypes::{Fields, UnionFields, UnionMode};

    use super::*;

    fn field(name: &str, kind: DataType) -> Field {
        Field::new(name, kind, true)
    }

    fn schema(fields: impl IntoIterator<Item = (&'static str, DataType)>) -> Schema {
        Schema::new(
            fields
                .into_iter()
                .map(|(name, kind)| field(name, kind))
                .collect::<Vec<_>>(),
        )
    }

    fn structure(names: [&str; 2]) -> DataType {
        DataType::Struct(Fields::from(
            names.map(|name| field(name, DataType::Int64)).to_vec(),
        ))
    }

    fn union(names: [&str; 2]) -> DataType {
        let fields = names.map(|name| field(name, DataType::Int64));
        DataType::Union(
            UnionFields::try_new([0, 1], fields).unwrap(),
            UnionMode::Dense,
        )
    }

    fn list(name: &str, kind: DataType) -> DataType {
        DataType::List(Arc::new(field(name, kind)))
    }

    fn map(names: [&str; 2]) -> DataType {
        DataType::Map(Arc::new(field("entries", structure(names))), false)
    }

    /// Promise of a stream: a batch's values arrive under the names that the batch has for them.
    #[test]
    fn names_order_and_types_are_those_of_the_stream() {
        let (number, text) = (DataType::Int64, DataType::Utf8);
        let declared = schema([("price", number.clone()), ("amount", text.clone())]);
        for (given, word) in [
            (
                schema([("amount", text.clone()), ("price", number.clone())]),
                "column 1 is \"amount\"",
            ),
            (
                schema([("price", number.clone()), ("quantity", text.clone())]),
                "not \"amount\"",
            ),
            (
                schema([("price", DataType::Int32), ("amount", text)]),
                "Int32 and not Int64",
            ),
            (schema([("price", number)]), "it has 1 columns and not 2"),
            (Schema::empty(), "it has 0 columns and not 2"),
        ] {
            let found = difference(&declared, &given).unwrap();
            assert!(found.contains(word), "{found}");
        }
    }

    /// The same inside structs and unions, wherever these lie; the text has the path.
    #[test]
    fn fields_of_structs_and_unions_keep_their_names() {
        for (declared, given, word) in [
            (
                structure(["a", "b"]),
                structure(["b", "a"]),
                "\"c\" has the field \"b\"",
            ),
            (
                union(["a", "b"]),
                union(["a", "x"]),
                "\"c\" has the field \"x\"",
            ),
            (
                list("item", structure(["a", "b"])),
                list("item", structure(["a", "x"])),
                "\"c\" has the field \"x\" in the place of \"b\"",
            ),
            (
                DataType::Struct(vec![field("s", structure(["a", "b"]))].into()),
                DataType::Struct(vec![field("s", structure(["b", "a"]))].into()),
                "\"c.s\" has the field",
            ),
            (
                DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
                DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Binary)),
                "\"c\" is of type Binary and not Utf8",
            ),
        ] {
            let found = difference(&schema([("c", declared)]), &schema([("c", given)])).unwrap();
            assert!(found.contains(word), "{found}");
        }
    }

    /// Metadata, nullability, and the names of parts that a type has once, may differ.
    #[test]
    fn what_leads_no_value_astray_may_differ() {
        for (declared, given) in [
            (
                list("item", DataType::Int64),
                list("element", DataType::Int64),
            ),
            (map(["key", "value"]), map(["keys", "values"])),
        ] {
            assert_eq!(
                difference(&schema([("c", declared)]), &schema([("c", given)])),
                None
            );
        }
        let declared = schema([("c", DataType::Int64)]);
        let metadata = HashMap::from([("key".to_owned(), "value".to_owned())]);
        let column = Field::new("c", DataType::Int64, false).with_metadata(metadata.clone());
        let given = Schema::new_with_metadata(vec![column], metadata);
        assert_eq!(difference(&declared, &given), None);
        assert_eq!(difference(&given, &declared), None);
    }
}
