//! Checks the footer of a Parquet file before the `parquet` crate reads it. Errors are fields that
//! nest too deeply for the crate's recursion, and columns that differ from the schema, which the
//! crate does not check.

use anyhow::{Result, anyhow, bail};
use arrow::ipc;
use base64::Engine as _;
use dipc::ipc::Header;

use super::thrift::{Kind, Thrift};

/// Most levels of nested fields that libdipc sends.
const MAX_DEPTH: usize = 60;
/// How deeply groups may nest below the root. A list of Arrow takes two groups.
const MAX_GROUPS: usize = 2 * MAX_DEPTH + 2;
/// The physical type of integers of up to 32 bits.
const INT32: i64 = 1;
/// Arrow's own schema among the metadata.
const ARROW_SCHEMA: &[u8] = b"ARROW:schema";

/// A field of the schema, a list in which fields precede their children.
struct Element<'a> {
    name: &'a [u8],
    /// The physical type; groups have none.
    ty: Option<i64>,
    children: i64,
}

/// A field that has values.
struct Leaf<'a> {
    path: Vec<&'a [u8]>,
    ty: i64,
}

/// Checks a footer. The `parquet` crate truncates integers of 8 or 16 bits, which have 32 bits in
/// the pages, without a check. For such columns gives a changed footer with integers of 32 bits.
pub fn check(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut leaves = None;
    let mut wide = Wide {
        len: bytes.len(),
        changes: Vec::new(),
    };
    let mut thrift = Thrift::new(bytes);
    let whole = thrift.fields(|thrift, id, kind| match (id, kind) {
        (2, Kind::List) => match schema(thrift, &mut wide)? {
            Some(elements) => {
                leaves = Some(self::leaves(&elements)?);
                Ok(Some(()))
            }
            None => Ok(None),
        },
        (4, Kind::List) => match &leaves {
            Some(leaves) => row_groups(thrift, leaves),
            None => bail!("it has no schema before its row groups"),
        },
        (5, _) => {
            ensure_list(thrift, "key_value_metadata", kind, Kind::Struct)?;
            metadata(thrift)
        }
        (7, _) => {
            ensure_list(thrift, "column_orders", kind, Kind::Struct)?;
            Ok(thrift.skip(kind))
        }
        // The encryption algorithm; the footer itself may be plain.
        (8, _) => bail!("the file is encrypted; decrypt it first"),
        _ => Ok(thrift.skip(kind)),
    })?;
    if whole.is_none() {
        let at = bytes.len() - thrift.len();
        bail!("it is damaged at byte {at} of {}", bytes.len());
    }
    Ok((!wide.changes.is_empty()).then(|| {
        let mut bytes = bytes.to_vec();
        for (at, byte) in wide.changes {
            bytes[at] = byte;
        }
        bytes
    }))
}

/// The changes that widen a footer's integers of 8 and 16 bits to 32 bits.
struct Wide {
    /// Bytes of the footer.
    len: usize,
    /// An offset, and the byte for it.
    changes: Vec<(usize, u8)>,
}

impl Wide {
    /// Reads a converted type.
    fn converted(&mut self, thrift: &mut Thrift<'_>) -> Option<()> {
        // Each type is encoded in one byte: UINT_8 and UINT_16 become UINT_32, INT_8 and INT_16
        // become INT_32.
        let at = self.len - thrift.len();
        match thrift.integer()? {
            11 | 12 => self.changes.push((at, 13 << 1)),
            15 | 16 => self.changes.push((at, 17 << 1)),
            _ => {}
        }
        Some(())
    }

    /// Reads a logical type, which is a union.
    fn logical(&mut self, thrift: &mut Thrift<'_>) -> Option<()> {
        let whole = thrift.fields(|thrift, id, kind| match (id, kind) {
            // An integer type. Its first field is the width in bits.
            (10, Kind::Struct) => thrift.fields(|thrift, id, kind| {
                if (id, kind) == (1, Kind::Byte) {
                    self.changes.push((self.len - thrift.len(), 32));
                }
                Ok::<_, ()>(thrift.skip(kind))
            }),
            _ => Ok(thrift.skip(kind)),
        });
        whole.ok()?
    }
}

/// Reads a list of structs.
fn structs(
    thrift: &mut Thrift<'_>,
    mut each: impl FnMut(&mut Thrift<'_>) -> Result<Option<()>>,
) -> Result<Option<()>> {
    let Some((count, kind)) = thrift.list() else {
        return Ok(None);
    };
    for _ in 0..count {
        if kind != Kind::Struct || each(thrift)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

fn schema<'a>(thrift: &mut Thrift<'a>, wide: &mut Wide) -> Result<Option<Vec<Element<'a>>>> {
    let Some((count, kind)) = thrift.list() else {
        return Ok(None);
    };
    let mut elements = Vec::new();
    for _ in 0..count {
        let mut element = Element {
            name: b"",
            ty: None,
            children: 0,
        };
        let whole = thrift.fields(|thrift, id, kind| {
            Ok::<_, anyhow::Error>(match (id, kind) {
                (1, Kind::Integer) => thrift.integer().map(|ty| element.ty = Some(ty)),
                (4, Kind::Binary) => thrift.binary().map(|name| element.name = name),
                (5, Kind::Integer) => thrift.integer().map(|count| element.children = count),
                (6, Kind::Integer) => wide.converted(thrift),
                // Other integers have the width of their physical type.
                (10, Kind::Struct) if element.ty == Some(INT32) => wide.logical(thrift),
                _ => thrift.skip(kind),
            })
        })?;
        if kind != Kind::Struct || whole.is_none() {
            return Ok(None);
        }
        elements.push(element);
    }
    Ok(Some(elements))
}

/// The fields that have values, in order.
fn leaves<'a>(elements: &[Element<'a>]) -> Result<Vec<Leaf<'a>>> {
    let mut leaves = Vec::new();
    // The groups around the current field, each with its number of remaining fields.
    let mut path: Vec<&[u8]> = Vec::new();
    let mut rest: Vec<usize> = Vec::new();
    for (index, element) in elements.iter().enumerate() {
        while rest.pop_if(|rest| *rest == 0).is_some() {
            path.pop();
        }
        match rest.last_mut() {
            Some(rest) => *rest -= 1,
            None if index > 0 => bail!("its schema has more than one root"),
            None => {}
        }
        let left = elements.len() - index - 1;
        let Some(children) = usize::try_from(element.children)
            .ok()
            .filter(|n| *n <= left)
        else {
            bail!(
                "field {:?} cannot have {} fields",
                String::from_utf8_lossy(element.name),
                element.children
            );
        };
        if rest.len() > MAX_GROUPS {
            bail!("fields nest deeper than {} levels", MAX_DEPTH);
        }
        if children > 0 {
            // The root is not part of a path.
            path.push(element.name);
            rest.push(children);
        } else if let Some(ty) = element.ty {
            let mut path: Vec<_> = path.iter().skip(1).copied().collect();
            path.push(element.name);
            leaves.push(Leaf { path, ty });
        }
    }
    if rest.iter().any(|rest| *rest > 0) {
        bail!("its schema ends before its last field");
    }
    Ok(leaves)
}

fn row_groups(thrift: &mut Thrift<'_>, leaves: &[Leaf<'_>]) -> Result<Option<()>> {
    structs(thrift, |thrift| {
        thrift.fields(|thrift, id, kind| match (id, kind) {
            (1, Kind::List) => {
                let mut leaves = leaves.iter();
                let whole = structs(thrift, |thrift| match leaves.next() {
                    Some(leaf) => column(thrift, leaf),
                    None => bail!("a row group has more columns than the schema"),
                });
                if leaves.len() > 0 && matches!(whole, Ok(Some(()))) {
                    bail!("a row group has fewer columns than the schema");
                }
                whole
            }
            (4, _) => {
                ensure_list(thrift, "sorting_columns", kind, Kind::Struct)?;
                Ok(thrift.skip(kind))
            }
            _ => Ok(thrift.skip(kind)),
        })
    })
}

/// Checks an optional field, which the crate reads as a list of these values whatever its kind is.
/// Other readers skip a field of another kind.
fn ensure_list(thrift: &Thrift<'_>, name: &str, kind: Kind, of: Kind) -> Result<()> {
    let mut ahead = thrift.clone();
    let is_list =
        kind == Kind::List && (ahead.list()).is_none_or(|(count, kind)| count == 0 || kind == of);
    if !is_list {
        bail!("its field {name} is not the list that Parquet has there: write the file again");
    }
    Ok(())
}

/// The column of a row group for this field.
fn column(thrift: &mut Thrift<'_>, leaf: &Leaf<'_>) -> Result<Option<()>> {
    let name = || {
        let path: Vec<_> = leaf
            .path
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        path.join(".")
    };
    thrift.fields(|thrift, id, kind| match (id, kind) {
        (1, Kind::Binary) => bail!("column {:?} lies in another file", name()),
        (3, Kind::Struct) => thrift.fields(|thrift, id, kind| match (id, kind) {
            (1, Kind::Integer) => match thrift.integer() {
                Some(ty) if ty != leaf.ty => bail!(
                    "column {:?} is of physical type {ty}, and of {} in the schema",
                    name(),
                    leaf.ty
                ),
                ty => Ok(ty.map(|_| ())),
            },
            (3, Kind::List) => {
                let Some((count, kind)) = thrift.list() else {
                    return Ok(None);
                };
                let mut same = count == leaf.path.len();
                for index in 0..count {
                    let Some(part) = thrift.binary().filter(|_| kind == Kind::Binary) else {
                        return Ok(None);
                    };
                    same &= leaf.path.get(index) == Some(&part);
                }
                // Some writers leave the path out.
                if !same && count > 0 {
                    bail!(
                        "a row group has another column where the schema has {:?}",
                        name()
                    );
                }
                Ok(Some(()))
            }
            (2 | 8 | 13, _) => {
                let (field, of) = match id {
                    2 => ("encodings", Kind::Integer),
                    8 => ("key_value_metadata", Kind::Struct),
                    _ => ("encoding_stats", Kind::Struct),
                };
                let field = format!("{field} of column {:?}", name());
                ensure_list(thrift, &field, kind, of)?;
                Ok(thrift.skip(kind))
            }
            _ => Ok(thrift.skip(kind)),
        }),
        (8, _) => bail!("column {:?} is encrypted; decrypt the file first", name()),
        _ => Ok(thrift.skip(kind)),
    })
}

/// Checks the file's metadata. Arrow's schema in it is a flatbuffer. Shared tables in it can make
/// many fields of few bytes.
fn metadata(thrift: &mut Thrift<'_>) -> Result<Option<()>> {
    structs(thrift, |thrift| {
        let (mut key, mut value) = (&b""[..], &b""[..]);
        let whole = thrift.fields(|thrift, id, kind| {
            Ok::<_, anyhow::Error>(match (id, kind) {
                (1, Kind::Binary) => thrift.binary().map(|text| key = text),
                (2, Kind::Binary) => thrift.binary().map(|text| value = text),
                _ => thrift.skip(kind),
            })
        });
        if key == ARROW_SCHEMA {
            arrow_schema(value)?;
        }
        whole
    })
}

/// The message of Arrow's schema, from its text.
pub fn arrow_message(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| damaged(&error.to_string()))?;
    // The length may precede the message, as in a stream.
    if bytes.starts_with(&[0xff; 4]) {
        bytes.drain(..bytes.len().min(8));
    }
    Ok(bytes)
}

fn damaged(cause: &str) -> anyhow::Error {
    anyhow!("its metadata ARROW:schema is damaged: {cause}")
}

fn arrow_schema(text: &[u8]) -> Result<()> {
    let message = &arrow_message(text)?[..];
    let header = Header::parse(message).map_err(|error| damaged(error.text()))?;
    let schema = header.message()?.header_as_schema();
    for field in schema
        .and_then(|schema| schema.fields())
        .into_iter()
        .flatten()
    {
        check_depth(field, 1)?;
    }
    Ok(())
}

fn check_depth(field: ipc::Field<'_>, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        bail!(
            "its metadata ARROW:schema is wrong: fields nest deeper than {} levels",
            MAX_DEPTH
        );
    }
    for child in field.children().into_iter().flatten() {
        check_depth(child, depth + 1)?;
    }
    Ok(())
}
