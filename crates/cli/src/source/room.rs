//! Limits the memory of a batch of a Parquet file: its unpacked pages, and its arrays.
//!
//! A small file can need much memory: few bytes unpack to many, and a run of one index repeats a
//! value without further bytes. So each page is counted, with its largest possible size, before the
//! `parquet` crate decodes it. If a batch would be too large, the caller takes fewer rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use parking_lot::Mutex;
use parquet::basic::{ConvertedType, Encoding, LogicalType, Type};
use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

use super::expansion::{self, Lengths};

/// The memory that a batch may take in addition to the limit, as a multiple of its bytes in the
/// file: for packed bytes, unpacked bytes and arrays of very many columns.
const TIMES_STORED: u64 = 8;
/// Bytes of a row in a column in addition to its value: a definition level and the validity.
const ROW: u64 = 3;
/// Bytes of a value's two levels.
const LEVELS: u64 = 4;
/// Bytes of an offset, and of a text's view with the offset from which it is made.
const OFFSET: u64 = 8;
const VIEW: u64 = 24;
/// Bytes of the widest decimals.
const DECIMAL: u64 = 32;

/// The memory of a column for rows and values, without the bytes of texts.
#[derive(Debug, Clone, Copy)]
struct ColumnCost {
    /// Bytes for each row of a batch.
    row: u64,
    /// Bytes for each value of a page.
    value: u64,
    is_text: bool,
    is_repeated: bool,
    max_levels: (i16, i16),
    /// Whether days and nanoseconds of a day become nanoseconds of all time.
    is_far: bool,
}

/// A column of the row group being read.
#[derive(Debug, Default)]
struct ColumnMemory {
    /// Memory of the dictionary, and the lengths of its texts.
    dictionary: u64,
    lengths: Lengths,
    /// Memory of the page being read.
    page: u64,
    /// Bytes of dictionary and page in the file.
    dictionary_stored: u64,
    page_stored: u64,
    /// Largest memory of the page being read, and of all pages that the batch has begun.
    last: u64,
    made: u64,
}

impl ColumnMemory {
    fn total(&self) -> u64 {
        self.dictionary
            .saturating_add(self.page)
            .saturating_add(self.made)
    }
}

#[derive(Debug, Default)]
struct MemoryCounts {
    columns: Vec<ColumnMemory>,
    rows: u64,
    /// The total memory, and the total bytes in the file.
    total: u64,
    stored: u64,
    /// The total that exceeded the limit.
    past: Option<u64>,
}

/// The memory limit of one batch.
#[derive(Debug)]
pub struct Room {
    limit: u64,
    shapes: Vec<ColumnCost>,
    state: Mutex<MemoryCounts>,
}

impl Room {
    /// Makes the limit for batches of these columns. `fields` may need more memory than the columns
    /// in the file.
    pub fn new(limit: u64, columns: &[Arc<ColumnDescriptor>], fields: &[Arc<Field>]) -> Self {
        let mut lists = Vec::new();
        for field in fields {
            fixed_lists(field.data_type(), FixedLists::default(), &mut lists);
        }
        let shapes = columns
            .iter()
            .enumerate()
            .map(|(index, column)| shape(column, lists.get(index).copied().unwrap_or_default()))
            .collect();
        Self {
            limit,
            shapes,
            state: Mutex::default(),
        }
    }

    /// Bytes that a batch may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The number of rows, at most `rows`, whose fixed-width memory fits.
    pub fn rows(&self, rows: usize) -> usize {
        let row = self.shapes.iter().map(|shape| shape.row);
        let row = row.fold(0, u64::saturating_add).max(1);
        let most = usize::try_from(self.limit / row).unwrap_or(usize::MAX);
        rows.min(most).max(1)
    }

    /// Begins a row group.
    pub fn begin_group(&self) {
        let mut state = self.state.lock();
        *state = MemoryCounts::default();
        state
            .columns
            .resize_with(self.shapes.len(), ColumnMemory::default);
    }

    /// Begins a batch.
    pub fn begin_batch(&self, rows: usize) {
        let state = &mut *self.state.lock();
        state.rows = rows as u64;
        let row = self.shapes.iter().map(|shape| shape.row);
        state.total = row.fold(0, u64::saturating_add).saturating_mul(state.rows);
        state.stored = 0;
        for column in &mut state.columns {
            column.made = column.last;
            state.total = state.total.saturating_add(column.total());
            let stored = column.dictionary_stored.saturating_add(column.page_stored);
            state.stored = state.stored.saturating_add(stored);
        }
    }

    /// The total of bytes, if it exceeded the limit and reading failed for this reason. Forgets it.
    pub fn past(&self) -> Option<u64> {
        self.state.lock().past.take()
    }

    /// Counts a page before it is unpacked.
    pub fn add_page(
        &self,
        column: usize,
        is_dictionary: bool,
        packed: u64,
        unpacked: u64,
    ) -> Result<(), ParquetError> {
        let bytes = packed.saturating_add(unpacked);
        self.change(column, packed, |column| {
            if is_dictionary {
                // The decoded dictionary counts too.
                column.dictionary = bytes.saturating_add(unpacked);
                column.dictionary_stored = packed;
            } else {
                column.page = bytes;
                column.page_stored = packed;
                column.last = 0;
            }
            Ok(())
        })
    }

    /// Counts an unpacked page before it is decoded.
    pub fn add_values(&self, index: usize, page: &Page) -> Result<(), ParquetError> {
        let shape = self.shapes[index];
        if shape.is_far {
            expansion::ensure_near(page, shape.max_levels)?;
        }
        if let Page::DictionaryPage {
            buf, num_values, ..
        } = page
        {
            return self.change(index, 0, |column| {
                // A length precedes each text.
                let (least, place) = if shape.is_text {
                    (4, VIEW)
                } else {
                    (1, LEVELS)
                };
                let count = u64::from(*num_values);
                if count.saturating_mul(least) > buf.len() as u64 {
                    return Err(ParquetError::General(format!(
                        "a dictionary of {} bytes cannot have {num_values} values",
                        buf.len()
                    )));
                }
                let places = count.saturating_mul(place);
                column.dictionary = column.dictionary.saturating_add(places);
                if shape.is_text {
                    column.lengths = Lengths::of(buf, *num_values as usize);
                }
                Ok(())
            });
        }
        let (encoding, data) = expansion::values(page, shape.max_levels)?;
        let values = page.num_values() as usize;
        let is_delta = matches!(
            encoding,
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
        );
        if is_delta {
            // The crate decodes all lengths of a page at once.
            let count = expansion::delta_counts(data, encoding);
            self.change(index, 0, |column| {
                column.page = column.page.saturating_add(count.saturating_mul(4));
                Ok(())
            })?;
        }
        let rows = self.state.lock().rows;
        self.change(index, 0, |column| {
            let mut made = 0;
            if shape.is_repeated {
                made = (values as u64).saturating_mul(shape.value);
            }
            let most = match shape.is_repeated {
                true => usize::MAX,
                false => usize::try_from(rows).unwrap_or(usize::MAX),
            };
            let bytes = match encoding {
                Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => {
                    column.lengths.repeated(data, values, most)
                }
                Encoding::DELTA_BYTE_ARRAY => expansion::delta_bytes(data, most)?,
                _ => data.len() as u64,
            };
            if shape.is_text {
                made = made.saturating_add(bytes);
            }
            column.last = made;
            column.made = column.made.saturating_add(made);
            Ok(())
        })
    }

    /// Changes a column's count, after `stored` more bytes were read, and compares the new total
    /// with the limit.
    fn change(
        &self,
        index: usize,
        stored: u64,
        change: impl FnOnce(&mut ColumnMemory) -> Result<(), ParquetError>,
    ) -> Result<(), ParquetError> {
        let state = &mut *self.state.lock();
        let column = &mut state.columns[index];
        let before = column.total();
        change(column)?;
        state.total = (state.total.saturating_sub(before)).saturating_add(column.total());
        state.stored = state.stored.saturating_add(stored);
        let stored = state.stored.saturating_mul(TIMES_STORED);
        let limit = self.limit.saturating_add(stored);
        if state.total > limit {
            state.past = Some(state.total);
            return Err(ParquetError::General(format!(
                "{} bytes pass the limit of {limit} bytes",
                state.total
            )));
        }
        Ok(())
    }
}

fn shape(column: &ColumnDescriptor, lists: FixedLists) -> ColumnCost {
    let is_decimal = column.converted_type() == ConvertedType::DECIMAL
        || matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }));
    // In the page's type, and in Arrow's type.
    let physical = match column.physical_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::BYTE_ARRAY => VIEW,
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.type_length()).unwrap_or(0),
    };
    let width = match is_decimal {
        true => physical + DECIMAL,
        false => physical + physical.max(OFFSET),
    };
    let levels = (column.max_rep_level(), column.max_def_level());
    let is_repeated = levels.0 > 0;
    let depth = u64::try_from(levels.0).unwrap_or(0);
    let value = width + LEVELS + OFFSET * depth;
    ColumnCost {
        row: match is_repeated {
            // Null lists have values too.
            true => OFFSET + lists.of_row.saturating_mul(width),
            false => width + ROW,
        },
        value: value.saturating_mul(lists.of_value.saturating_add(1)),
        is_text: column.physical_type() == Type::BYTE_ARRAY,
        is_repeated,
        max_levels: levels,
        is_far: column.physical_type() == Type::INT96 && lists.of_nanoseconds,
    }
}

/// The number of values of the fixed-size lists around a column. Null lists have values too, but
/// none in the file.
#[derive(Debug, Clone, Copy, Default)]
struct FixedLists {
    /// Values in each row.
    of_row: u64,
    /// Values for each value of the file, in lists inside other lists.
    of_value: u64,
    is_repeated: bool,
    /// Whether the column's type counts nanoseconds.
    of_nanoseconds: bool,
}

/// Adds the lists of each column of a type.
fn fixed_lists(ty: &DataType, mut lists: FixedLists, all: &mut Vec<FixedLists>) {
    match ty {
        DataType::Struct(fields) => {
            for field in fields {
                fixed_lists(field.data_type(), lists, all);
            }
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => {
            lists.is_repeated = true;
            fixed_lists(field.data_type(), lists, all);
        }
        DataType::FixedSizeList(field, size) => {
            let size = u64::try_from(*size).unwrap_or(0);
            let count = match lists.is_repeated {
                true => &mut lists.of_value,
                false => &mut lists.of_row,
            };
            *count = (*count).max(1).saturating_mul(size);
            fixed_lists(field.data_type(), lists, all);
        }
        ty => {
            lists.of_nanoseconds = matches!(ty, DataType::Timestamp(TimeUnit::Nanosecond, _));
            all.push(lists);
        }
    }
}
