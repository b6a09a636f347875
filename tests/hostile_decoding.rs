//! What strangers send costs no more memory and no more work than is stated (rule A8). Work is
//! counted as allocated bytes, because time differs between machines.
//!
//! A program of its own, because the allocator counts for the whole program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use arrow::ipc;
use dipc::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use dipc::device::HostBuffer;
use dipc::error::{Error, Result, Status};
use dipc::proto::{Credit, Header, HeaderKind, Headers, Request};
use flatbuffers::{FlatBufferBuilder, WIPOffset};

/// Counts the bytes that each thread has.
struct Counting;

#[derive(Debug, Clone, Copy)]
struct Bytes {
    /// Allocated and not freed.
    live: usize,
    /// The most that `live` was.
    peak: usize,
    /// Allocated since the start.
    all: usize,
}

thread_local! {
    static BYTES: Cell<Bytes> = const { Cell::new(Bytes { live: 0, peak: 0, all: 0 }) };
}

fn taken(len: usize) {
    let mut bytes = BYTES.get();
    bytes.live = bytes.live.wrapping_add(len);
    bytes.all = bytes.all.wrapping_add(len);
    bytes.peak = bytes.peak.max(bytes.live);
    BYTES.set(bytes);
}

fn given(len: usize) {
    let mut bytes = BYTES.get();
    bytes.live = bytes.live.saturating_sub(len);
    BYTES.set(bytes);
}

// SAFETY: the system's allocator does the work; counting uses no heap memory, because the counter
// needs no initialisation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller promises what is asked.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given(layout.size());
        taken(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, the most memory that it had, and all memory that it allocated.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = BYTES.get();
    BYTES.set(Bytes {
        peak: before.live,
        ..before
    });
    let result = work();
    let after = BYTES.get();
    let peak = after.peak - before.live;
    (result, peak, after.all - before.all)
}

type Builder = FlatBufferBuilder<'static>;
type FieldOffset = WIPOffset<ipc::Field<'static>>;
type Pairs =
    WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<ipc::KeyValue<'static>>>>;

/// A field without a name.
fn field(
    builder: &mut Builder,
    ty: ipc::Type,
    dictionary: Option<i64>,
    children: &[FieldOffset],
) -> FieldOffset {
    let type_ = match ty {
        ipc::Type::Null => ipc::Null::create(builder, &ipc::NullArgs {}).as_union_value(),
        ipc::Type::Struct_ => ipc::Struct_::create(builder, &ipc::Struct_Args {}).as_union_value(),
        ipc::Type::BinaryView => {
            ipc::BinaryView::create(builder, &ipc::BinaryViewArgs {}).as_union_value()
        }
        ipc::Type::Binary => ipc::Binary::create(builder, &ipc::BinaryArgs {}).as_union_value(),
        ipc::Type::FixedSizeBinary => {
            let args = ipc::FixedSizeBinaryArgs { byteWidth: 0 };
            ipc::FixedSizeBinary::create(builder, &args).as_union_value()
        }
        ipc::Type::FixedSizeList => {
            let args = ipc::FixedSizeListArgs { listSize: 0 };
            ipc::FixedSizeList::create(builder, &args).as_union_value()
        }
        ipc::Type::RunEndEncoded => {
            let args = ipc::RunEndEncodedArgs {};
            ipc::RunEndEncoded::create(builder, &args).as_union_value()
        }
        ipc::Type::Int => {
            let args = ipc::IntArgs {
                bitWidth: 64,
                is_signed: true,
            };
            ipc::Int::create(builder, &args).as_union_value()
        }
        ipc::Type::Union => {
            let args = ipc::UnionArgs::default();
            ipc::Union::create(builder, &args).as_union_value()
        }
        other => panic!("{other:?}"),
    };
    let dictionary = dictionary.map(|id| {
        let args = ipc::DictionaryEncodingArgs {
            id,
            ..Default::default()
        };
        ipc::DictionaryEncoding::create(builder, &args)
    });
    let children = (!children.is_empty()).then(|| builder.create_vector(children));
    let args = ipc::FieldArgs {
        type_type: ty,
        type_: Some(type_),
        nullable: true,
        dictionary,
        children,
        ..Default::default()
    };
    ipc::Field::create(builder, &args)
}

fn pairs(builder: &mut Builder, count: usize) -> Option<Pairs> {
    let pair = |builder: &mut Builder| {
        let args = ipc::KeyValueArgs {
            key: None,
            value: None,
        };
        ipc::KeyValue::create(builder, &args)
    };
    let pairs: Vec<_> = (0..count).map(|_| pair(builder)).collect();
    (count > 0).then(|| builder.create_vector(&pairs))
}

fn message(
    mut builder: Builder,
    kind: ipc::MessageHeader,
    header: WIPOffset<flatbuffers::UnionWIPOffset>,
    body_len: usize,
    custom_metadata: Option<Pairs>,
) -> Vec<u8> {
    let args = ipc::MessageArgs {
        version: ipc::MetadataVersion::V5,
        header_type: kind,
        header: Some(header),
        bodyLength: i64::try_from(body_len).unwrap(),
        custom_metadata,
    };
    let message = ipc::Message::create(&mut builder, &args);
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// The header of a schema with `metadata` pairs of metadata.
fn schema(metadata: usize, fields: impl FnOnce(&mut Builder) -> Vec<FieldOffset>) -> Vec<u8> {
    let mut builder = Builder::new();
    let fields = fields(&mut builder);
    let fields = Some(builder.create_vector(&fields));
    let custom_metadata = pairs(&mut builder, metadata);
    let args = ipc::SchemaArgs {
        fields,
        custom_metadata,
        ..Default::default()
    };
    let schema = ipc::Schema::create(&mut builder, &args).as_union_value();
    message(builder, ipc::MessageHeader::Schema, schema, 0, None)
}

/// A schema of one column.
fn column(ty: ipc::Type, children: &[ipc::Type]) -> Vec<u8> {
    schema(0, |builder| {
        let children: Vec<_> = children
            .iter()
            .map(|ty| field(builder, *ty, None, &[]))
            .collect();
        vec![field(builder, ty, None, &children)]
    })
}

/// What a batch, or the dictionary of an id, has in its header.
#[derive(Default)]
struct Batch {
    rows: i64,
    /// Lengths of nodes, without nulls.
    nodes: Vec<i64>,
    /// Lengths of buffers, one behind the other.
    buffers: Vec<usize>,
    counts: Vec<i64>,
    codec: Option<ipc::CompressionType>,
    pairs: usize,
    dictionary: Option<i64>,
}

impl Batch {
    fn header(&self) -> Vec<u8> {
        let mut builder = Builder::new();
        let nodes: Vec<_> = (self.nodes.iter())
            .map(|length| ipc::FieldNode::new(*length, 0))
            .collect();
        let nodes = Some(builder.create_vector(&nodes));
        let mut end = 0;
        let mut buffer = |len: &usize| {
            let buffer =
                ipc::Buffer::new(i64::try_from(end).unwrap(), i64::try_from(*len).unwrap());
            end += len;
            buffer
        };
        let buffers: Vec<_> = self.buffers.iter().map(&mut buffer).collect();
        let buffers = Some(builder.create_vector(&buffers));
        let counts = (!self.counts.is_empty()).then(|| builder.create_vector(&self.counts));
        let compression = self.codec.map(|codec| {
            let args = ipc::BodyCompressionArgs {
                codec,
                method: ipc::BodyCompressionMethod::BUFFER,
            };
            ipc::BodyCompression::create(&mut builder, &args)
        });
        let args = ipc::RecordBatchArgs {
            length: self.rows,
            nodes,
            buffers,
            compression,
            variadicBufferCounts: counts,
        };
        let batch = ipc::RecordBatch::create(&mut builder, &args);
        let pairs = pairs(&mut builder, self.pairs);
        let (kind, header) = match self.dictionary {
            None => (ipc::MessageHeader::RecordBatch, batch.as_union_value()),
            Some(id) => {
                let args = ipc::DictionaryBatchArgs {
                    id,
                    data: Some(batch),
                    isDelta: false,
                };
                let dictionary = ipc::DictionaryBatch::create(&mut builder, &args);
                let header = dictionary.as_union_value();
                (ipc::MessageHeader::DictionaryBatch, header)
            }
        };
        message(builder, kind, header, end, pairs)
    }
}

/// Limit for a message in these tests.
const LIMIT: usize = 16 << 20;
/// What a message may take beside its limit and its bytes: lists of a few kilobytes.
const BESIDE: usize = 1 << 20;

fn decoder(schema: &[u8], level: Level) -> Result<Decoder> {
    let options = DecodeOptions {
        level,
        message_limit: LIMIT as u64,
    };
    Decoder::new(&Header::parse(schema)?, options)
}

/// Decodes messages of headers and bodies, and drops the arrays.
fn decode(schema: &[u8], messages: &[(Vec<u8>, Vec<u8>)], level: Level) -> Result<u64> {
    let mut decoder = decoder(schema, level)?;
    let mut rows = 0_u64;
    for (header, body) in messages {
        let header = Header::parse(header)?;
        let body = ReceivedBody::packed(&header, HostBuffer::copy_of(body)?)?;
        match header.kind() {
            HeaderKind::Dictionary => drop(decoder.add_dictionary(&header, &body)?),
            _ => rows = rows.saturating_add(decoder.batch(&header, &body)?.rows),
        }
    }
    Ok(rows)
}

const LEVELS: [Level; 2] = [Level::Structure, Level::Full];

/// Asserts that the messages are refused by the limit, and that they took no more than it.
fn refused(what: &str, schema: &[u8], messages: &[(Vec<u8>, Vec<u8>)]) -> Error {
    let of_messages = messages
        .iter()
        .map(|(header, body)| header.len() + body.len());
    let sent = schema.len() + of_messages.max().unwrap_or(0);
    let mut last = None;
    for level in LEVELS {
        let (error, peak, _) = measured(|| decode(schema, messages, level).unwrap_err());
        assert_eq!(error.status(), Status::OutOfMemory, "{what}: {error}");
        let text = error.text();
        assert!(text.contains("message_limit_bytes"), "{what}: {error}");
        assert!(text.contains("--max-message"), "{what}: {error}");
        let most = LIMIT + 3 * sent + BESIDE;
        assert!(peak < most, "{what}: {peak} bytes of {most}, {sent} sent");
        last = Some(error);
    }
    last.unwrap()
}

/// Rule A8: a schema of many fields ends at the limit of a message: 1 KiB for each field.
#[test]
fn a_schema_of_many_fields_has_a_limit() {
    let many = |count: usize| {
        schema(0, |builder| {
            let null = |_| field(builder, ipc::Type::Null, None, &[]);
            (0..count).map(null).collect()
        })
    };
    refused("fields", &many(LIMIT / 1032 + 1), &[]);
    let most = many(LIMIT / 1032);
    let (opened, peak, _) = measured(|| decoder(&most, Level::Full).map(|it| drop(it.schema())));
    opened.unwrap();
    assert!(peak < LIMIT + 3 * most.len(), "{peak}");
}

/// Rule A8: pairs of metadata, at a schema and at each batch, end at the limit of a message.
#[test]
fn pairs_of_metadata_have_a_limit() {
    let null = |builder: &mut Builder| vec![field(builder, ipc::Type::Null, None, &[])];
    refused("of a schema", &schema(LIMIT / 16 + 1, null), &[]);
    let batch = Batch {
        nodes: vec![0],
        pairs: LIMIT / 100,
        ..Batch::default()
    };
    let schema = schema(0, null);
    refused("of a batch", &schema, &[(batch.header(), Vec::new())]);
}

/// Rule A8: dictionaries without a body, each in the place of the one before, have a limit as long
/// as no batch comes.
#[test]
fn empty_dictionaries_have_a_limit() {
    let schema = schema(0, |builder| {
        vec![field(builder, ipc::Type::Null, Some(0), &[])]
    });
    let dictionary = Batch {
        nodes: vec![0],
        dictionary: Some(0),
        ..Batch::default()
    };
    let one = (dictionary.header(), Vec::new());
    let error = refused("dictionaries", &schema, &vec![one; LIMIT / 1024 + 1]);
    assert!(error.text().contains("since the last batch"), "{error}");
}

/// Rule A8: rows of types without bytes cost nothing, however many a batch has.
#[test]
fn rows_without_bytes_cost_nothing() {
    use ipc::Type;
    let most = i64::MAX >> 3;
    let cases = [
        (column(Type::Null, &[]), vec![most], 0),
        (column(Type::Struct_, &[Type::Null]), vec![most; 2], 1),
        (column(Type::FixedSizeBinary, &[]), vec![most], 2),
        (column(Type::FixedSizeList, &[Type::Null]), vec![most, 0], 1),
    ];
    for (schema, nodes, buffers) in cases {
        let batch = Batch {
            rows: most,
            nodes,
            buffers: vec![0; buffers],
            ..Batch::default()
        };
        let message = [(batch.header(), Vec::new())];
        for level in LEVELS {
            let (rows, peak, all) = measured(|| decode(&schema, &message, level));
            assert_eq!(rows.unwrap(), most.unsigned_abs());
            assert!(peak < 32 << 10 && all < 64 << 10, "{peak} of {all}");
        }
    }
    // A run-end encoded array needs one run.
    let runs = Batch {
        rows: most,
        nodes: vec![most, 1, 1],
        buffers: vec![0, 8],
        ..Batch::default()
    };
    let schema = column(Type::RunEndEncoded, &[Type::Int, Type::Null]);
    let message = [(runs.header(), most.to_le_bytes().to_vec())];
    for level in LEVELS {
        let (rows, peak, _) = measured(|| decode(&schema, &message, level));
        assert_eq!(rows.unwrap(), most.unsigned_abs());
        assert!(peak < 32 << 10, "{peak}");
    }
}

/// Rule A8: the work on a body of many tiny LZ4 frames follows its bytes, not the blocks of 4 MiB
/// that each frame could have; the same for zstd and the window that a frame could have.
#[test]
fn tiny_frames_cost_what_they_hold() {
    use std::io::Write as _;

    const BUFFERS: usize = 3000;
    let lz4 = || {
        let info = lz4_flex::frame::FrameInfo::new()
            .block_size(lz4_flex::frame::BlockSize::Max4MB)
            .block_mode(lz4_flex::frame::BlockMode::Linked);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&[7; 16]).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = || zstd::stream::encode_all(&[7_u8; 16][..], 1).unwrap();
    let schema = schema(0, |builder| {
        let one = |_| field(builder, ipc::Type::BinaryView, None, &[]);
        (0..1).map(one).collect()
    });
    for (codec, frame) in [
        (ipc::CompressionType::LZ4_FRAME, lz4()),
        (ipc::CompressionType::ZSTD, zstd()),
    ] {
        let packed = [&16_i64.to_le_bytes()[..], &frame].concat();
        let mut buffers = vec![0];
        buffers.extend(std::iter::repeat_n(packed.len(), BUFFERS + 1));
        let mut body = [&16_i64.to_le_bytes()[..], &frame].concat();
        // One view, of 7 bytes that are 7: it is short and padded.
        let mut view = 4_i32.to_le_bytes().to_vec();
        view.extend([1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        let view = match codec {
            ipc::CompressionType::ZSTD => zstd::stream::encode_all(&view[..], 1).unwrap(),
            _ => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(&view).unwrap();
                encoder.finish().unwrap()
            }
        };
        let view = [&16_i64.to_le_bytes()[..], &view].concat();
        buffers[1] = view.len();
        body.clear();
        body.extend_from_slice(&view);
        (0..BUFFERS).for_each(|_| body.extend_from_slice(&packed));
        let batch = Batch {
            rows: 1,
            nodes: vec![1],
            buffers,
            counts: vec![i64::try_from(BUFFERS).unwrap()],
            codec: Some(codec),
            ..Batch::default()
        };
        let message = [(batch.header(), body)];
        let sent = message[0].0.len() + message[0].1.len();
        for level in LEVELS {
            let (rows, _, all) = measured(|| decode(&schema, &message, level));
            assert_eq!(rows.unwrap(), 1);
            assert!(all < 32 * sent, "{codec:?}: {all} bytes for {sent}");
        }
    }
}

/// Rule A8: a claimed length takes memory only as far as content comes, and no more than the limit.
#[test]
fn claims_of_compressed_buffers_are_not_believed() {
    let schema = column(ipc::Type::Binary, &[]);
    let zeros = vec![0; 64 << 20];
    let bomb = zstd::stream::encode_all(&zeros[..], 1).unwrap();
    drop(zeros);
    for (claim, what) in [(1_i64 << 40, "a claim"), (64 << 20, "a content")] {
        let mut body = claim.to_le_bytes().to_vec();
        body.extend_from_slice(&bomb);
        let batch = Batch {
            rows: 1,
            nodes: vec![1],
            buffers: vec![0, body.len(), 0],
            codec: Some(ipc::CompressionType::ZSTD),
            ..Batch::default()
        };
        refused(what, &schema, &[(batch.header(), body)]);
    }
}

/// Rule A8: buffers of views cost what the header has for them, and their count is compared with
/// the buffers before anything is allocated.
#[test]
fn counts_of_view_buffers_are_bounded() {
    const BUFFERS: usize = 50_000;
    let schema = column(ipc::Type::BinaryView, &[]);
    for (count, wanted) in [(BUFFERS, None), (usize::MAX >> 1, Some("view buffers"))] {
        let batch = Batch {
            nodes: vec![0],
            buffers: vec![0; BUFFERS + 2],
            counts: vec![i64::try_from(count).unwrap()],
            ..Batch::default()
        };
        let message = [(batch.header(), Vec::new())];
        for level in LEVELS {
            let (result, peak, _) = measured(|| decode(&schema, &message, level));
            let text = result.map_err(|error| error.text().to_owned()).err();
            assert_eq!(text.is_some(), wanted.is_some(), "{text:?}");
            assert!(text.is_none_or(|text| text.contains(wanted.unwrap())));
            assert!(peak < 16 * message[0].0.len(), "{peak}");
        }
    }
}

/// Rule A8: a union has at most 128 children.
#[test]
fn unions_have_few_children() {
    for (children, is_fine) in [(128, true), (129, false), (10_000, false)] {
        let schema = column(ipc::Type::Union, &vec![ipc::Type::Null; children]);
        assert_eq!(decoder(&schema, Level::Full).is_ok(), is_fine, "{children}");
    }
}

/// Rule Q1: headers of a request are bounded by their bytes, so that even the shortest pairs take
/// little memory.
#[test]
fn the_most_headers_of_a_request_take_little_memory() {
    let credit = Credit {
        batches: 1,
        bytes: 1,
    };
    let mut request = Request::new("t", credit);
    let mut headers = Headers::new();
    // A pair takes six bytes on the wire.
    for _ in 0..(64 << 10) / 6 {
        headers.add("k", "").unwrap();
    }
    request.headers = headers;
    let encoded = request.encode();
    assert!(encoded.len() > 64_000, "{}", encoded.len());
    let (decoded, peak, _) = measured(|| Request::decode(&encoded).unwrap().headers.len());
    assert_eq!(decoded, (64 << 10) / 6);
    assert!(peak < 2 << 20, "{peak}");
    request.headers.add("k", "").unwrap();
    request.headers.add("k", "").unwrap();
    assert!(Request::decode(&request.encode()).is_err());
}
