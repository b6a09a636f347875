//! The unpacked size of the texts of a Parquet page: indices repeat the texts of a dictionary, and
//! a delta-encoded text may repeat the beginning of the previous text.
//!
//! Damaged data counts with its largest possible size; the `parquet` crate reports the damage.

use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::ParquetError;

/// The lengths of a dictionary's texts.
#[derive(Debug, Default)]
pub struct Lengths {
    all: Vec<u32>,
    longest: u64,
}

impl Lengths {
    /// Reads the lengths of a dictionary page.
    pub fn of(page: &[u8], count: usize) -> Self {
        let mut all = Vec::with_capacity(count.min(page.len() / 4));
        let mut rest = page;
        while all.len() < count
            && let Some((length, behind)) = rest.split_first_chunk()
        {
            let length = u32::from_le_bytes(*length);
            let Some(behind) = behind.get(length as usize..) else {
                break;
            };
            all.push(length);
            rest = behind;
        }
        let longest = all.iter().copied().max().unwrap_or(0).into();
        Self { all, longest }
    }

    /// An upper bound on the bytes of text that a page of dictionary indices adds to a batch. The
    /// page has at most `values` indices, and at most `most` of them go into one batch.
    pub fn repeated(&self, data: &[u8], values: usize, most: usize) -> u64 {
        // A page below this size needs no count; nearly all pages are.
        const SMALL: u64 = 1 << 20;
        let bound = (values.min(most) as u64).saturating_mul(self.longest);
        if bound <= SMALL {
            return bound;
        }
        self.sum(data, values).map_or(bound, |sum| sum.min(bound))
    }

    fn sum(&self, data: &[u8], values: usize) -> Option<u64> {
        let (width, mut rest) = data.split_first()?;
        let width = u32::from(*width);
        if width > 32 {
            return None;
        }
        let length = |index: u64| {
            let index = usize::try_from(index).ok()?;
            self.all.get(index).copied().map(u64::from)
        };
        let (mut sum, mut left) = (0_u64, values as u64);
        while left > 0 {
            let Some(run) = varint(&mut rest).filter(|run| *run > 0) else {
                break;
            };
            let packed = run & 1 == 1;
            // Groups of eight values, or a repeated value.
            let count = (run >> 1)
                .saturating_mul(if packed { 8 } else { 1 })
                .min(left);
            left -= count;
            if !packed || width == 0 {
                let bytes = take(&mut rest, width.div_ceil(8) as usize)?;
                let mut index = [0; 8];
                index[..bytes.len()].copy_from_slice(bytes);
                let each = length(u64::from_le_bytes(index))?;
                sum = sum.saturating_add(each.saturating_mul(count));
                continue;
            }
            let len = usize::try_from((run >> 1).saturating_mul(width.into())).ok()?;
            let len = len.min(rest.len());
            let mut bits = Bits::new(take(&mut rest, len)?);
            for _ in 0..count {
                let Some(index) = bits.next(width) else {
                    break;
                };
                sum = sum.saturating_add(length(index)?);
            }
        }
        Some(sum)
    }
}

/// The encoding of a data page, and its bytes after the levels.
///
/// # Errors
///
/// Levels that do not end within the page.
pub fn values(
    page: &Page,
    (max_rep, max_def): (i16, i16),
) -> Result<(Encoding, &[u8]), ParquetError> {
    let behind = match page {
        Page::DataPageV2 {
            buf,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
            let levels = usize::try_from(levels).unwrap_or(usize::MAX);
            buf.get(levels..).map(|data| (*encoding, data))
        }
        Page::DataPage {
            buf,
            encoding,
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let rep = skip_levels(buf, max_rep, *rep_level_encoding, *num_values);
            let def =
                rep.and_then(|rest| skip_levels(rest, max_def, *def_level_encoding, *num_values));
            def.map(|data| (*encoding, data))
        }
        Page::DictionaryPage { buf, encoding, .. } => Some((*encoding, buf.as_ref())),
    };
    behind.ok_or_else(|| ParquetError::General("levels do not end within the page".to_owned()))
}

/// Checks that no time of a page of INT96 is too far for a 64-bit number of nanoseconds, which the
/// crate makes of it unchecked.
///
/// # Errors
///
/// Such a time; levels that do not end within the page.
pub fn ensure_near(page: &Page, levels: (i16, i16)) -> Result<(), ParquetError> {
    /// Nanoseconds of a day, and the Julian day of 1970-01-01.
    const DAY: i128 = 86_400_000_000_000;
    const EPOCH: i128 = 2_440_588;
    let (encoding, data) = values(page, levels)?;
    let is_dictionary = matches!(page, Page::DictionaryPage { .. });
    if !is_dictionary && encoding != Encoding::PLAIN {
        return Ok(());
    }
    for value in data.chunks_exact(12) {
        let (time, day) = value.split_at(8);
        let time = time.try_into().map_or(0, u64::from_le_bytes);
        let day = day.try_into().map_or(0, u32::from_le_bytes);
        let nanoseconds = (i128::from(day) - EPOCH) * DAY + i128::from(time);
        if i64::try_from(nanoseconds).is_err() {
            return Err(ParquetError::General(
                "a column of INT96 has a time outside the years 1678 to 2262, which nanoseconds \
                 do not reach: write the file with times of INT64 in microseconds (Spark: \
                 spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}

fn skip_levels(bytes: &[u8], max: i16, encoding: Encoding, values: u32) -> Option<&[u8]> {
    if max == 0 {
        return Some(bytes);
    }
    if encoding == Encoding::RLE {
        let (length, rest) = bytes.split_first_chunk()?;
        return rest.get(u32::from_le_bytes(*length) as usize..);
    }
    // Bit by bit.
    let width = u64::from(i16::BITS - max.leading_zeros());
    let len = u64::from(values).saturating_mul(width).div_ceil(8);
    bytes.get(usize::try_from(len).ok()?..)
}

/// The number of lengths in a page of delta-encoded texts, prefixes and suffixes together.
pub fn delta_counts(data: &[u8], encoding: Encoding) -> u64 {
    let count = |mut data: &[u8]| Delta::read(&mut data).map_or(0, |delta| delta.count);
    let first = count(data);
    match encoding {
        // The suffixes follow the prefixes, in the same number.
        Encoding::DELTA_BYTE_ARRAY => first.saturating_mul(2),
        _ => first,
    }
}

/// Bytes of at most `most` texts of a page, each of which may share a prefix with the previous
/// text.
///
/// # Errors
///
/// Lengths that cannot be read.
pub fn delta_bytes(data: &[u8], most: usize) -> Result<u64, ParquetError> {
    let sum = || {
        let mut rest = data;
        let delta = Delta::read(&mut rest)?;
        let prefixes = delta.lengths(&mut rest)?;
        let suffixes = Delta::read(&mut rest).filter(|suffixes| suffixes.count == delta.count)?;
        let suffixes = suffixes.lengths(&mut rest)?;
        let (mut sum, mut longest, mut length) = (0_u64, 0_u64, 0_u64);
        for (prefix, suffix) in prefixes.iter().zip(&suffixes) {
            length = length
                .min((*prefix).into())
                .saturating_add((*suffix).into());
            longest = longest.max(length);
            sum = sum.saturating_add(length);
        }
        Some(sum.min((most as u64).saturating_mul(longest)))
    };
    sum().ok_or_else(|| {
        ParquetError::General("the lengths of texts in a page are damaged".to_owned())
    })
}

/// The header of delta-encoded integers.
struct Delta {
    /// Values of a block, and miniblocks within it.
    block: u64,
    parts: usize,
    count: u64,
    first: i64,
}

impl Delta {
    fn read(rest: &mut &[u8]) -> Option<Self> {
        Some(Self {
            block: varint(rest)?,
            parts: usize::try_from(varint(rest)?).ok().filter(|n| *n > 0)?,
            count: varint(rest)?,
            first: zigzag(rest)?,
        })
    }

    /// Reads all values; a negative value is an error.
    fn lengths(&self, rest: &mut &[u8]) -> Option<Vec<u32>> {
        let count = usize::try_from(self.count).ok()?;
        let part = usize::try_from(self.block / self.parts as u64).ok()?;
        if part == 0 || !part.is_multiple_of(32) {
            return None;
        }
        let mut lengths = Vec::with_capacity(count);
        let mut last = i32::try_from(self.first).ok()?;
        if count > 0 {
            lengths.push(u32::try_from(last).ok()?);
        }
        while lengths.len() < count {
            let least = i32::try_from(zigzag(rest)?).ok()?;
            for width in take(rest, self.parts)? {
                // The widths of miniblocks after the last value are ignored.
                if lengths.len() == count {
                    break;
                }
                let width = u32::from(*width);
                if width > 32 {
                    return None;
                }
                let len = (part / 8).checked_mul(width as usize)?.min(rest.len());
                let mut bits = Bits::new(take(rest, len)?);
                for _ in 0..part.min(count - lengths.len()) {
                    let more = u32::try_from(bits.next(width)?).ok()?;
                    last = last.wrapping_add(least).wrapping_add(more.cast_signed());
                    lengths.push(u32::try_from(last).ok()?);
                }
            }
        }
        Some(lengths)
    }
}

/// Numbers of a few bits each, the lowest first.
struct Bits<'a> {
    rest: &'a [u8],
    held: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self {
            rest,
            held: 0,
            count: 0,
        }
    }

    /// The next number, of at most 32 bits.
    fn next(&mut self, width: u32) -> Option<u64> {
        while self.count < width {
            let (byte, rest) = self.rest.split_first()?;
            self.held |= u64::from(*byte) << self.count;
            self.count += 8;
            self.rest = rest;
        }
        let number = self.held & ((1 << width) - 1);
        self.held >>= width;
        self.count -= width;
        Some(number)
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn zigzag(rest: &mut &[u8]) -> Option<i64> {
    let value = varint(rest)?;
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}
