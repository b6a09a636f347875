//! Converts the verified flatbuffer of a schema message into the tree of types.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use arrow::ipc;

use crate::arrow::decode::budget::past_limit;
use crate::arrow::decode::field::{DecodedField, Encoding};
use crate::arrow::format::{Child, Type, ensure_little_endian, ensure_not_too_deep, index_type};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

/// The schema of a stream.
#[derive(Debug)]
pub(super) struct DecodedSchema {
    /// The fields as children of one struct, as in the C data interface.
    pub(super) root: Arc<DecodedField>,
    /// For each dictionary id, the first field with the id. It has the type of the values.
    pub(super) dictionaries: HashMap<i64, Arc<DecodedField>>,
}

/// The message in a header.
pub(super) fn message(header: &Header) -> ipc::Message<'_> {
    // SAFETY: only `Header::parse` makes a header. It has verified these bytes as a message (rule
    // M7), and they have not changed since, because `Header` gives no mutable access to them.
    unsafe { ipc::root_as_message_unchecked(header.bytes()) }
}

/// True for metadata version 4, false for 5. Other versions are refused (rule A6).
pub(super) fn is_version_4(message: &ipc::Message<'_>) -> Result<bool> {
    match message.version() {
        ipc::MetadataVersion::V5 => Ok(false),
        ipc::MetadataVersion::V4 => {
            ensure_not_experimental(message)?;
            Ok(true)
        }
        other => Err(Error::unsupported(format!(
            "metadata version {} of the Arrow format cannot be read: only 4 and 5 can",
            i32::from(other.0) + 1
        ))),
    }
}

/// Arrow 0.17 marked compressed buffers in the message's metadata, before the format had a field
/// for that. A reader without this check would take compressed bytes for values.
fn ensure_not_experimental(message: &ipc::Message<'_>) -> Result<()> {
    let mut pairs = message.custom_metadata().into_iter().flatten();
    match pairs.find(|pair| pair.key() == Some("ARROW:experimental_compression")) {
        None => Ok(()),
        Some(pair) => Err(Error::unsupported(format!(
            "the message is compressed ({:?}) as Arrow 0.17 did it, which cannot be read: write it \
             anew with a later version",
            pair.value().unwrap_or_default()
        ))),
    }
}

/// Reads and checks the schema.
pub(super) fn parse(header: &Header, limit: u64) -> Result<DecodedSchema> {
    let message = message(header);
    is_version_4(&message)?;
    let schema = (header.kind() == HeaderKind::Schema)
        .then(|| message.header_as_schema())
        .flatten()
        .ok_or_else(|| Error::invalid_data("the first message of the stream is not a schema"))?;
    ensure_little_endian(&schema)?;
    let features = schema.features().into_iter().flatten();
    if let Some(feature) = features.into_iter().find(|f| f.variant_name().is_none()) {
        return Err(Error::unsupported(format!(
            "the stream uses feature {} of the Arrow format, which is not known here",
            feature.0
        )));
    }
    let mut parser = Parser {
        dictionaries: HashMap::new(),
        fields_left: header.bytes().len() / LEAST_FIELD,
        left: limit,
    };
    parser.take(metadata_len(schema.custom_metadata()))?;
    let mut children = Vec::new();
    for field in schema.fields().into_iter().flatten() {
        children.push(parser.field(field, 0)?);
    }
    let root = DecodedField {
        name: CString::default(),
        nullable: false,
        metadata: metadata(schema.custom_metadata())?,
        ty: Type::Struct,
        layout: Type::Struct.layout(),
        format: format(&Type::Struct)?,
        children,
        dictionary: None,
    };
    Ok(DecodedSchema {
        root: Arc::new(root),
        dictionaries: parser.dictionaries,
    })
}

type KeyValues<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<ipc::KeyValue<'a>>>;

/// Metadata in the C data interface's encoding: a count, then native lengths and bytes.
fn metadata(pairs: Option<KeyValues<'_>>) -> Result<Box<[u8]>> {
    let Some(pairs) = pairs.filter(|pairs| !pairs.is_empty()) else {
        return Ok(Box::default());
    };
    let length = |length: usize| {
        i32::try_from(length)
            .map(i32::to_ne_bytes)
            .map_err(|_| Error::invalid_data("metadata of a field is longer than 2 GiB"))
    };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&length(pairs.len())?);
    for pair in pairs {
        for text in [pair.key(), pair.value()] {
            let text = text.unwrap_or_default();
            bytes.extend_from_slice(&length(text.len())?);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    Ok(bytes.into_boxed_slice())
}

fn format(ty: &Type) -> Result<CString> {
    CString::new(ty.format())
        .map_err(|_| Error::invalid_data("the time zone of a timestamp holds a NUL character"))
}

/// The least bytes of a field in a header: its own table, and its place in the list. The field may
/// have no name, and may use the same table for its type as another field.
const LEAST_FIELD: usize = 16;

/// The bytes of a field in the decoder and in C, without name and metadata.
const FIELD_BYTES: usize = 512;

/// The most bytes of the result of [`metadata`].
fn metadata_len(pairs: Option<KeyValues<'_>>) -> usize {
    let texts = pairs
        .into_iter()
        .flatten()
        .flat_map(|pair| [pair.key(), pair.value()]);
    let lens = texts.map(|text| text.map_or(0, str::len).saturating_add(4));
    lens.fold(4, usize::saturating_add)
}

struct Parser {
    dictionaries: HashMap<i64, Arc<DecodedField>>,
    /// Bounds the reads of fields, because a header can name one field many times.
    fields_left: usize,
    /// Bytes that the schema may still take.
    left: u64,
}

impl Parser {
    /// Takes the bytes of a part of the schema from the limit, for the decoder and for C.
    fn take(&mut self, bytes: usize) -> Result<()> {
        let bytes = (bytes as u64).saturating_mul(2);
        self.left = (self.left.checked_sub(bytes)).ok_or_else(|| past_limit(bytes, self.left))?;
        Ok(())
    }

    fn field(&mut self, field: ipc::Field<'_>, depth: usize) -> Result<Arc<DecodedField>> {
        let name = field.name().unwrap_or_default();
        self.checked_field(field, name, depth)
            .map_err(|error| error.context(format_args!("field {name:?}")))
    }

    fn checked_field(
        &mut self,
        field: ipc::Field<'_>,
        name: &str,
        depth: usize,
    ) -> Result<Arc<DecodedField>> {
        ensure_not_too_deep(depth)?;
        self.fields_left = self.fields_left.checked_sub(1).ok_or_else(|| {
            Error::invalid_data("the schema has more fields than its header has room for")
        })?;
        self.take(
            FIELD_BYTES
                .saturating_add(name.len())
                .saturating_add(zone_len(field))
                .saturating_add(metadata_len(field.custom_metadata())),
        )?;
        let mut children = Vec::new();
        for child in field.children().into_iter().flatten() {
            children.push(self.field(child, depth + 1)?);
        }
        let ty = Type::from_ipc(field)?;
        check_children(&ty, &children)?;
        let field = Arc::new(DecodedField {
            name: CString::new(name)
                .map_err(|_| Error::invalid_data("the name holds a NUL character"))?,
            nullable: field.nullable(),
            metadata: metadata(field.custom_metadata())?,
            format: format(&ty)?,
            layout: ty.layout(),
            ty,
            children,
            dictionary: field.dictionary().map(encoding).transpose()?,
        });
        if let Some(encoding) = field.dictionary {
            let first = self
                .dictionaries
                .entry(encoding.id)
                .or_insert_with(|| Arc::clone(&field));
            if !first.same_type(&field) {
                return Err(Error::invalid_data(format!(
                    "dictionary {} is used for values of two different types",
                    encoding.id
                )));
            }
        }
        Ok(field)
    }
}

/// Bytes of the time zone, which is a part of the type and of its format string.
fn zone_len(field: ipc::Field<'_>) -> usize {
    let zone = field.type_as_timestamp().and_then(|ty| ty.timezone());
    zone.map_or(0, str::len)
}

fn encoding(encoding: ipc::DictionaryEncoding<'_>) -> Result<Encoding> {
    let (bits, signed) = index_type(encoding)?;
    Ok(Encoding {
        id: encoding.id(),
        bits,
        signed,
        ordered: encoding.isOrdered(),
    })
}

fn check_children(ty: &Type, children: &[Arc<DecodedField>]) -> Result<()> {
    let children = children.iter().map(|child| Child {
        ty: &child.ty,
        is_encoded: child.dictionary.is_some(),
        children: child.children.len(),
    });
    ty.check_children(children).map_err(Error::invalid_data)
}
