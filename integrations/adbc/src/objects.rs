//! The tables of a server as a hierarchy of one catalog and one schema without names.

use std::sync::Arc;

use adbc_core::error::Result;
use adbc_core::options::ObjectDepth;
use adbc_core::schemas::{
    COLUMN_SCHEMA, CONSTRAINT_SCHEMA, GET_OBJECTS_SCHEMA, OBJECTS_DB_SCHEMA_SCHEMA, TABLE_SCHEMA,
};
use arrow::array::{
    ArrayRef, Int16Array, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    new_empty_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use dipc::{Cancel, Description};

use crate::error::OrAdbc as _;
use crate::results::{ResultSet, one, until};
use crate::session::Session;

/// The type of all tables.
pub(crate) const TABLE: &str = "TABLE";

/// The numbers that ODBC has for columns without and with nulls.
const NO_NULLS: i16 = 0;
const NULLABLE: i16 = 1;

/// Which objects are asked for, and down to which level. Names are patterns of SQL's LIKE.
pub(crate) struct Objects<'a> {
    pub(crate) depth: ObjectDepth,
    pub(crate) catalog: Option<&'a str>,
    pub(crate) db_schema: Option<&'a str>,
    pub(crate) table_name: Option<&'a str>,
    pub(crate) table_type: Option<&'a [&'a str]>,
    pub(crate) column_name: Option<&'a str>,
}

/// A table, and its columns if they are asked for.
struct Table {
    name: String,
    columns: Option<Vec<(i32, FieldRef)>>,
}

impl Objects<'_> {
    pub(crate) fn result_set(&self, session: &Session, token: Arc<Cancel>) -> Result<ResultSet> {
        // The empty name finds what has no catalog.
        let has_catalog = matches(self.catalog, "");
        let has_schema = has_catalog && matches(self.db_schema, "");
        let depth = self.depth;
        let wants_schemas = depth != ObjectDepth::Catalogs;
        let wants_tables = wants_schemas && depth != ObjectDepth::Schemas;
        let tables = match has_schema && wants_tables {
            true => self.tables(session, &token)?,
            false => Vec::new(),
        };

        let count = usize::from(has_schema);
        let lengths = vec![wants_tables.then_some(tables.len()); count];
        let tables = list(&TABLE_SCHEMA, &lengths, table_array(&tables)?)?;
        let schemas = structs(&OBJECTS_DB_SCHEMA_SCHEMA, count, |name| match name {
            "db_schema_tables" => Some(Arc::clone(&tables)),
            _ => None,
        })?;
        let catalogs = usize::from(has_catalog);
        let lengths = vec![wants_schemas.then_some(count); catalogs];
        // A catalog that is null has nothing below it.
        let schemas = match wants_schemas {
            true => schemas,
            false => new_empty_array(&OBJECTS_DB_SCHEMA_SCHEMA),
        };
        let schemas = list(&OBJECTS_DB_SCHEMA_SCHEMA, &lengths, schemas)?;
        let columns = vec![new_null_array(&DataType::Utf8, catalogs), schemas];
        let objects = one(RecordBatch::try_new(GET_OBJECTS_SCHEMA.clone(), columns)?);
        Ok(until(objects, token))
    }

    fn tables(&self, session: &Session, token: &Cancel) -> Result<Vec<Table>> {
        if self.table_type.is_some_and(|types| !types.contains(&TABLE)) {
            return Ok(Vec::new());
        }
        let prefix = self.table_name.map_or("", literal_prefix);
        let mut tables = Vec::new();
        for endpoint in session.list(prefix, token)? {
            // ADBC's names are texts; a ticket may be other bytes.
            let Ok(name) = std::str::from_utf8(endpoint.ticket()) else {
                continue;
            };
            if matches(self.table_name, name) {
                let columns = match self.depth {
                    ObjectDepth::Tables => None,
                    _ => Some(self.columns(session, name, token)?),
                };
                let name = name.to_owned();
                tables.push(Table { name, columns });
            }
        }
        Ok(tables)
    }

    /// The columns of a table with their places. A table whose schema the server does not describe
    /// has no columns here: to know them, its host might have to compute the table.
    fn columns(
        &self,
        session: &Session,
        table: &str,
        token: &Cancel,
    ) -> Result<Vec<(i32, FieldRef)>> {
        let described = session.describe(table.as_bytes(), token)?;
        let schema = described
            .as_ref()
            .map(Description::table_schema)
            .transpose();
        let Some(schema) = schema.or_adbc()?.flatten() else {
            return Ok(Vec::new());
        };
        let columns = (1..).zip(schema.fields().iter().cloned());
        let columns = columns.filter(|(_, field)| matches(self.column_name, field.name()));
        Ok(columns.collect())
    }
}

fn table_array(tables: &[Table]) -> Result<ArrayRef> {
    let names = StringArray::from_iter_values(tables.iter().map(|table| &table.name));
    let types = StringArray::from_iter_values(tables.iter().map(|_| TABLE));
    let lengths: Vec<_> = (tables.iter())
        .map(|table| table.columns.as_ref().map(Vec::len))
        .collect();
    let all: Vec<_> = (tables.iter())
        .filter_map(|table| table.columns.as_ref())
        .flatten()
        .collect();
    let columns = list(&COLUMN_SCHEMA, &lengths, column_array(&all)?)?;
    // The list of constraints is empty if it is asked for.
    let lengths: Vec<_> = lengths.iter().map(|length| length.map(|_| 0)).collect();
    let constraints = list(
        &CONSTRAINT_SCHEMA,
        &lengths,
        new_empty_array(&CONSTRAINT_SCHEMA),
    )?;
    let (names, types): (ArrayRef, ArrayRef) = (Arc::new(names), Arc::new(types));
    structs(&TABLE_SCHEMA, tables.len(), |name| match name {
        "table_name" => Some(Arc::clone(&names)),
        "table_type" => Some(Arc::clone(&types)),
        "table_columns" => Some(Arc::clone(&columns)),
        "table_constraints" => Some(Arc::clone(&constraints)),
        _ => None,
    })
}

fn column_array(columns: &[&(i32, FieldRef)]) -> Result<ArrayRef> {
    let fields = || columns.iter().map(|(_, field)| field);
    structs(&COLUMN_SCHEMA, columns.len(), |name| {
        let array: ArrayRef = match name {
            "column_name" => Arc::new(StringArray::from_iter_values(
                fields().map(|field| field.name()),
            )),
            "ordinal_position" => Arc::new(Int32Array::from_iter_values(
                columns.iter().map(|(place, _)| *place),
            )),
            "xdbc_type_name" => Arc::new(StringArray::from_iter_values(
                fields().map(|field| field.data_type().to_string()),
            )),
            "xdbc_nullable" => {
                Arc::new(Int16Array::from_iter_values(fields().map(
                    |field| match field.is_nullable() {
                        true => NULLABLE,
                        false => NO_NULLS,
                    },
                )))
            }
            "xdbc_is_nullable" => Arc::new(StringArray::from_iter_values(fields().map(|field| {
                match field.is_nullable() {
                    true => "YES",
                    false => "NO",
                }
            }))),
            _ => return None,
        };
        Some(array)
    })
}

/// Structs of the type `of`, with the children in `child`; all other children are null.
fn structs(
    of: &DataType,
    length: usize,
    child: impl Fn(&str) -> Option<ArrayRef>,
) -> Result<ArrayRef> {
    let DataType::Struct(fields) = of else {
        return Err(ArrowError::SchemaError(format!("{of} is no struct")).into());
    };
    let null = |field: &Field| new_null_array(field.data_type(), length);
    let children = fields
        .iter()
        .map(|field| child(field.name()).unwrap_or_else(|| null(field)));
    let children = children.collect();
    Ok(Arc::new(StructArray::try_new_with_length(
        fields.clone(),
        children,
        None,
        length,
    )?))
}

/// Lists of values of the type `of`, with these lengths; `None`: null.
fn list(of: &DataType, lengths: &[Option<usize>], values: ArrayRef) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    let nulls: NullBuffer = lengths.iter().map(Option::is_some).collect();
    let item = Arc::new(Field::new_list_field(of.clone(), true));
    Ok(Arc::new(ListArray::try_new(
        item,
        offsets,
        values,
        Some(nulls),
    )?))
}

/// Whether `name` matches the pattern: `%` is any text, and `_` any character.
fn matches(pattern: Option<&str>, name: &str) -> bool {
    let Some(pattern) = pattern else {
        return true;
    };
    let (pattern, name): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The place after the last `%` in the pattern, and the place in `name` up to which that `%`
    // reaches. If the rest does not match, the `%` takes one more character.
    let mut retry = None;
    while of < name.len() {
        match pattern.get(at) {
            Some('%') => {
                at += 1;
                retry = Some((at, of));
            }
            Some(wanted) if *wanted == '_' || *wanted == name[of] => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((behind, start)) = retry else {
                    return false;
                };
                retry = Some((behind, start + 1));
                (at, of) = (behind, start + 1);
            }
        }
    }
    pattern[at..].iter().all(|wanted| *wanted == '%')
}

/// The text with which every name that matches the pattern begins.
fn literal_prefix(pattern: &str) -> &str {
    let end = pattern.find(['%', '_']).unwrap_or(pattern.len());
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("%", "lineitem", true),
            ("line%", "lineitem", true),
            ("line%", "aline", false),
            ("%item", "lineitem", true),
            ("%it_m%", "lineitems", true),
            ("%ab", "aab", true),
            ("%aab", "aaab", true),
            ("l_ne", "line", true),
            ("l_ne", "lne", false),
            ("_", "ß", true),
            ("LINE", "line", false),
            ("a%b%c", "axxbyybzzc", true),
            ("a%b%c", "axxbyybzz", false),
        ] {
            assert_eq!(
                matches(Some(pattern), name),
                expected,
                "{name:?} like {pattern:?}"
            );
            if expected {
                assert!(name.starts_with(literal_prefix(pattern)));
            }
        }
        assert!(matches(None, "anything"));
    }
}
