//! Columns of a table, as a filter's message names them.

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};

use super::message::{
    FieldReference, NamedStruct, Plain, Segment, StructField, StructType, Type, TypeKind,
};

/// The columns that a message refers to, by their positions among these.
#[derive(Debug)]
pub(super) struct Columns<'a> {
    table: &'a Schema,
    named: Vec<usize>,
}

/// A column, or a field of a struct in it.
pub(super) struct Place<'a> {
    pub(super) field: &'a Field,
    /// Positions: of the column among those of the message, then of fields in structs.
    steps: Vec<usize>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(table: &'a Schema) -> Self {
        Self {
            table,
            named: Vec::new(),
        }
    }

    /// The column of this name; `None` if the table has none, or several.
    pub(super) fn named(&mut self, name: &str) -> Option<Place<'a>> {
        let (place, field) = only(self.table.fields(), name)?;
        let known = self.named.iter().position(|known| *known == place);
        let position = known.unwrap_or_else(|| {
            self.named.push(place);
            self.named.len() - 1
        });
        Some(Place {
            field,
            steps: vec![position],
        })
    }

    /// The schema that a message's references have. The server finds columns by its names; of
    /// types, it heeds structs alone.
    pub(super) fn schema(&self) -> NamedStruct {
        let fields = self.named.iter().map(|place| self.table.field(*place));
        let mut names = Vec::new();
        let types = fields.map(|field| typed(field, &mut names)).collect();
        NamedStruct {
            names,
            fields: Some(StructType { types }),
        }
    }
}

impl<'a> Place<'a> {
    /// The field of this struct; `None` if there is none, or several.
    pub(super) fn child(mut self, name: &str) -> Option<Self> {
        let DataType::Struct(fields) = self.field.data_type() else {
            return None;
        };
        let (position, field) = only(fields, name)?;
        self.steps.push(position);
        Some(Self { field, ..self })
    }

    pub(super) fn reference(&self) -> Option<FieldReference> {
        let mut direct = None;
        for step in self.steps.iter().rev() {
            direct = Some(Segment {
                field: Some(Box::new(StructField {
                    field: i32::try_from(*step).ok()?,
                    child: direct.map(Box::new),
                })),
            });
        }
        Some(FieldReference { direct })
    }
}

fn only<'a>(fields: &'a Fields, name: &str) -> Option<(usize, &'a Field)> {
    let mut found = (fields.iter().enumerate()).filter(|(_, field)| field.name() == name);
    match (found.next(), found.next()) {
        (Some((place, field)), None) => Some((place, field)),
        _ => None,
    }
}

/// The field's type, and its name and those of its fields behind `names`.
fn typed(field: &Field, names: &mut Vec<String>) -> Type {
    names.push(field.name().clone());
    let kind = match field.data_type() {
        DataType::Struct(fields) => TypeKind::Struct(StructType {
            types: fields.iter().map(|field| typed(field, names)).collect(),
        }),
        _ => TypeKind::Bool(Plain { variation: 0 }),
    };
    Type { kind: Some(kind) }
}
