//! Types that Parquet lacks: seconds, and dates in milliseconds.
//!
//! The `parquet` crate writes such values as plain integers, which only Arrow's own schema in the
//! file explains. Arrow C++ writes milliseconds and days, which every reader knows, and so does the
//! command. Arrow's schema in the file still names the types of the table, so that they come back.

use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema};
use parquet::file::metadata::KeyValue;
use parquet::schema::types::SchemaDescriptor;

use super::footer;
use crate::rebuild::with_children;

/// The entry for Arrow's schema among the metadata of a file.
pub fn arrow_schema(schema: &Schema) -> KeyValue {
    KeyValue::new(
        ARROW_SCHEMA_META_KEY.to_owned(),
        Some(encode_arrow_schema(schema)),
    )
}

/// The field as it is written.
pub fn stored_field(field: &Field) -> Field {
    field.clone().with_data_type(stored(field.data_type()))
}

/// The type in which values of a type are written.
fn stored(ty: &DataType) -> DataType {
    match ty {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => DataType::Date32,
        ty => with_children(ty, stored_field),
    }
}

/// Converts a column whose values must all stay what they are.
pub fn exactly(column: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    if column.data_type() == ty {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let converted = cast_with_options(column, ty, &options)?;
    let back = cast_with_options(&converted, column.data_type(), &options)?;
    if &back != column {
        bail!(
            "a value of type {} is none of type {ty}",
            column.data_type()
        );
    }
    Ok(converted)
}

/// Columns of a file, by their indices, and their types in the table.
pub type Changed = Vec<(usize, DataType)>;

/// Finds the columns whose types were changed to be written, and gives their types in the table.
/// `read` are the columns as the `parquet` crate finds them.
pub fn restored(
    columns: &SchemaDescriptor,
    metadata: Option<&Vec<KeyValue>>,
    read: &Fields,
) -> Result<Changed> {
    let Some(said) = said(metadata)? else {
        return Ok(Vec::new());
    };
    let is_candidate = |(said, read): (&FieldRef, &FieldRef)| {
        said.name() == read.name()
            && said.data_type() != read.data_type()
            && stored(said.data_type()) != *said.data_type()
    };
    let pairs = || said.fields().iter().zip(read);
    if said.fields().len() != read.len() || !pairs().any(is_candidate) {
        return Ok(Vec::new());
    }
    let found = read_as_stored(columns, metadata)?;
    let mut changed = Vec::new();
    for (index, (said, read)) in pairs().enumerate() {
        // Other writers may have written the values as they are.
        let is_stored = *found.field(index).data_type() == stored(said.data_type());
        if is_stored && is_candidate((said, read)) {
            changed.push((index, said.data_type().clone()));
        }
    }
    Ok(changed)
}

/// The columns of a file as the `parquet` crate finds them, if Arrow's schema in the file named the
/// types that are really stored.
pub fn read_as_stored(
    columns: &SchemaDescriptor,
    metadata: Option<&Vec<KeyValue>>,
) -> Result<Schema> {
    let said = said(metadata)?.unwrap_or_else(Schema::empty);
    let fields = said.fields().iter().map(|field| stored_field(field));
    let stored = arrow_schema(&Schema::new(fields.collect::<Fields>()));
    Ok(parquet_to_arrow_schema(columns, Some(&vec![stored]))?)
}

/// Arrow's schema in a file, which the footer's check has verified.
fn said(metadata: Option<&Vec<KeyValue>>) -> Result<Option<Schema>> {
    let pairs = metadata.into_iter().flatten();
    let mut values = pairs.filter(|pair| pair.key == ARROW_SCHEMA_META_KEY);
    let Some(text) = values.next_back().and_then(|pair| pair.value.as_ref()) else {
        return Ok(None);
    };
    let bytes = footer::arrow_message(text.as_bytes())?;
    let message = arrow::ipc::root_as_message(&bytes).map_err(|error| anyhow!("{error}"))?;
    let schema = message.header_as_schema();
    let schema = schema.ok_or_else(|| anyhow!("its metadata ARROW:schema is no schema"))?;
    Ok(Some(arrow::ipc::convert::try_fb_to_schema(schema)?))
}
