//! Which columns and rows of its result set a statement asks for.

use std::collections::{BTreeMap, HashSet};

use adbc_core::error::Result;
use adbc_core::options::OptionValue;
use arrow::datatypes::Schema;
use dipc::GetOptions;

use crate::error::{OrAdbc as _, from_arrow, invalid, not_found};
use crate::values::{bytes_of, number, text};

const COLUMNS: &str = "dipc.columns";
const FILTER: &str = "dipc.filter";
const OFFSET: &str = "dipc.offset";
const LIMIT: &str = "dipc.limit";

/// The options of statements alone.
pub(crate) const OF_STATEMENTS: [&str; 4] = [COLUMNS, FILTER, OFFSET, LIMIT];

/// The options of a selection that are set, as bytes. Without options the selection is the whole
/// table.
#[derive(Clone, Default)]
pub(crate) struct Selection(BTreeMap<String, Vec<u8>>);

impl Selection {
    /// Sets one of [`OF_STATEMENTS`]. An empty text, or no bytes, removes the option.
    ///
    /// # Errors
    ///
    /// `InvalidArguments`: it cannot have this value.
    pub(crate) fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        let mut changed = self.clone();
        let value = bytes_of(value)?;
        match value.is_empty() {
            true => changed.0.remove(name),
            false => changed.0.insert(name.to_owned(), value),
        };
        changed.of(GetOptions::new())?;
        *self = changed;
        Ok(())
    }

    /// What the option was set to.
    ///
    /// # Errors
    ///
    /// `NotFound`: it is not set.
    pub(crate) fn get(&self, name: &str) -> Result<&[u8]> {
        let value = self.0.get(name).map(Vec::as_slice);
        value.ok_or_else(|| not_found(format!("the option {name:?} is not set")))
    }

    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// `options` of a get of these columns and rows; and whether this side must select the columns,
    /// because a request cannot name so many.
    pub(crate) fn of(&self, options: GetOptions) -> Result<(GetOptions, bool)> {
        let first = self.rows(OFFSET)?.unwrap_or(0);
        let options = match self.rows(LIMIT)? {
            None => options.rows(first..),
            Some(rows) => options.rows(first..first.saturating_add(rows)),
        };
        let filtered = |options: GetOptions| match self.0.get(FILTER) {
            None => Ok(options),
            Some(filter) => options.filter(filter.clone()).or_adbc(),
        };
        let Some(columns) = self.columns()? else {
            return Ok((filtered(options)?, false));
        };
        let mut known = HashSet::new();
        let is_once = columns.iter().all(|name| known.insert(name.clone()));
        match (options.clone().columns(columns).or_adbc()).and_then(filtered) {
            Ok(options) => Ok((options, false)),
            Err(_) if is_once => Ok((filtered(options)?, true)),
            Err(error) => Err(error),
        }
    }

    /// The selected part of `schema`.
    ///
    /// # Errors
    ///
    /// `InvalidArguments`: it does not have one of the columns, or has several of its name.
    pub(crate) fn schema(&self, schema: Schema) -> Result<Schema> {
        match self.places(&schema)? {
            None => Ok(schema),
            Some(places) => schema.project(&places).map_err(from_arrow),
        }
    }

    /// The places in `schema` of the columns; `None`: all.
    ///
    /// # Errors
    ///
    /// As [`schema`](Self::schema).
    pub(crate) fn places(&self, schema: &Schema) -> Result<Option<Vec<usize>>> {
        let Some(columns) = self.columns()? else {
            return Ok(None);
        };
        let place = |name: &String| {
            let fields = schema.fields().iter().enumerate();
            let mut found = fields.filter(|(_, field)| field.name() == name);
            match (found.next(), found.next()) {
                (Some((place, _)), None) => Ok(place),
                (None, _) => Err(invalid(format!(
                    "{COLUMNS} names {name:?}, which the result set does not have"
                ))),
                _ => Err(invalid(format!(
                    "{COLUMNS} names {name:?}, of which the result set has several"
                ))),
            }
        };
        columns.iter().map(place).collect::<Result<_>>().map(Some)
    }

    fn rows(&self, name: &str) -> Result<Option<u64>> {
        let value = self.0.get(name);
        value.map(|it| number(name, it, 0..=u64::MAX)).transpose()
    }

    fn columns(&self) -> Result<Option<Vec<String>>> {
        let Some(value) = self.0.get(COLUMNS) else {
            return Ok(None);
        };
        let names = text(COLUMNS, value)?;
        let malformed = || {
            invalid(format!(
                "the value {names:?} of {COLUMNS} is no list of names: put a comma between them, \
                 and a name that has a comma or a quote between quotes, with its own quotes doubled"
            ))
        };
        names_in(names).map(Some).ok_or_else(malformed)
    }
}

/// The names in a list with commas, in which a name may stand in quotes; `None` if the text is no
/// such list.
fn names_in(list: &str) -> Option<Vec<String>> {
    let (mut names, mut rest) = (Vec::new(), list);
    loop {
        let name = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (name, behind) = unquoted(quoted)?;
                rest = behind;
                name
            }
            None => {
                let (name, behind) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                rest = behind;
                (!name.is_empty() && !name.contains('"')).then(|| name.to_owned())?
            }
        };
        names.push(name);
        if rest.is_empty() {
            return Some(names);
        }
        rest = rest.strip_prefix(',')?;
    }
}

/// The name that begins after a quote, and the text after its end.
fn unquoted(mut rest: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        match behind.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use adbc_core::error::Status;

    use super::*;

    /// Promise of the table of options: any name can stand in the list.
    #[test]
    fn lists_have_names_of_any_kind() {
        for (list, names) in [
            ("a", vec!["a"]),
            ("a,b c", vec!["a", "b c"]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("c,\"say \"\"a\"\"\"", vec!["c", "say \"a\""]),
            ("\"\",a", vec!["", "a"]),
        ] {
            assert_eq!(names_in(list).unwrap(), names, "{list}");
        }
        for bad in ["", "a,", ",a", "a,,b", "\"a", "\"a\"b", "a\"b\"", "\"\"\""] {
            assert_eq!(names_in(bad), None, "{bad}");
        }
    }

    /// Promise of the table of options: this side selects the columns that a request cannot name.
    #[test]
    fn more_columns_than_a_request_names_are_selected_here() {
        let names: Vec<_> = (0..5000).map(|number| format!("c{number}")).collect();
        let set = |count: usize, filter: usize| {
            let mut selection = Selection::default();
            selection.set(COLUMNS, names[..count].join(",").as_str().into())?;
            selection.set(FILTER, vec![7; filter].as_slice().into())?;
            selection.of(GetOptions::new()).map(|(_, is_left)| is_left)
        };
        assert!(!set(4000, 0).unwrap());
        assert!(set(5000, 0).unwrap());
        assert!(set(2, (64 << 10) - 16).unwrap());
        let mut selection = Selection::default();
        let twice = [names.as_slice(), &names[..1]].concat().join(",");
        let error = selection.set(COLUMNS, twice.as_str().into()).unwrap_err();
        assert_eq!(error.status, Status::InvalidArguments, "{error}");
    }

    /// Promise of the table of options: a value that cannot be used is refused, and changes nothing.
    #[test]
    fn values_are_checked() {
        for (name, good, bad) in [
            (COLUMNS, "a,b", "a,a"),
            (COLUMNS, "a,b", "a,,b"),
            (OFFSET, "3", "-3"),
            (LIMIT, "0", "many"),
        ] {
            assert!(
                include_str!("lib.rs").contains(&format!("| `{name}`")),
                "{name}"
            );
            let mut selection = Selection::default();
            selection.set(name, good.into()).unwrap();
            let error = selection.set(name, bad.into()).unwrap_err();
            assert_eq!(error.status, Status::InvalidArguments, "{error}");
            assert_eq!(selection.get(name).unwrap(), good.as_bytes());
            selection.set(name, "".into()).unwrap();
            assert_eq!(selection.get(name).unwrap_err().status, Status::NotFound);
            assert!(selection.is_all());
        }
        let mut selection = Selection::default();
        let large = vec![0; (64 << 10) + 1];
        let error = selection.set(FILTER, large.as_slice().into()).unwrap_err();
        assert_eq!(error.status, Status::InvalidArguments, "{error}");
    }
}
