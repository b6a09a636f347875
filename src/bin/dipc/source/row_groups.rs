//! Parquet files.
//!
//! The `parquet` crate follows the schema of the footer by recursion, and takes the footer's word
//! for how many rows there are; so the footer is looked at first, and the rows are counted.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions, RecordBatchReader};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::column::page::Page;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::footer;

/// The last bytes, and those of a file whose footer is encrypted.
const MAGIC: &[u8] = b"PAR1";
const ENCRYPTED: &[u8] = b"PARE";
/// Behind the footer: its length, and the magic bytes.
const TAIL: u64 = 8;

/// Reads row group after row group.
pub struct ParquetReader {
    file: File,
    metadata: ArrowReaderMetadata,
    schema: SchemaRef,
    batch_rows: usize,
    /// The row group being read, and how many of its rows are yet to come.
    group: usize,
    left: u64,
    current: Option<ParquetRecordBatchReader>,
}

impl ParquetReader {
    /// Reads the footer of a file of `len` bytes.
    pub fn open(mut file: File, len: u64, batch_rows: usize) -> Result<Self> {
        let (footer, start) = read_footer(&mut file, len)?;
        let wide = footer::check(&footer).context("footer")?;
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
        check_rows(&metadata).context("footer")?;
        check_places(&metadata, start).context("footer")?;
        let mut metadata = for_arrow(metadata)?;
        // The same as each row group's reader has.
        let schema = builder(&file, &metadata)?.build()?.schema();
        if let Some(wide) = wide {
            let wide = for_arrow(ParquetMetaDataReader::decode_metadata(&wide)?)?;
            let fields = wide.schema().fields().iter().zip(schema.fields());
            let mut types = fields.map(|(wide, field)| (wide.data_type(), field.data_type()));
            if types.all(|(wide, narrow)| wide == narrow || can_cast_types(wide, narrow)) {
                metadata = wide;
            }
        }
        let mut reader = Self {
            schema,
            file,
            metadata,
            batch_rows,
            group: 0,
            left: 0,
            current: None,
        };
        reader.begin(0)?;
        Ok(reader)
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }

    /// Begins with row group `group`, if there is one.
    fn begin(&mut self, group: usize) -> Result<()> {
        self.group = group;
        let Some(rows) = self.groups().get(group).map(RowGroupMetaData::num_rows) else {
            self.current = None;
            return Ok(());
        };
        self.left = u64::try_from(rows)?;
        if rows == 0 {
            self.ensure_empty()?;
        }
        self.current = Some(
            builder(&self.file, &self.metadata)?
                .with_row_groups(vec![group])
                .with_batch_size(self.batch_rows)
                .build()?,
        );
        Ok(())
    }

    /// The crate looks at no page of a row group that has no rows by the footer.
    fn ensure_empty(&self) -> Result<()> {
        let file = Arc::new(self.file.try_clone().context("cannot read the file")?);
        for column in self.groups()[self.group].columns() {
            let pages = SerializedPageReader::new(Arc::clone(&file), column, 0, None)?;
            for page in pages {
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
            let Some(batch) = current.next().transpose()? else {
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
            let Some(left) = self.left.checked_sub(batch.num_rows() as u64) else {
                bail!(
                    "row group {} has more rows than the {} that the footer says",
                    self.group,
                    self.groups()[self.group].num_rows()
                );
            };
            self.left = left;
            return self.narrow(batch).map(Some);
        }
        Ok(None)
    }
}

impl ParquetReader {
    /// Makes integers that were read with 32 bits those that the schema has.
    fn narrow(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if batch.schema_ref() == &self.schema {
            return Ok(batch);
        }
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns
            .map(|(column, field)| {
                if column.data_type() == field.data_type() {
                    return Ok(ArrayRef::clone(column));
                }
                cast_with_options(column, field.data_type(), &options).map_err(|error| {
                    anyhow!(
                        "column {:?} has a value that its type cannot have: {error}",
                        field.name()
                    )
                })
            })
            .collect::<Result<_>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = SchemaRef::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
    }
}

impl Iterator for ParquetReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance()
            .map_err(|error| ArrowError::ExternalError(error.into()))
            .transpose()
    }
}

impl RecordBatchReader for ParquetReader {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

fn for_arrow(metadata: ParquetMetaData) -> Result<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::default();
    Ok(ArrowReaderMetadata::try_new(Arc::new(metadata), options)?)
}

fn builder(
    file: &File,
    metadata: &ArrowReaderMetadata,
) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let file = file.try_clone().context("cannot read the file")?;
    Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(
        file,
        metadata.clone(),
    ))
}

/// The footer, and where it begins.
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
    // Checked against the file, so that no claim is allocated.
    let mut footer = vec![0; usize::try_from(length)?];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut footer)?;
    Ok((footer, start))
}

/// The rows of the file are those of its row groups, and each column has a value for each.
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

/// The columns lie before the footer, none of them over another.
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
