//! The pages of a Parquet row group. Each header is checked before the `parquet` crate unpacks the
//! page: the unpacked size comes from the header, or from the bytes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::room::Room;
use super::thrift::{Kind, Thrift};

/// Bytes read for a header at first.
const HEADER: u64 = 256;
const MAX_HEADER: u64 = 16 << 20;
/// Most unpacked bytes of one byte of gzip.
const GZIP_RATIO: u64 = 1032;
const LZ4_RATIO: u64 = 255;

/// One row group. The room counts its pages.
pub struct Group {
    pub file: Arc<File>,
    pub metadata: Arc<ParquetMetaData>,
    pub index: usize,
    pub room: Arc<Room>,
}

impl Group {
    /// The pages of a column.
    ///
    /// # Errors
    ///
    /// The crate's error for a column whose pages it cannot read.
    pub fn pages(&self, column: usize) -> Result<Pages, ParquetError> {
        let chunk = self.metadata.row_group(self.index).column(column);
        let (start, len) = chunk.byte_range();
        let rows = usize::try_from(self.metadata.row_group(self.index).num_rows())?;
        Ok(Pages {
            inner: SerializedPageReader::new(Arc::clone(&self.file), chunk, rows, None)?,
            file: Arc::clone(&self.file),
            at: start,
            end: start.saturating_add(len),
            compression: chunk.compression(),
            column,
            name: chunk.column_path().string(),
            room: Arc::clone(&self.room),
        })
    }
}

impl RowGroups for Group {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.index).num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let pages: Box<dyn PageReader> = Box::new(self.pages(column)?);
        Ok(Box::new(Chunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.index)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The one column chunk of a row group.
struct Chunk(Option<Box<dyn PageReader>>);

impl Iterator for Chunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for Chunk {}

/// The pages of a column chunk.
pub struct Pages {
    inner: SerializedPageReader<File>,
    file: Arc<File>,
    /// The offsets of the next header and of the chunk's end.
    at: u64,
    end: u64,
    compression: Compression,
    column: usize,
    /// The path of the column, for errors.
    name: String,
    room: Arc<Room>,
}

impl Pages {
    /// Reads headers up to the next page with values or a dictionary, and moves past that page.
    fn next_header(&mut self) -> Result<Option<PageHeader>> {
        while self.at < self.end {
            let (header, len) = self.header().with_context(|| {
                format!("the header of the page at offset {} is damaged", self.at)
            })?;
            let start = self.at + len;
            self.at = start + header.packed;
            if header.kind != PageKind::Index {
                self.room
                    .add_page(
                        self.column,
                        header.kind == PageKind::Dictionary,
                        header.packed,
                        header.unpacked,
                    )
                    .map_err(anyhow::Error::from)?;
                self.ensure_as_said(&header, start)?;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// Reads the header at the current offset. Gives its length too.
    fn header(&self) -> Result<(PageHeader, u64)> {
        let rest = self.end - self.at;
        let mut size = HEADER.min(rest);
        loop {
            let mut bytes = vec![0; usize::try_from(size)?];
            self.file.read_exact_at(&mut bytes, self.at)?;
            let mut thrift = Thrift::new(&bytes);
            if let Some(header) = PageHeader::read(&mut thrift) {
                let len = size - thrift.len() as u64;
                anyhow::ensure!(
                    header.packed <= rest - len,
                    "it has {} bytes, and {} are left of the column",
                    header.packed,
                    rest - len
                );
                return Ok((header, len));
            }
            // A header can be long because of its statistics.
            let more = (size * 8).min(rest).min(MAX_HEADER);
            anyhow::ensure!(more > size, "it is cut off or is none");
            size = more;
        }
    }

    /// The crate unpacks some codecs up to their end and ignores the header's size, so the true
    /// size is counted.
    fn ensure_as_said(&self, header: &PageHeader, start: u64) -> Result<()> {
        let ratio = match self.compression {
            Compression::GZIP(_) => GZIP_RATIO,
            Compression::LZ4 => LZ4_RATIO,
            _ => return Ok(()),
        };
        let most = header.packed.saturating_mul(ratio);
        if most <= self.room.limit().max(header.unpacked) {
            return Ok(());
        }
        let mut packed = vec![0; usize::try_from(header.packed)?];
        self.file.read_exact_at(&mut packed, start)?;
        let packed = packed.get(header.levels..).unwrap_or_default();
        let unpacked = match self.compression {
            Compression::GZIP(_) => count(MultiGzDecoder::new(packed), header.unpacked),
            _ => count(FrameDecoder::new(packed), header.unpacked),
        };
        anyhow::ensure!(
            unpacked <= header.unpacked,
            "a page unpacks to more than the {} bytes of its header",
            header.unpacked
        );
        Ok(())
    }

    fn next_page(&mut self) -> Result<Option<Page>> {
        let header = self.next_header()?;
        let page = self.inner.get_next_page()?;
        let (Some(header), Some(page)) = (&header, &page) else {
            anyhow::ensure!(
                header.is_none() && page.is_none(),
                "a column has bytes behind its last page"
            );
            return Ok(None);
        };
        let kind = match page {
            Page::DictionaryPage { .. } => PageKind::Dictionary,
            Page::DataPage { .. } | Page::DataPageV2 { .. } => PageKind::Data,
        };
        anyhow::ensure!(
            kind == header.kind && page.buffer().len() as u64 <= header.unpacked.max(header.packed),
            "the header of a page can be read in two ways"
        );
        let counted = self.room.add_values(self.column, page);
        counted.map_err(|error| anyhow!("column {}: {error}", self.name))?;
        Ok(Some(page.clone()))
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page()
            .map_err(|error| match error.downcast::<ParquetError>() {
                Ok(theirs) => theirs,
                Err(ours) => ParquetError::General(format!("{ours:#}")),
            })
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.get_next_page().map(drop)
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.inner.at_record_boundary()
    }
}

/// Bytes that can be read, if they are no more than `most`.
fn count(mut reader: impl Read, most: u64) -> u64 {
    let mut chunk = vec![0; 1 << 16];
    let mut total = 0;
    while total <= most
        // Damaged data ends here; the crate reports the damage.
        && let Ok(len @ 1..) = reader.read(&mut chunk)
    {
        total += len as u64;
    }
    total
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Data,
    Index,
    Dictionary,
}

/// The sizes in a page's header.
#[derive(Debug, Clone, Copy)]
struct PageHeader {
    kind: PageKind,
    packed: u64,
    unpacked: u64,
    /// Uncompressed bytes before the compressed part.
    levels: usize,
}

impl PageHeader {
    fn read(thrift: &mut Thrift<'_>) -> Option<Self> {
        let (mut ty, mut sizes, mut levels) = (None, [None; 2], [0; 2]);
        let mut last = 0;
        let whole = thrift.fields(|thrift, id, kind| {
            // A repeated field is ambiguous, so it is refused.
            if id <= last {
                return Ok::<_, ()>(None);
            }
            last = id;
            Ok(match (id, kind) {
                (1, Kind::Integer) => size(thrift).map(|number| ty = Some(number)),
                (2, Kind::Integer) => size(thrift).map(|number| sizes[0] = Some(number)),
                (3, Kind::Integer) => size(thrift).map(|number| sizes[1] = Some(number)),
                (1..=3, _) => None,
                (8, Kind::Struct) => v2_levels(thrift).map(|found| levels = found),
                _ => thrift.skip(kind),
            })
        });
        whole.ok()??;
        let [Some(unpacked), Some(packed)] = sizes else {
            return None;
        };
        Some(Self {
            kind: match ty? {
                0 | 3 => PageKind::Data,
                1 => PageKind::Index,
                2 => PageKind::Dictionary,
                _ => return None,
            },
            packed: packed.into(),
            unpacked: unpacked.into(),
            levels: usize::try_from(levels[0].checked_add(levels[1])?).ok()?,
        })
    }
}

/// The lengths of the levels of a data page of version 2.
fn v2_levels(thrift: &mut Thrift<'_>) -> Option<[u32; 2]> {
    let mut levels = [0; 2];
    let whole = thrift.fields(|thrift, id, kind| {
        Ok::<_, ()>(match (id, kind) {
            (5, Kind::Integer) => size(thrift).map(|number| levels[0] = number),
            (6, Kind::Integer) => size(thrift).map(|number| levels[1] = number),
            _ => thrift.skip(kind),
        })
    });
    whole.ok()??;
    Some(levels)
}

/// A number of 31 bits.
fn size(thrift: &mut Thrift<'_>) -> Option<u32> {
    let number = i32::try_from(thrift.integer()?).ok()?;
    u32::try_from(number).ok()
}
