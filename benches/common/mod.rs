//! What the benchmarks, the instruction counts and the count of allocations share: tables of many
//! columns of one kind, as a producer exports them and as they arrive.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "each program uses its own part; in tests a panic is how a failure shows"
)]

pub mod machines;

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StringViewArray, StructArray,
};
use arrow::datatypes::{Field, Int32Type, Schema};
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray};
use dipc::arrow::decode::{DecodeOptions, DecodedBatch, Decoder, Level, ReceivedBody};
use dipc::arrow::{
    EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema, batch_to_c, schema_to_c,
};
use dipc::device::{BufferRef, HostBuffer};
use dipc::proto::Header;

/// Rows of each table: few, since arrow-rs copies bodies where it builds headers.
pub const ROWS: usize = 16;

/// What all columns of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int64,
    Utf8,
    /// Lists of int64.
    List,
    /// Text with int32 indices, one dictionary for each column.
    Dictionary,
    /// Structs of an int64 and a text.
    Struct,
    /// Text in views, one data buffer.
    Views,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Int64,
        Self::Utf8,
        Self::List,
        Self::Dictionary,
        Self::Struct,
        Self::Views,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Int64 => "int64",
            Self::Utf8 => "utf8",
            Self::List => "list",
            Self::Dictionary => "dictionary",
            Self::Struct => "struct",
            Self::Views => "views",
        }
    }

    fn column(self, seed: usize) -> ArrayRef {
        let text = move |row: usize| format!("text {} of row {row}", seed % 97);
        let numbers = || Int64Array::from_iter_values((0..ROWS as i64).map(|row| row * 7));
        match self {
            Self::Int64 => Arc::new(numbers()),
            Self::Utf8 => Arc::new(StringArray::from_iter_values((0..ROWS).map(text))),
            Self::List => Arc::new(ListArray::from_iter_primitive::<
                arrow::datatypes::Int64Type,
                _,
                _,
            >(
                (0..ROWS as i64).map(|row| Some([Some(row), Some(row + 1)])),
            )),
            Self::Dictionary => Arc::new(
                (0..ROWS)
                    .map(|row| text(row % 4))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect::<DictionaryArray<Int32Type>>(),
            ),
            Self::Struct => {
                let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(text)));
                let numbers: ArrayRef = Arc::new(numbers());
                let field = |name: &str, array: &ArrayRef| {
                    Arc::new(Field::new(name, array.data_type().clone(), true))
                };
                Arc::new(StructArray::from(vec![
                    (field("number", &numbers), numbers),
                    (field("text", &texts), texts),
                ]))
            }
            Self::Views => Arc::new(StringViewArray::from_iter_values((0..ROWS).map(text))),
        }
    }
}

/// A table of `columns` columns of one kind.
pub fn table(kind: Kind, columns: usize) -> RecordBatch {
    let columns: Vec<ArrayRef> = (0..columns).map(|seed| kind.column(seed)).collect();
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            Field::new(format!("column {index}"), column.data_type().clone(), true)
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(ROWS));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
}

/// A table in the C structs, where its producer has it.
pub struct Produced {
    pub schema: OwnedSchema,
    /// All rows, and all but the last.
    arrays: [OwnedDeviceArray; 2],
    turn: Cell<usize>,
}

impl Produced {
    pub fn new(table: &RecordBatch) -> Self {
        Self {
            schema: schema_to_c(&table.schema()).unwrap(),
            arrays: [0, 1].map(|less| batch_to_c(table.slice(0, table.num_rows() - less))),
            turn: Cell::new(0),
        }
    }

    /// The array once more, at no cost, to be encoded; every second time without its last row,
    /// since a header like the one before is not built again.
    ///
    /// # Safety
    ///
    /// It and what is made of it are dropped before `self`, and no child is moved out of it.
    pub unsafe fn again(&self) -> OwnedDeviceArray {
        unsafe extern "C" fn release(array: *mut ArrowArray) {
            // SAFETY: the C data interface calls this with the structure that `again` made.
            unsafe { (*array).release = None };
        }
        let turn = self.turn.replace(self.turn.get() + 1);
        let raw = self.arrays[turn % self.arrays.len()].raw();
        let array = ArrowArray {
            release: Some(release),
            private_data: ptr::null_mut::<c_void>(),
            ..raw.array
        };
        // SAFETY: it has the parts of `self`'s array, which lives longer and is not written to.
        unsafe {
            OwnedDeviceArray::from_raw(ArrowDeviceArray {
                array,
                ..ArrowDeviceArray::empty()
            })
        }
    }
}

/// A stream of one batch, encoded, and a decoder that has seen all that comes before the batch.
pub struct Arrived {
    pub decoder: Decoder,
    /// The batch's message.
    pub message: EncodedMessage,
    pub schema_header: Vec<u8>,
    owner: Arc<dyn Any + Send + Sync>,
    buffers: Vec<BufferRef>,
}

impl Arrived {
    pub fn new(produced: &Produced) -> Self {
        let mut encoder = Encoder::new(&produced.schema, EncodeOptions::default()).unwrap();
        let options = DecodeOptions {
            level: Level::Structure,
            ..DecodeOptions::default()
        };
        let schema = Header::parse(encoder.schema_header()).unwrap();
        let mut decoder = Decoder::new(&schema, options).unwrap();
        // SAFETY: callers keep `produced` until they have dropped this.
        let mut messages = encoder.encode(unsafe { produced.again() }, None).unwrap();
        let message = messages.pop().unwrap();
        for dictionary in messages {
            let header = Header::parse(&dictionary.header).unwrap();
            let body = ReceivedBody::packed(&header, packed(&dictionary)).unwrap();
            decoder.add_dictionary(&header, &body).unwrap();
        }
        let memory = packed(&message);
        let header = Header::parse(&message.header).unwrap();
        let start = memory.as_ref().data;
        let buffers = header
            .buffers()
            .map(|span| BufferRef {
                data: start.wrapping_add(span.offset as usize),
                len: span.length as usize,
            })
            .collect();
        Self {
            decoder,
            message,
            schema_header: encoder.schema_header().to_vec(),
            owner: Arc::new(memory),
            buffers,
        }
    }

    /// What a consumer does for each batch: reads the header, then decodes.
    pub fn read(&mut self) -> DecodedBatch {
        let header = Header::parse(&self.message.header).unwrap();
        // SAFETY: the buffers lie in `owner`, and nobody writes to it.
        let body =
            unsafe { ReceivedBody::new(self.buffers.clone(), Arc::clone(&self.owner), true) };
        self.decoder.batch(&header, &body).unwrap()
    }
}

/// The body of a message as it travels where it is not lent.
pub fn packed(message: &EncodedMessage) -> HostBuffer {
    let mut memory = HostBuffer::new(message.body_len as usize).unwrap();
    let header = Header::parse(&message.header).unwrap();
    for (buffer, span) in message.buffers.iter().zip(header.buffers()) {
        // SAFETY: the message's owner is alive, and its memory not written to.
        let bytes = unsafe { buffer.as_slice() };
        memory.as_mut_slice()[span.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    memory
}
