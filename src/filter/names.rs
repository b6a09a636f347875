//! Which column of the table a reference of the message means.

use arrow::datatypes::{DataType, Field, Fields};

use super::message::kind::Kind;
use super::message::{NamedStruct, Type};
use crate::error::{Error, Result};

/// The names in the message's own schema. A reference gives a position in that schema, and the name
/// at that position finds the column of the table. The table may have more columns, in another
/// order.
pub(super) struct Names(Vec<Name>);

/// A field's name, with the fields of a struct.
struct Name {
    name: String,
    children: Vec<Name>,
}

/// Most levels of types inside types. `prost` stops before, at 100 nested messages: each level of
/// types has two messages.
const MOST_LEVELS: usize = 64;

impl Names {
    /// The names of `schema`; no names if the message has no schema.
    pub(super) fn new(schema: Option<NamedStruct>) -> Result<Self> {
        let Some(schema) = schema else {
            return Ok(Self(Vec::new()));
        };
        let types = schema.fields.map(|fields| fields.types).unwrap_or_default();
        let mut names = schema.names.into_iter();
        if types.is_empty() {
            let alone = |name| Name {
                name,
                children: Vec::new(),
            };
            return Ok(Self(names.map(alone).collect()));
        }
        if names.len() == 0 {
            return Ok(Self(Vec::new()));
        }
        // pyarrow leaves out the names of the fields of structs in lists and maps. Substrait
        // requires them.
        let mut without = names.clone();
        let all = walk(&types, &mut names, true)
            .or_else(|error| walk(&types, &mut without, false).map_err(|_| error))?;
        Ok(Self(all))
    }

    /// The positions of the field at `path` in a table of `columns`, and the field.
    pub(super) fn resolve<'a>(
        &self,
        path: &[i32],
        columns: &'a Fields,
    ) -> Result<(Vec<usize>, &'a Field)> {
        let mut names = (!self.0.is_empty()).then_some(&self.0[..]);
        let mut fields = Some(columns);
        let mut found: Option<&Field> = None;
        let mut places = Vec::with_capacity(path.len());
        for &step in path {
            let siblings = fields.ok_or_else(|| without_fields(found))?;
            let position = usize::try_from(step).map_err(|_| out_of_range(step, siblings.len()))?;
            let place = match names {
                None => position,
                Some(names) => {
                    let name = names.get(position);
                    let name = name.ok_or_else(|| out_of_range(step, names.len()))?;
                    by_name(&name.name, position, siblings)?
                }
            };
            let field = siblings.get(place);
            let field = field.ok_or_else(|| out_of_range(step, siblings.len()))?;
            names = names.and_then(|names| names.get(position).map(|name| &name.children[..]));
            fields = match field.data_type() {
                DataType::Struct(fields) => Some(fields),
                _ => None,
            };
            found = Some(field);
            places.push(place);
        }
        match found {
            Some(field) => Ok((places, field)),
            None => Err(Error::invalid_argument(
                "a field reference of the filter names no field",
            )),
        }
    }
}

/// The fields with these types. Fails unless there are exactly as many `names` as fields.
/// `everywhere`: structs in lists and maps have names too.
fn walk(
    types: &[Type],
    names: &mut impl Iterator<Item = String>,
    everywhere: bool,
) -> Result<Vec<Name>> {
    let all = fields(types, names, everywhere, 0)?;
    match names.next() {
        None => Ok(all),
        Some(name) => Err(Error::invalid_argument(format!(
            "the filter's base schema has more names than fields: \"{name}\" is one too many"
        ))),
    }
}

fn fields(
    types: &[Type],
    names: &mut impl Iterator<Item = String>,
    everywhere: bool,
    level: usize,
) -> Result<Vec<Name>> {
    let mut fields = Vec::with_capacity(types.len());
    for field in types {
        let name = names.next().ok_or_else(|| {
            Error::invalid_argument("the filter's base schema has fewer names than fields")
        })?;
        fields.push(Name {
            name,
            children: children(field, names, everywhere, level)?,
        });
    }
    Ok(fields)
}

/// The fields of a struct. The fields of structs in lists and maps are skipped, because no
/// reference can name them.
fn children(
    of: &Type,
    names: &mut impl Iterator<Item = String>,
    everywhere: bool,
    level: usize,
) -> Result<Vec<Name>> {
    if level == MOST_LEVELS {
        return Err(Error::invalid_argument(format!(
            "the filter's base schema has types in more than {MOST_LEVELS} levels"
        )));
    }
    let inner = match &of.kind {
        Some(Kind::Struct(inner)) => return fields(&inner.types, names, everywhere, level + 1),
        Some(Kind::List(list)) if everywhere => [&list.item, &None],
        Some(Kind::Map(map)) if everywhere => [&map.key, &map.value],
        _ => return Ok(Vec::new()),
    };
    for entry in inner.into_iter().flatten() {
        children(entry, names, everywhere, level + 1)?;
    }
    Ok(Vec::new())
}

/// The position of the field `name`. If several fields have this name, the one at the message's
/// position is meant.
fn by_name(name: &str, position: usize, fields: &Fields) -> Result<usize> {
    let mut places = fields.iter().enumerate();
    let mut places = places.by_ref().filter(|(_, field)| field.name() == name);
    match (places.next(), places.next()) {
        (None, _) => Err(Error::invalid_argument(format!(
            "the filter names a column \"{name}\", which the table does not have"
        ))),
        (Some((place, _)), None) => Ok(place),
        (Some(_), Some(_)) => match fields.get(position) {
            Some(field) if field.name() == name => Ok(position),
            _ => Err(Error::invalid_argument(format!(
                "the table has several columns \"{name}\": the filter can name none of them"
            ))),
        },
    }
}

fn out_of_range(position: i32, count: usize) -> Error {
    Error::invalid_argument(format!(
        "a field reference of the filter is {position}, where there are {count} fields"
    ))
}

fn without_fields(field: Option<&Field>) -> Error {
    let name = field.map_or("", |field| field.name());
    Error::invalid_argument(format!(
        "the filter refers to a field of \"{name}\", which is not a struct"
    ))
}
