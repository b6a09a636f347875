//! Invalid schemas (rule A8), and refused versions and byte orders (rule A6).

use arrow::ipc;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::arrow::decode::{DecodeOptions, Decoder};
use crate::error::{Result, Status};
use crate::proto::Header;

type Builder = FlatBufferBuilder<'static>;
type Offset = WIPOffset<ipc::Field<'static>>;

/// A field of a type with children.
fn field(
    builder: &mut Builder,
    name: &str,
    ty: ipc::Type,
    table: WIPOffset<UnionWIPOffset>,
    children: &[Offset],
    dictionary: Option<i64>,
) -> Offset {
    let name = builder.create_string(name);
    let children = builder.create_vector(children);
    let dictionary = dictionary.map(|id| {
        ipc::DictionaryEncoding::create(
            builder,
            &ipc::DictionaryEncodingArgs {
                id,
                ..Default::default()
            },
        )
    });
    ipc::Field::create(
        builder,
        &ipc::FieldArgs {
            name: Some(name),
            nullable: true,
            type_type: ty,
            type_: Some(table),
            dictionary,
            children: Some(children),
            custom_metadata: None,
        },
    )
}

fn int(builder: &mut Builder, bits: i32, name: &str) -> Offset {
    let table = ipc::Int::create(
        builder,
        &ipc::IntArgs {
            bitWidth: bits,
            is_signed: true,
        },
    );
    field(
        builder,
        name,
        ipc::Type::Int,
        table.as_union_value(),
        &[],
        None,
    )
}

fn utf8(builder: &mut Builder, dictionary: Option<i64>) -> Offset {
    let table = ipc::Utf8::create(builder, &ipc::Utf8Args {}).as_union_value();
    field(builder, "s", ipc::Type::Utf8, table, &[], dictionary)
}

fn list(builder: &mut Builder, children: &[Offset]) -> Offset {
    let table = ipc::List::create(builder, &ipc::ListArgs {}).as_union_value();
    field(builder, "l", ipc::Type::List, table, children, None)
}

fn union(builder: &mut Builder, ids: &[i32], children: &[Offset]) -> Offset {
    let ids = builder.create_vector(ids);
    let args = ipc::UnionArgs {
        mode: ipc::UnionMode::Dense,
        typeIds: Some(ids),
    };
    let table = ipc::Union::create(builder, &args).as_union_value();
    field(builder, "u", ipc::Type::Union, table, children, None)
}

/// Decodes a schema of the fields of `build`.
fn decode(build: impl FnOnce(&mut Builder) -> Vec<Offset>) -> Result<Decoder> {
    decode_as(ipc::MetadataVersion::V5, ipc::Endianness::Little, build)
}

fn decode_as(
    version: ipc::MetadataVersion,
    endianness: ipc::Endianness,
    build: impl FnOnce(&mut Builder) -> Vec<Offset>,
) -> Result<Decoder> {
    let mut builder = FlatBufferBuilder::new();
    let fields = build(&mut builder);
    let fields = builder.create_vector(&fields);
    let args = ipc::SchemaArgs {
        endianness,
        fields: Some(fields),
        ..Default::default()
    };
    let schema = ipc::Schema::create(&mut builder, &args);
    let message = ipc::MessageArgs {
        version,
        header_type: ipc::MessageHeader::Schema,
        header: Some(schema.as_union_value()),
        bodyLength: 0,
        custom_metadata: None,
    };
    let message = ipc::Message::create(&mut builder, &message);
    builder.finish(message, None);
    Decoder::new(
        &Header::parse(builder.finished_data())?,
        DecodeOptions::default(),
    )
}

fn refused(wanted: &str, build: impl FnOnce(&mut Builder) -> Vec<Offset>) {
    let error = decode(build).unwrap_err();
    assert!(error.text().contains(wanted), "{wanted:?}: {error}");
    assert!(
        matches!(error.status(), Status::InvalidData | Status::Unsupported),
        "{error}"
    );
}

/// Rule A8: invalid parameters of types.
#[test]
fn wrong_parameters_are_refused() {
    for bits in [-8, 0, 7, 128, 264] {
        refused("integers of", |b| vec![int(b, bits, "i")]);
    }
    for (bits, precision) in [(128, 0), (128, 39), (32, 10), (64, -1), (256, 77), (16, 1)] {
        refused(&format!("decimals of {bits} bits"), |b| {
            let args = ipc::DecimalArgs {
                precision,
                scale: 0,
                bitWidth: bits,
            };
            let table = ipc::Decimal::create(b, &args).as_union_value();
            vec![field(b, "d", ipc::Type::Decimal, table, &[], None)]
        });
    }
    refused("width -1 is negative", |b| {
        let args = ipc::FixedSizeBinaryArgs { byteWidth: -1 };
        let table = ipc::FixedSizeBinary::create(b, &args).as_union_value();
        vec![field(b, "w", ipc::Type::FixedSizeBinary, table, &[], None)]
    });
    refused("list size -7 is negative", |b| {
        let child = int(b, 8, "item");
        let args = ipc::FixedSizeListArgs { listSize: -7 };
        let table = ipc::FixedSizeList::create(b, &args).as_union_value();
        vec![field(
            b,
            "w",
            ipc::Type::FixedSizeList,
            table,
            &[child],
            None,
        )]
    });
    for (unit, bits) in [(ipc::TimeUnit::SECOND, 64), (ipc::TimeUnit::NANOSECOND, 32)] {
        refused("time of unit", |b| {
            let table = ipc::Time::create(
                b,
                &ipc::TimeArgs {
                    unit,
                    bitWidth: bits,
                },
            );
            vec![field(
                b,
                "t",
                ipc::Type::Time,
                table.as_union_value(),
                &[],
                None,
            )]
        });
    }
    refused("unknown time unit 9", |b| {
        let table = ipc::Duration::create(
            b,
            &ipc::DurationArgs {
                unit: ipc::TimeUnit(9),
            },
        );
        vec![field(
            b,
            "t",
            ipc::Type::Duration,
            table.as_union_value(),
            &[],
            None,
        )]
    });
    refused("unknown floating-point precision", |b| {
        let args = ipc::FloatingPointArgs {
            precision: ipc::Precision(3),
        };
        let table = ipc::FloatingPoint::create(b, &args).as_union_value();
        vec![field(b, "f", ipc::Type::FloatingPoint, table, &[], None)]
    });
    refused("not known here", |b| {
        let table = ipc::Utf8::create(b, &ipc::Utf8Args {}).as_union_value();
        vec![field(b, "x", ipc::Type(99), table, &[], None)]
    });
    refused("holds a NUL", |b| vec![int(b, 8, "a\0b")]);
}

/// Rule A8: invalid type ids of unions.
#[test]
fn wrong_type_ids_are_refused() {
    for ids in [&[0, 0], &[-1, 0], &[0, 128], &[0, i32::MAX]] {
        refused("type id", |b| {
            let children = [int(b, 8, "a"), int(b, 16, "b")];
            vec![union(b, ids, &children)]
        });
    }
    refused("3 type ids and 1 children", |b| {
        let child = int(b, 8, "a");
        vec![union(b, &[0, 1, 2], &[child])]
    });
    decode(|b| {
        let children = [int(b, 8, "a"), int(b, 16, "b")];
        vec![union(b, &[127, 0], &children)]
    })
    .unwrap();
}

/// Rule A8: children that do not match their parent.
#[test]
fn wrong_children_are_refused() {
    refused("0 children where it must have 1", |b| vec![list(b, &[])]);
    refused("2 children where it must have 1", |b| {
        let children = [int(b, 8, "a"), int(b, 16, "b")];
        vec![list(b, &children)]
    });
    refused("1 children where it must have 0", |b| {
        let child = int(b, 8, "a");
        let table = ipc::Utf8::create(b, &ipc::Utf8Args {}).as_union_value();
        vec![field(b, "s", ipc::Type::Utf8, table, &[child], None)]
    });
    refused("the child of a map must be", |b| {
        let child = int(b, 8, "a");
        let table = ipc::Map::create(b, &ipc::MapArgs { keysSorted: false }).as_union_value();
        vec![field(b, "m", ipc::Type::Map, table, &[child], None)]
    });
    refused("run ends must be", |b| {
        let children = [int(b, 8, "run_ends"), int(b, 8, "values")];
        let table = ipc::RunEndEncoded::create(b, &ipc::RunEndEncodedArgs {}).as_union_value();
        vec![field(
            b,
            "r",
            ipc::Type::RunEndEncoded,
            table,
            &children,
            None,
        )]
    });
}

/// Rule A8: nesting is bounded, because the code recurses over the tree.
#[test]
fn nesting_is_bounded() {
    let nested = |b: &mut Builder, depth: usize| {
        let mut field = int(b, 8, "i");
        for _ in 1..depth {
            field = list(b, &[field]);
        }
        vec![field]
    };
    decode(|b| nested(b, 60)).unwrap();
    for depth in [61, 64, 65, 100, 10_000] {
        let error = decode(|b| nested(b, depth)).unwrap_err();
        assert!(
            matches!(error.status(), Status::InvalidData | Status::Protocol),
            "{error}"
        );
    }
}

/// One dictionary may serve several fields of one type, but not of two types (rule A3).
#[test]
fn one_dictionary_has_one_type() {
    decode(|b| vec![utf8(b, Some(7)), utf8(b, Some(7))]).unwrap();
    refused("two different types", |b| {
        let table = ipc::Binary::create(b, &ipc::BinaryArgs {}).as_union_value();
        let binary = field(b, "z", ipc::Type::Binary, table, &[], Some(7));
        vec![utf8(b, Some(7)), binary]
    });
    // A dictionary inside itself has two types as well.
    refused("two different types", |b| {
        let inner = utf8(b, Some(7));
        let table = ipc::List::create(b, &ipc::ListArgs {}).as_union_value();
        vec![field(b, "l", ipc::Type::List, table, &[inner], Some(7))]
    });
}

/// Rule A6: big-endian streams and old versions are refused with the reason in the text.
#[test]
fn other_byte_orders_and_versions_are_refused() {
    let fields = |b: &mut Builder| vec![int(b, 8, "i")];
    let error = decode_as(ipc::MetadataVersion::V5, ipc::Endianness::Big, fields).unwrap_err();
    assert!(error.text().contains("big-endian"), "{error}");
    for version in [ipc::MetadataVersion::V1, ipc::MetadataVersion::V3] {
        decode_as(version, ipc::Endianness::Little, fields).unwrap_err();
    }
    decode_as(ipc::MetadataVersion::V4, ipc::Endianness::Little, fields).unwrap();
}
