//! Schemas out of a guest's memory.

use std::sync::Arc;

use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Schema, SchemaRef,
    validate_decimal_precision_and_scale,
};
use arrow_schema::ffi::{FFI_ArrowSchema, Flags};

use super::kind::{Kind, children};
use super::read::{Memory, count_at, i64_at, u32_at, utf8};
use super::{DEPTH, FIELDS, SCHEMA_BYTES, TEXT_BYTES};
use crate::{Error, Result};

/// Reads the schema of a table at `pointer`; `None` if the struct there is empty, as the host
/// left it.
pub(crate) fn read(memory: Memory<'_>, pointer: u32) -> Result<Option<SchemaRef>> {
    let raw = memory.bytes(pointer, SCHEMA_BYTES as u64)?;
    if u32_at(raw, 0) == 0 && u32_at(raw, 40) == 0 {
        return Ok(None);
    }
    let mut reader = Reader {
        memory,
        fields: FIELDS,
        text: TEXT_BYTES,
    };
    let host = reader.field(pointer, 0)?;
    let schema = Schema::try_from(&host).map_err(wrong)?;
    for field in schema.fields() {
        check(field.data_type())?;
    }
    Ok(Some(Arc::new(schema)))
}

/// Copies a guest's structs into the host's, which Arrow's crates then read.
struct Reader<'m> {
    memory: Memory<'m>,
    /// Fields that may follow. Pointers may lead in a circle, so their number is bounded too.
    fields: usize,
    /// Bytes of text that may follow.
    text: usize,
}

impl Reader<'_> {
    fn field(&mut self, pointer: u32, depth: usize) -> Result<FFI_ArrowSchema> {
        if depth > DEPTH {
            return Err(Error::Data(format!("a schema of more than {DEPTH} levels")));
        }
        self.fields = self
            .fields
            .checked_sub(1)
            .ok_or_else(|| Error::Data(format!("a schema of more than {FIELDS} fields")))?;
        let raw = self.memory.bytes(pointer, SCHEMA_BYTES as u64)?;
        let format = self.text(u32_at(raw, 0))?;
        let name = match u32_at(raw, 4) {
            0 => "",
            pointer => self.text(pointer)?,
        };
        let metadata = match u32_at(raw, 8) {
            0 => Vec::new(),
            pointer => self.metadata(pointer)?,
        };
        let flags = Flags::from_bits_truncate(i64_at(raw, 16));
        let n_children = count_at(raw, 24, "n_children")?;
        let count = usize::try_from(n_children).ok();
        let count = count.filter(|count| *count <= self.fields && takes_children(format, *count));
        let Some(count) = count else {
            return Err(Error::Data(format!(
                "{n_children} children of the format {format:?}"
            )));
        };
        let mut children = Vec::new();
        for index in 0..count {
            let child = self.memory.pointer(u32_at(raw, 32), index)?;
            children.push(self.field(child, depth + 1)?);
        }
        let dictionary = match u32_at(raw, 36) {
            0 => None,
            pointer => Some(self.field(pointer, depth + 1)?),
        };
        FFI_ArrowSchema::try_new(format, children, dictionary)
            .and_then(|schema| schema.with_name(name))
            .and_then(|schema| schema.with_flags(flags))
            .and_then(|schema| schema.with_metadata(metadata))
            .map_err(wrong)
    }

    fn take_text(&mut self, length: usize) -> Result<()> {
        self.text = self.text.checked_sub(length).ok_or_else(|| {
            Error::Data(format!(
                "a schema with more than {TEXT_BYTES} bytes of text"
            ))
        })?;
        Ok(())
    }
}

impl<'m> Reader<'m> {
    fn text(&mut self, pointer: u32) -> Result<&'m str> {
        let text = self.memory.text(pointer, self.text)?;
        self.take_text(text.len())?;
        Ok(text)
    }

    fn metadata(&mut self, pointer: u32) -> Result<Vec<(&'m str, &'m str)>> {
        let mut at = pointer;
        let pairs = self.count(&mut at)?;
        let mut metadata = Vec::new();
        for _ in 0..pairs {
            metadata.push((self.counted(&mut at)?, self.counted(&mut at)?));
        }
        Ok(metadata)
    }

    fn counted(&mut self, at: &mut u32) -> Result<&'m str> {
        let length = self.count(at)?;
        let bytes = self.memory.bytes(*at, u64::from(length))?;
        self.advance(at, length)?;
        utf8(bytes)
    }

    /// A number of metadata, which counts as text.
    fn count(&mut self, at: &mut u32) -> Result<u32> {
        let count = u32_at(self.memory.bytes(*at, 4)?, 0);
        self.advance(at, 4)?;
        match i32::try_from(count) {
            Ok(_) => Ok(count),
            Err(_) => Err(Error::Data("a negative length in metadata".into())),
        }
    }

    fn advance(&mut self, at: &mut u32, length: u32) -> Result<()> {
        self.take_text(length as usize)?;
        let end = at.checked_add(length);
        *at = end.ok_or_else(|| Error::Data("metadata beyond the memory".into()))?;
        Ok(())
    }
}

/// True if a format may have so many children. Arrow's crates count on it.
fn takes_children(format: &str, count: usize) -> bool {
    match format {
        "+l" | "+L" | "+vl" | "+vL" | "+m" => count == 1,
        "+r" => count == 2,
        "+s" => true,
        _ if format.starts_with("+w:") => count == 1,
        _ if format.starts_with("+us:") || format.starts_with("+ud:") => true,
        _ => count == 0,
    }
}

/// Refuses types whose parameters make no type.
fn check(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Decimal32(p, s) => validate_decimal_precision_and_scale::<Decimal32Type>(*p, *s),
        DataType::Decimal64(p, s) => validate_decimal_precision_and_scale::<Decimal64Type>(*p, *s),
        DataType::Decimal128(p, s) => {
            validate_decimal_precision_and_scale::<Decimal128Type>(*p, *s)
        }
        DataType::Decimal256(p, s) => {
            validate_decimal_precision_and_scale::<Decimal256Type>(*p, *s)
        }
        _ => Ok(()),
    }
    .map_err(wrong)?;
    let sound = match data_type {
        DataType::RunEndEncoded(ends, _) => {
            ends.data_type().is_run_ends_type() && !ends.is_nullable()
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.len() == 2,
            _ => false,
        },
        DataType::Dictionary(_, values) => {
            check(values)?;
            true
        }
        _ => true,
    };
    if !sound || Kind::of(data_type).is_none() {
        return Err(Error::Data(format!("a type that cannot be: {data_type}")));
    }
    children(data_type).into_iter().try_for_each(check)
}

fn wrong(error: arrow::error::ArrowError) -> Error {
    Error::Data(error.to_string())
}
