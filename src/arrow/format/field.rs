//! The tree of fields, read from an `ArrowSchema`.

use std::ffi::{CStr, c_char};

use super::metadata::metadata_from_c;
use super::{Child, Layout, Metadata, Type};
use crate::arrow::abi::{
    ArrowSchema, FLAG_DICTIONARY_ORDERED, FLAG_MAP_KEYS_SORTED, FLAG_NULLABLE,
};
use crate::error::{Error, Result};

/// Most levels of nested fields. It bounds the recursion over arrays, which nest as the schema
/// does. Verifiers of flatbuffers allow 64 levels of tables: message and schema above the fields,
/// and the index type of a dictionary below.
pub const MAX_DEPTH: usize = 60;

/// A field of a schema. In a dictionary-encoded field, `ty` and `children` describe the values of
/// the dictionary, as in the IPC format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name; may be empty.
    pub name: String,
    /// Type of the values.
    pub ty: Type,
    /// True if values may be null.
    pub nullable: bool,
    /// The fields of the children.
    pub children: Vec<Field>,
    /// The dictionary encoding, if any.
    pub dictionary: Option<DictionaryEncoding>,
    /// Metadata, in order. Extension types are entries with the keys that Arrow defines.
    pub metadata: Metadata,
}

/// The dictionary encoding of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DictionaryEncoding {
    /// Number of the dictionary in the stream (rule A3).
    pub id: i64,
    /// Type of the indices, an integer.
    pub index: Type,
    /// True if the order of the dictionary's values is meaningful.
    pub ordered: bool,
}

/// A schema: the fields of the batches, and the schema's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The columns.
    pub fields: Vec<Field>,
    /// The schema's metadata.
    pub metadata: Metadata,
}

impl Schema {
    /// Reads the schema of a stream, and numbers its dictionaries.
    ///
    /// # Safety
    ///
    /// `schema` follows the C data interface, and is live or released. Nobody writes to it during
    /// the call.
    ///
    /// # Errors
    ///
    /// `InvalidData` with the name of the field and the fault; `Unsupported` if the IPC format
    /// cannot express the schema.
    pub unsafe fn from_c(schema: &ArrowSchema) -> Result<Self> {
        if schema.release.is_none() {
            return Err(Error::invalid_data("the schema has been released already"));
        }
        // SAFETY: the caller promises a schema that follows the C data interface.
        let top = unsafe { Field::from_c(schema, &mut Vec::new()) }?;
        if top.ty != Type::Struct || top.dictionary.is_some() {
            return Err(Error::invalid_data(format!(
                "the schema of a stream must be a struct (format \"+s\") whose children are the \
                 columns; this one has the format \"{}\"",
                top.ty.format()
            )));
        }
        let mut schema = Self {
            fields: top.children,
            metadata: top.metadata,
        };
        schema.number_dictionaries();
        Ok(schema)
    }

    /// The schema of some columns, in this order, with dictionaries numbered anew. The indices are
    /// those of fields.
    pub fn select(&self, columns: &[usize]) -> Self {
        let fields = columns.iter().filter_map(|index| self.fields.get(*index));
        let mut schema = Self {
            fields: fields.cloned().collect(),
            metadata: self.metadata.clone(),
        };
        schema.number_dictionaries();
        schema
    }

    /// Rule A3: ids in depth-first field order, inner dictionaries first. A dictionary of two
    /// fields gets two ids, since C structs do not show that it is shared.
    fn number_dictionaries(&mut self) {
        fn number(fields: &mut [Field], next: &mut i64) {
            for field in fields {
                number(&mut field.children, next);
                if let Some(dictionary) = &mut field.dictionary {
                    dictionary.id = *next;
                    *next += 1;
                }
            }
        }
        number(&mut self.fields, &mut 0);
    }
}

impl Field {
    /// The layout of the field's arrays. For a dictionary-encoded field, the layout of the indices.
    pub fn layout(&self) -> Layout {
        match &self.dictionary {
            Some(dictionary) => dictionary.index.layout(),
            None => self.ty.layout(),
        }
    }

    /// True if a field below this field is dictionary-encoded.
    pub fn has_inner_dictionary(&self) -> bool {
        self.children
            .iter()
            .any(|child| child.dictionary.is_some() || child.has_inner_dictionary())
    }

    /// Reads a field and its children. `path` holds the names of the fields above.
    ///
    /// # Safety
    ///
    /// As [`Schema::from_c`].
    unsafe fn from_c(schema: &ArrowSchema, path: &mut Vec<String>) -> Result<Self> {
        let field_error = |path: &[String], text: String| {
            let location = if path.is_empty() {
                "the schema".to_owned()
            } else {
                format!("schema field `{}`", path.join("."))
            };
            Error::invalid_data(format!("{location}: {text}"))
        };
        if path.len() > MAX_DEPTH {
            return Err(field_error(
                path,
                format!("fields nest deeper than {MAX_DEPTH} levels"),
            ));
        }
        // SAFETY: the caller promises that strings of the schema are NULL or end in a NUL byte.
        let format = unsafe { text_from_c(schema.format) };
        let format = format
            .map_err(|text| field_error(path, format!("the format string {text}")))?
            .ok_or_else(|| field_error(path, "the format string is NULL".to_owned()))?;
        // SAFETY: the caller promises that strings of the schema are NULL or end in a NUL byte.
        let name = unsafe { text_from_c(schema.name) };
        let name = name
            .map_err(|text| field_error(path, format!("the name {text}")))?
            .unwrap_or_default();
        // SAFETY: the caller promises metadata in the C data interface's encoding.
        let metadata = unsafe { metadata_from_c(schema.metadata) };
        let metadata = metadata.map_err(|text| field_error(path, text))?;
        let ty = Type::parse(&format, schema.flags & FLAG_MAP_KEYS_SORTED != 0)
            .map_err(|text| field_error(path, text))?;

        let mut field = Self {
            name,
            ty,
            nullable: schema.flags & FLAG_NULLABLE != 0,
            children: Vec::new(),
            dictionary: None,
            metadata,
        };
        // SAFETY: the caller promises that a dictionary is NULL or a live schema.
        if let Some(values) = unsafe { schema.dictionary.as_ref() } {
            if !matches!(field.ty, Type::Int { .. }) {
                return Err(field_error(
                    path,
                    format!(
                        "dictionary indices have the format \"{format}\", which is not an integer"
                    ),
                ));
            }
            if schema.n_children != 0 {
                return Err(field_error(
                    path,
                    "a dictionary-encoded field has children".to_owned(),
                ));
            }
            // Checked before the recursion, which a chain of dictionaries would make unbounded.
            if !values.dictionary.is_null() {
                return Err(Error::unsupported(format!(
                    "schema field `{}`: the dictionary is dictionary-encoded itself, which the \
                     Arrow IPC format cannot express",
                    path.join(".")
                )));
            }
            // SAFETY: the dictionary's schema lives as long as its parent.
            let values = unsafe { Self::from_c(values, path) }?;
            // In the IPC format, the field has the only name, nullable flag and metadata.
            let index = std::mem::replace(&mut field.ty, values.ty);
            field.children = values.children;
            field.dictionary = Some(DictionaryEncoding {
                id: 0,
                index,
                ordered: schema.flags & FLAG_DICTIONARY_ORDERED != 0,
            });
            return Ok(field);
        }

        let count = usize::try_from(schema.n_children)
            .map_err(|_| field_error(path, format!("it has {} children", schema.n_children)))?;
        if field.ty.child_count().is_some_and(|wanted| wanted != count) {
            return Err(field_error(
                path,
                format!("the format \"{format}\" does not permit {count} children"),
            ));
        }
        if count > 0 && schema.children.is_null() {
            return Err(field_error(path, "the list of children is NULL".to_owned()));
        }
        for index in 0..count {
            // SAFETY: the caller promises `n_children` pointers; NULL was excluded above.
            let slot = unsafe { schema.children.add(index) };
            // SAFETY: the slot is one of the `n_children` entries that the caller promises.
            let child = unsafe { slot.read() };
            // SAFETY: the caller promises live schemas as children; `as_ref` excludes NULL.
            let child = unsafe { child.as_ref() }
                .ok_or_else(|| field_error(path, format!("child {index} is NULL")))?;
            // SAFETY: the caller promises that strings of the children, too, are NULL or end in a
            // NUL byte.
            let name = unsafe { text_from_c(child.name) };
            path.push(match name {
                Ok(Some(name)) if !name.is_empty() => name,
                _ => format!("#{index}"),
            });
            // SAFETY: the child is a live schema that follows the C data interface.
            let child = unsafe { Self::from_c(child, path) }?;
            path.pop();
            field.children.push(child);
        }
        field
            .check_children()
            .map_err(|text| field_error(path, text))?;
        Ok(field)
    }

    /// Checks the children against the type. The error is a text.
    pub(super) fn check_children(&self) -> Result<(), String> {
        let children = self.children.iter().map(|child| Child {
            ty: &child.ty,
            is_encoded: child.dictionary.is_some(),
            children: child.children.len(),
        });
        self.ty.check_children(children)
    }
}

/// Reads a C string; `None` for a NULL pointer.
///
/// # Safety
///
/// `pointer` is NULL or points to bytes that end in a NUL byte. Nobody writes to them.
unsafe fn text_from_c(pointer: *const c_char) -> Result<Option<String>, String> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the pointer is not NULL, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map(|text| Some(text.to_owned()))
        .map_err(|_| "is not UTF-8".to_owned())
}
