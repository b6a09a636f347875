use std::ffi::CString;

use arrow::ipc::root_as_message;
use proptest::prelude::*;

use super::*;
use crate::arrow::abi::ArrowSchema;

/// All types, for the round trips below.
fn types() -> Vec<Type> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let mut types = vec![
        Type::Null,
        Type::Boolean,
        Type::Date32,
        Type::Date64,
        Type::Struct,
        Type::RunEndEncoded,
        Type::Map { keys_sorted: false },
        Type::FixedSizeBinary(0),
        Type::FixedSizeBinary(16),
        Type::FixedSizeList(3),
        Type::Union {
            dense: true,
            ids: vec![0, 5, 127],
        },
        Type::Union {
            dense: false,
            ids: vec![],
        },
    ];
    for bits in [8, 16, 32, 64] {
        types.extend([true, false].map(|signed| Type::Int { bits, signed }));
    }
    types.extend([16, 32, 64].map(|bits| Type::Float { bits }));
    for (bits, precision) in [(32, 9), (64, 18), (128, 38), (256, 76)] {
        types.extend([-2, 0, 3].map(|scale| Type::Decimal {
            bits,
            precision,
            scale,
        }));
    }
    for unit in [Second, Millisecond, Microsecond, Nanosecond] {
        types.push(Type::Time(unit));
        types.push(Type::Duration(unit));
        types.push(Type::Timestamp(unit, String::new()));
        types.push(Type::Timestamp(unit, "Europe/Paris".to_owned()));
    }
    use IntervalUnit::{DayTime, MonthDayNano, YearMonth};
    types.extend([YearMonth, DayTime, MonthDayNano].map(Type::Interval));
    for flag in [true, false] {
        types.push(Type::View { utf8: flag });
        types.push(Type::List { large: flag });
        types.push(Type::ListView { large: flag });
        types.extend([true, false].map(|utf8| Type::Binary { large: flag, utf8 }));
    }
    types
}

fn leaf(name: &str, ty: Type) -> Field {
    Field {
        name: name.to_owned(),
        ty,
        nullable: true,
        children: vec![],
        dictionary: None,
        metadata: vec![],
    }
}

/// A field of the type, with valid children.
fn field_of(ty: &Type) -> Field {
    let int32 = Type::Int {
        bits: 32,
        signed: true,
    };
    let mut field = leaf("f", ty.clone());
    let count = ty.child_count().unwrap_or(2);
    field.children = (0..count)
        .map(|index| leaf(&format!("c{index}"), int32.clone()))
        .collect();
    if matches!(ty, Type::Map { .. }) {
        field.children[0].ty = Type::Struct;
        field.children[0].children = vec![leaf("key", int32.clone()), leaf("value", int32)];
    }
    field
}

fn schema_header(schema: &Schema) -> Vec<u8> {
    let mut fbb = flatbuffers::FlatBufferBuilder::new();
    let header = schema.to_ipc(&mut fbb).as_union_value();
    let message = arrow::ipc::Message::create(
        &mut fbb,
        &arrow::ipc::MessageArgs {
            version: arrow::ipc::MetadataVersion::V5,
            header_type: arrow::ipc::MessageHeader::Schema,
            header: Some(header),
            bodyLength: 0,
            custom_metadata: None,
        },
    );
    fbb.finish(message, None);
    fbb.finished_data().to_vec()
}

/// Each type's format string parses to the same type.
#[test]
fn format_strings_lead_back_to_their_type() {
    for ty in types() {
        assert_eq!(
            Type::parse(&ty.format(), false),
            Ok(ty.clone()),
            "{}",
            ty.format()
        );
    }
    assert_eq!(Type::parse("+m", true), Ok(Type::Map { keys_sorted: true }));
    assert_eq!(Type::parse("d:5,2,128", false), Type::parse("d:5,2", false));
}

/// Each type's IPC table reads back as the same schema, with its metadata, flags and dictionaries.
#[test]
fn ipc_tables_lead_back_to_their_schema() {
    let mut schema = Schema {
        fields: types().iter().map(field_of).collect(),
        metadata: vec![
            ("k".to_owned(), "v".to_owned()),
            ("k".to_owned(), String::new()),
        ],
    };
    schema.fields[0].metadata = vec![("ARROW:extension:name".to_owned(), "x".to_owned())];
    schema.fields[1].nullable = false;
    schema.fields[2].dictionary = Some(DictionaryEncoding {
        id: 7,
        index: Type::Int {
            bits: 8,
            signed: false,
        },
        ordered: true,
    });
    let header = schema_header(&schema);
    let message = root_as_message(&header).unwrap();
    let table = message.header_as_schema().unwrap();
    assert_eq!(Schema::from_ipc(&table).unwrap(), schema);
}

/// Unknown formats and numbers out of range are refused.
#[test]
fn unknown_formats_are_refused() {
    let wrong = [
        "",
        "x",
        "+",
        "+x",
        "tt",
        "ttx",
        "ttmm",
        "tDq",
        "ts",
        "tss",
        "tsx:",
        "tsss:",
        "d:",
        "d:1",
        "d:0,0",
        "d:39,0",
        "d:77,0,256",
        "d:10,0,32",
        "d:5,2,100",
        "d:5,2,128,1",
        "w:",
        "w:-1",
        "w:9999999999",
        "+w:x",
        "+ud:-1",
        "+us:128",
        "+us:1,1",
        "+ud:1,",
        "nn",
        "\u{e9}",
    ];
    for format in wrong {
        assert!(Type::parse(format, false).is_err(), "{format}");
    }
}

/// Metadata survives the C encoding; truncated bytes and false counts are refused.
#[test]
fn metadata_is_checked_against_its_length() {
    let pairs = vec![
        ("a".to_owned(), "1".to_owned()),
        (String::new(), "\u{e9}".to_owned()),
    ];
    let bytes = write_metadata(&pairs).unwrap();
    assert_eq!(parse_metadata(&bytes), Ok(pairs));
    for end in 0..bytes.len() {
        assert!(parse_metadata(&bytes[..end]).is_err());
    }
    for lie in [i32::MAX, -1, 3] {
        let mut bytes = bytes.clone();
        bytes[..4].copy_from_slice(&lie.to_ne_bytes());
        assert!(parse_metadata(&bytes).is_err());
    }
    let huge = vec![("k".to_owned(), "v".repeat(MAX_METADATA))];
    assert!(parse_metadata(&write_metadata(&huge).unwrap()).is_err());
    assert!(parse_metadata(&[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0, 0, 0, 0]).is_err());
}

unsafe extern "C" fn keep(_: *mut ArrowSchema) {}

/// Owns the memory that a hand-made C schema points to.
#[derive(Default)]
struct Made {
    texts: Vec<CString>,
    #[allow(
        clippy::vec_box,
        reason = "pointers to the schemas must stay when the list grows"
    )]
    schemas: Vec<Box<ArrowSchema>>,
    lists: Vec<Vec<*mut ArrowSchema>>,
}

impl Made {
    fn add(&mut self, format: &str, children: &[*mut ArrowSchema]) -> *mut ArrowSchema {
        let mut schema = ArrowSchema::empty();
        self.texts.push(CString::new(format).unwrap());
        schema.format = self.texts.last().unwrap().as_ptr();
        schema.release = Some(keep);
        schema.n_children = i64::try_from(children.len()).unwrap();
        self.lists.push(children.to_vec());
        schema.children = self.lists.last_mut().unwrap().as_mut_ptr();
        self.schemas.push(Box::new(schema));
        std::ptr::from_mut(self.schemas.last_mut().unwrap())
    }

    fn read(&self, schema: *mut ArrowSchema) -> crate::error::Result<Schema> {
        // SAFETY: `add` made the schema, and self keeps the memory that it points to.
        let schema = unsafe { &*schema };
        // SAFETY: the schema follows the C data interface, except for the fault of the test.
        unsafe { Schema::from_c(schema) }
    }

    /// Changes a schema of `add`.
    fn edit(schema: *mut ArrowSchema, change: impl FnOnce(&mut ArrowSchema)) {
        // SAFETY: the schema is in a box that the `Made` of the test keeps.
        change(unsafe { &mut *schema });
    }
}

/// Each broken schema gives a text with the field and the fault.
#[test]
fn broken_schemas_are_named() {
    type Build = fn(&mut Made) -> *mut ArrowSchema;
    let cases: &[(&str, Build)] = &[
        ("must be a struct", |made| made.add("i", &[])),
        ("released", |made| {
            let top = made.add("+s", &[]);
            Made::edit(top, |top| top.release = None);
            top
        }),
        ("format string is NULL", |made| {
            let top = made.add("+s", &[]);
            Made::edit(top, |top| top.format = std::ptr::null());
            top
        }),
        ("child 0 is NULL", |made| {
            made.add("+s", &[std::ptr::null_mut()])
        }),
        ("-1 children", |made| {
            let top = made.add("+s", &[]);
            Made::edit(top, |top| top.n_children = -1);
            top
        }),
        ("list of children is NULL", |made| {
            let top = made.add("+s", &[]);
            Made::edit(top, |top| {
                (top.n_children, top.children) = (1, std::ptr::null_mut())
            });
            top
        }),
        ("`#0`: the format string \"q\"", |made| {
            let child = made.add("q", &[]);
            made.add("+s", &[child])
        }),
        ("does not permit 0 children", |made| {
            let child = made.add("+l", &[]);
            made.add("+s", &[child])
        }),
        ("struct of a key and a value", |made| {
            let entries = made.add("+s", &[]);
            let map = made.add("+m", &[entries]);
            made.add("+s", &[map])
        }),
        ("run ends must be", |made| {
            let (ends, values) = (made.add("f", &[]), made.add("f", &[]));
            let run = made.add("+r", &[ends, values]);
            made.add("+s", &[run])
        }),
        ("dictionary indices", |made| {
            let values = made.add("u", &[]);
            let indices = made.add("f", &[]);
            Made::edit(indices, |indices| indices.dictionary = values);
            made.add("+s", &[indices])
        }),
        ("dictionary-encoded itself", |made| {
            let values = made.add("u", &[]);
            let (inner, outer) = (made.add("i", &[]), made.add("i", &[]));
            Made::edit(inner, |inner| inner.dictionary = values);
            Made::edit(outer, |outer| outer.dictionary = inner);
            made.add("+s", &[outer])
        }),
        ("nest deeper", |made| {
            let mut field = made.add("i", &[]);
            for _ in 0..=MAX_DEPTH {
                field = made.add("+l", &[field]);
            }
            made.add("+s", &[field])
        }),
    ];
    for (text, build) in cases {
        let mut made = Made::default();
        let top = build(&mut made);
        let error = made.read(top).unwrap_err();
        assert!(error.text().contains(text), "{text}: {error}");
    }
}

/// The deepest valid schema passes the checks of a reader with flatbuffers' own limits.
#[test]
fn the_deepest_schema_can_be_read() {
    let mut made = Made::default();
    let values = made.add("u", &[]);
    let mut field = made.add("i", &[]);
    Made::edit(field, |field| field.dictionary = values);
    for _ in 1..MAX_DEPTH {
        field = made.add("+l", &[field]);
    }
    let top = made.add("+s", &[field]);
    let schema = made.read(top).unwrap();
    assert!(root_as_message(&schema_header(&schema)).is_ok());
}

proptest! {
    /// Rule A8 for C structs: no format string or metadata makes the parser panic.
    #[test]
    fn parsers_take_anything(
        format in ".{0,12}",
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        if let Ok(ty) = Type::parse(&format, false) {
            prop_assert_eq!(Type::parse(&ty.format(), false), Ok(ty));
        }
        if let Ok(pairs) = parse_metadata(&bytes) {
            prop_assert_eq!(parse_metadata(&write_metadata(&pairs).unwrap()), Ok(pairs));
        }
    }
}
