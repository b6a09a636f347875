//! Reads Parquet files.
//!
//! The `parquet` crate walks the footer's schema by recursion, and trusts the footer's number of
//! rows. So the footer is checked first, and the rows are counted. The crate also unpacks and
//! repeats values without a limit. So pages are [counted](super::room), and a batch gets fewer rows
//! if it would take too much memory.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::iter;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::compute::can_cast_types;
use arrow::datatypes::{Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::column::page::Page;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};

use super::coarse;
use super::footer;
use super::pages::Group;
use super::reader::{DEFAULT_BATCH_ROWS, DEFAULT_MESSAGE_LIMIT, Metadata, Reader, Reading};
use super::room::Room;
use crate::rebuild::rebuilt;

/// The last bytes of a file, and of a file with an encrypted footer.
const MAGIC: &[u8] = b"PAR1";
const ENCRYPTED: &[u8] = b"PARE";
/// The bytes after the footer: its length, and the magic bytes.
const TAIL: u64 = 8;

/// Reads the row groups in order.
pub struct ParquetReader {
    file: Arc<File>,
    metadata: ArrowReaderMetadata,
    levels: FieldLevels,
    schema: SchemaRef,
    room: Arc<Room>,
    /// Rows of a batch. They become fewer if they take too much memory.
    batch_rows: usize,
    /// The row group being read, the number of rows given, and the number of rows left.
    group: usize,
    given: u64,
    left: u64,
    current: Option<ParquetRecordBatchReader>,
    /// Rows to skip, because they were given before the row group was read again.
    to_skip: u64,
}

/// The number of rows in the footer of a file of `len` bytes.
pub fn rows(file: &mut File, len: u64) -> Result<u64> {
    let (footer, _) = read_footer(file, len)?;
    footer::check(&footer).context("footer")?;
    let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
    check_rows(&metadata).context("footer")?;
    Ok(u64::try_from(metadata.file_metadata().num_rows())?)
}

impl ParquetReader {
    /// Reads the footer of a file of `len` bytes.
    pub fn open(mut file: File, len: u64, reading: Reading) -> Result<Reader> {
        let (footer, start) = read_footer(&mut file, len)?;
        let wide = footer::check(&footer).context("footer")?;
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
        check_rows(&metadata).context("footer")?;
        check_places(&metadata, start).context("footer")?;
        let mut metadata = for_arrow(metadata)?;
        let mut given = metadata.schema().fields().to_vec();
        let narrow = Arc::clone(metadata.schema());
        let changed = coarse::restored(
            metadata.parquet_schema(),
            key_values(&metadata),
            narrow.fields(),
        )?;
        if let Some(wide) = wide {
            let wide = for_arrow(ParquetMetaDataReader::decode_metadata(&wide)?)?;
            let fields = wide.schema().fields().iter().zip(narrow.fields());
            let mut types = fields.map(|(wide, field)| (wide.data_type(), field.data_type()));
            if types.all(|(wide, narrow)| wide == narrow || can_cast_types(wide, narrow)) {
                metadata = wide;
            }
        }
        let columns = metadata.parquet_schema();
        let mut read = metadata.schema().fields().to_vec();
        if !changed.is_empty() {
            let stored = coarse::read_as_stored(columns, key_values(&metadata))?;
            for (index, ty) in &changed {
                read[*index] = Arc::clone(&stored.fields()[*index]);
                given[*index] = Arc::new(given[*index].as_ref().clone().with_data_type(ty.clone()));
            }
        }
        let schema = Arc::new(Schema::new(given));
        let fields = &Fields::from(read);
        let levels = parquet_to_arrow_field_levels(columns, ProjectionMask::all(), Some(fields))?;
        let limit = reading.message_limit.unwrap_or(DEFAULT_MESSAGE_LIMIT);
        let room = Arc::new(Room::new(limit, columns.columns(), fields));
        let mut reader = Self {
            schema,
            file: Arc::new(file),
            metadata,
            levels,
            batch_rows: room.rows(reading.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS)),
            room,
            group: 0,
            given: 0,
            left: 0,
            current: None,
            to_skip: 0,
        };
        reader.begin(0)?;
        let schema = SchemaRef::clone(&reader.schema);
        let batches = iter::from_fn(move || reader.advance().transpose());
        let batches = batches.map(|batch| match batch {
            Ok(batch) => Ok((batch, Metadata::new())),
            Err(error) => Err(ArrowError::ExternalError(error.into())),
        });
        Ok(Reader::new(schema, batches))
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    /// Begins row group `group`, if there is one.
    fn begin(&mut self, group: usize) -> Result<()> {
        self.group = group;
        let Some(rows) = self.groups().get(group).map(RowGroupMetaData::num_rows) else {
            self.current = None;
            return Ok(());
        };
        self.given = 0;
        self.left = u64::try_from(rows)?;
        if rows == 0 {
            self.ensure_empty()?;
        }
        self.read()
    }

    /// The row group being read.
    fn current_group(&self) -> Group {
        self.room.begin_group();
        Group {
            file: Arc::clone(&self.file),
            metadata: Arc::clone(self.metadata.metadata()),
            index: self.group,
            room: Arc::clone(&self.room),
        }
    }

    /// Reads the row group from its start, and skips the rows that were given.
    fn read(&mut self) -> Result<()> {
        let rows = usize::try_from(self.given.saturating_add(self.left)).unwrap_or(usize::MAX);
        self.to_skip = self.given;
        self.current = Some(ParquetRecordBatchReader::try_new_with_row_groups(
            &self.levels,
            &self.current_group(),
            // Limited to the rows that exist, so that no memory is reserved for others.
            self.batch_rows.min(rows),
            None,
        )?);
        Ok(())
    }

    /// The crate reads no page of a row group without rows, so such pages are checked here.
    fn ensure_empty(&self) -> Result<()> {
        let group = self.current_group();
        for (index, column) in self.groups()[self.group].columns().iter().enumerate() {
            for page in group.pages(index)? {
                let page = page?;
                if !matches!(page, Page::DictionaryPage { .. }) && page.num_values() > 0 {
                    bail!(
                        "column {} has values in row group {}, which has no rows by the footer",
                        column.column_path(),
                        self.group
                    );
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(current) = &mut self.current {
            self.room.begin_batch(self.batch_rows);
            let next = current.next().transpose();
            if let Some(bytes) = self.room.past() {
                self.take_fewer_rows(bytes)?;
                continue;
            }
            let Some(mut batch) = next? else {
                if self.left > 0 {
                    bail!(
                        "row group {} ends {} rows before the {} that the footer says",
                        self.group,
                        self.left,
                        self.groups()[self.group].num_rows()
                    );
                }
                self.begin(self.group + 1)?;
                continue;
            };
            if self.to_skip > 0 {
                let known = usize::try_from(self.to_skip)
                    .map_or(batch.num_rows(), |to_skip| to_skip.min(batch.num_rows()));
                self.to_skip -= known as u64;
                batch = batch.slice(known, batch.num_rows() - known);
                if batch.num_rows() == 0 {
                    continue;
                }
            }
            let rows = batch.num_rows() as u64;
            let Some(left) = self.left.checked_sub(rows) else {
                bail!(
                    "row group {} has more rows than the {} that the footer says",
                    self.group,
                    self.groups()[self.group].num_rows()
                );
            };
            self.left = left;
            self.given += rows;
            return self.narrow(batch).map(Some);
        }
        Ok(None)
    }

    /// Reduces the rows of a batch, after a batch would have taken `bytes`.
    fn take_fewer_rows(&mut self, bytes: u64) -> Result<()> {
        if self.batch_rows == 1 {
            bail!(
                "a row near row {} of row group {} takes {bytes} bytes or more when it \
                 is unpacked, past the limit of {} bytes for a message: raise --max-message if \
                 the file is trusted, or write it with shorter values, lists and pages",
                self.given,
                self.group,
                self.room.limit()
            );
        }
        self.batch_rows /= 2;
        self.read()
    }
}

impl ParquetReader {
    /// Converts integers that were read with 32 bits, and times that were read in milliseconds, to
    /// the schema's types.
    fn narrow(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if batch.schema_ref() == &self.schema {
            return Ok(batch);
        }
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns
            .map(|(column, field)| {
                coarse::exactly(column, field.data_type()).map_err(|error| {
                    anyhow!(
                        "column {:?} has a value that its type cannot have: {error}",
                        field.name()
                    )
                })
            })
            .collect::<Result<_>>()?;
        Ok(rebuilt(SchemaRef::clone(&self.schema), columns, &batch)?)
    }
}

/// The metadata of the file itself.
fn key_values(metadata: &ArrowReaderMetadata) -> Option<&Vec<KeyValue>> {
    metadata.metadata().file_metadata().key_value_metadata()
}

fn for_arrow(metadata: ParquetMetaData) -> Result<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::default();
    Ok(ArrowReaderMetadata::try_new(Arc::new(metadata), options)?)
}

/// The footer, and its offset.
fn read_footer(file: &mut File, len: u64) -> Result<(Vec<u8>, u64)> {
    let mut tail = [0; 8];
    if len < TAIL + 4 {
        bail!("it is cut off: a Parquet file has more than {len} bytes");
    }
    file.seek(SeekFrom::Start(len - TAIL))?;
    file.read_exact(&mut tail)?;
    let (length, magic) = tail.split_at(4);
    if magic == ENCRYPTED {
        bail!("its footer is encrypted; decrypt the file first");
    }
    if magic != MAGIC {
        bail!("it is cut off or was not finished: it does not end with a footer and \"PAR1\"");
    }
    let length = length.try_into().map_or(0, u32::from_le_bytes);
    let start = (len - TAIL).checked_sub(length.into());
    let Some(start) = start.filter(|start| *start >= 4) else {
        bail!("it cannot have a footer of {length} bytes");
    };
    // Checked against the file's size before the allocation.
    let mut footer = vec![0; usize::try_from(length)?];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut footer)?;
    Ok((footer, start))
}

/// Checks that the file has the rows of its row groups, and each column a value for each row.
fn check_rows(metadata: &ParquetMetaData) -> Result<()> {
    let mut total = 0_i64;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        total = match total.checked_add(rows) {
            Some(total) if rows >= 0 => total,
            _ => bail!("row group {index} cannot have {rows} rows"),
        };
        for column in group.columns() {
            let values = column.num_values();
            let repeats = column.column_descr().max_rep_level() > 0;
            if values < rows || (values > rows && (rows == 0 || !repeats)) {
                bail!(
                    "column {} has {values} values in row group {index}, which has {rows} rows",
                    column.column_path()
                );
            }
        }
    }
    let said = metadata.file_metadata().num_rows();
    if said != total {
        bail!("the file has {said} rows, and its row groups have {total} together");
    }
    Ok(())
}

/// Checks that the columns lie before the footer and do not overlap.
fn check_places(metadata: &ParquetMetaData, footer: u64) -> Result<()> {
    let mut places = Vec::new();
    for column in metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns())
    {
        let (start, len) = column.byte_range();
        let end = start.checked_add(len);
        let Some(end) = end.filter(|end| start >= 4 && *end <= footer) else {
            bail!(
                "column {} lies at offset {start} with {len} bytes, outside the {footer} bytes \
                 before the footer",
                column.column_path()
            );
        };
        if len > 0 {
            places.push((start, end, column));
        }
    }
    places.sort_unstable_by_key(|(start, end, _)| (*start, *end));
    for pair in places.windows(2) {
        if let [(_, end, one), (start, _, other)] = pair
            && start < end
        {
            bail!(
                "column {} and column {} lie one over the other at offset {start}",
                one.column_path(),
                other.column_path()
            );
        }
    }
    Ok(())
}
