//! Schemas into an image.

use arrow::datatypes::{DataType, Schema as ArrowSchema};
use arrow_schema::ffi::FFI_ArrowSchema;

use super::image::{Image, Piece, Place, Schema};
use super::kind::children;
use crate::{Error, Result};

/// Puts the schema of a table into an image, as that of a struct.
pub(crate) fn put(image: &mut Image<'_>, schema: &ArrowSchema) -> Result<Place> {
    let host = FFI_ArrowSchema::try_from(schema);
    let host = host.map_err(|error| Error::Input(error.to_string()))?;
    field(image, &host, &DataType::Struct(schema.fields().clone()))
}

/// Puts a field into an image: the host's struct of it, and its type.
fn field(image: &mut Image<'_>, host: &FFI_ArrowSchema, data_type: &DataType) -> Result<Place> {
    let mut guest = Schema {
        format: Some(text(image, host.format())?),
        name: Some(text(image, host.name().unwrap_or(""))?),
        metadata: metadata(image, host)?,
        // Whether a dictionary's values are ordered, NULLs allowed, a map's keys sorted. Arrow's
        // crate leaves out the last one of fields.
        flags: i64::from(host.dictionary_ordered())
            | i64::from(host.nullable()) << 1
            | i64::from(matches!(data_type, DataType::Map(_, true))) << 2,
        ..Schema::default()
    };
    let mut places = Vec::new();
    for (child, data_type) in host.children().zip(children(data_type)) {
        places.push(Some(field(image, child, data_type)?));
    }
    guest.n_children = places.len();
    if !places.is_empty() {
        guest.children = Some(add(image, Piece::Pointers(places))?);
    }
    if let (Some(values), DataType::Dictionary(_, data_type)) = (host.dictionary(), data_type) {
        guest.dictionary = Some(field(image, values, data_type)?);
    }
    add(image, Piece::Schema(guest))
}

fn text(image: &mut Image<'_>, text: &str) -> Result<Place> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    add(image, Piece::Owned(bytes))
}

/// Keys and values, each with its length before it, after the number of pairs.
fn metadata(image: &mut Image<'_>, schema: &FFI_ArrowSchema) -> Result<Option<Place>> {
    let metadata = schema
        .metadata()
        .map_err(|error| Error::Input(error.to_string()))?;
    if metadata.is_empty() {
        return Ok(None);
    }
    let mut bytes = count(metadata.len())?.to_vec();
    for text in metadata.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend_from_slice(&count(text.len())?);
        bytes.extend_from_slice(text.as_bytes());
    }
    Ok(Some(add(image, Piece::Owned(bytes))?))
}

fn count(count: usize) -> Result<[u8; 4]> {
    Ok(i32::try_from(count).map_err(|_| too_large())?.to_le_bytes())
}

fn add<'a>(image: &mut Image<'a>, piece: Piece<'a>) -> Result<Place> {
    image.add(piece).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::Input("a schema of more than 4 GiB".into())
}
