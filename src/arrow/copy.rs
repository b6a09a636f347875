//! A copy of a schema.

use super::decode::{DecodeOptions, Decoder};
use super::{EncodeOptions, Encoder, OwnedSchema};
use crate::error::Result;
use crate::proto::Header;

/// A copy of a schema in the library's own memory, for a thread that uses the schema after the call
/// that passed it.
///
/// # Errors
///
/// As [`Encoder::new`].
pub fn copy_schema(schema: &OwnedSchema) -> Result<OwnedSchema> {
    let encoder = Encoder::new(schema, EncodeOptions::default())?;
    let header = Header::parse(encoder.schema_header())?;
    Ok(Decoder::new(&header, DecodeOptions::default())?.schema())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::{schema_from_c, schema_to_c};
    use arrow::datatypes::{DataType, Field, Schema};

    // Promise: a copy says what the schema says, and outlives it.
    #[test]
    fn a_copy_outlives_its_schema() {
        let metadata = [("unit".to_owned(), "m/s²".to_owned())];
        let values = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let fields = vec![
            Field::new("speed", DataType::Float64, false).with_metadata(metadata.clone()),
            Field::new_list("words", Field::new_list_field(values, true), true),
        ];
        let original = Schema::new_with_metadata(fields, metadata);
        let schema = schema_to_c(&original).unwrap();
        let copy = copy_schema(&schema).unwrap();
        drop(schema);
        assert_eq!(schema_from_c(&copy).unwrap(), original);
    }
}
