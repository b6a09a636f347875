//! Arrays into an image. Slices are cut: a guest gets the rows of a slice alone.

use std::borrow::Cow;
use std::fmt::Display;

use arrow::array::{ArrayData, RecordBatch};

use super::ALIGNMENT;
use super::image::{Array, Image, Piece, Place};
use super::kind::Kind;
use crate::{Error, Result};

/// Bytes of a view.
const VIEW: usize = 16;
/// Most rows of an array where the batch has not even a bit for each. A message of a few bytes may
/// claim any number of them, and a function goes through all.
const MOST_FREE_ROWS: usize = 64 << 20;

/// The columns of a batch as [`batch`] wants them.
pub(crate) fn columns(batch: &RecordBatch) -> Vec<ArrayData> {
    use arrow::array::Array;
    batch
        .columns()
        .iter()
        .map(|column| column.to_data())
        .collect()
}

/// Puts a batch into an image, as a struct array at place 0 of an image that was empty.
pub(crate) fn batch<'a>(
    image: &mut Image<'a>,
    rows: usize,
    columns: &'a [ArrayData],
) -> Result<Place> {
    let place = image.reserve(super::ARRAY_BYTES).ok_or_else(too_large)?;
    let mut children = Vec::with_capacity(columns.len());
    for column in columns {
        children.push(Some(array(image, column, 0, column.len())?));
    }
    let buffers = Some(add(image, Piece::Pointers(vec![None]))?);
    let array = Array {
        length: rows,
        n_buffers: 1,
        n_children: children.len(),
        buffers,
        children: Some(add(image, Piece::Pointers(children))?),
        ..Array::default()
    };
    image.put(place, Piece::Array(array));
    ensure_bounded(image)?;
    Ok(place)
}

/// Bounds what a function may be given by what the batch takes in memory, and by what a module can
/// count.
fn ensure_bounded(image: &Image<'_>) -> Result<()> {
    let (rows, bits) = (image.rows(), u64::from(image.length()) * 8);
    if rows > MOST_FREE_ROWS && rows as u64 > bits {
        return Err(Error::Input(format!(
            "an array of a batch has {rows} rows that take no memory (nulls, runs, values without \
             bytes), more than the {MOST_FREE_ROWS} that functions go through"
        )));
    }
    // A module would see the number without its high bits.
    match u32::try_from(image.end()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Input(format!(
            "an array of a batch refers to row {}, and modules count with 32 bits",
            image.end()
        ))),
    }
}

/// Puts the `length` rows from `start` on of an array into an image.
fn array<'a>(
    image: &mut Image<'a>,
    data: &'a ArrayData,
    start: usize,
    length: usize,
) -> Result<Place> {
    let kind = Kind::of(data.data_type())
        .ok_or_else(|| Error::Input(format!("a column of {}", data.data_type())))?;
    if start.checked_add(length).is_none_or(|end| end > data.len()) {
        return Err(wrong(format!(
            "{length} rows from {start} on, of {}",
            data.len()
        )));
    }
    let mut writer = Writer {
        data,
        start,
        begin: data.offset() + start,
        length,
        buffers: Vec::new(),
        array: Array {
            length,
            ..Array::default()
        },
    };
    writer.validity(image, kind)?;
    writer.values(image, kind)?;
    let Writer {
        buffers, mut array, ..
    } = writer;
    array.n_buffers = buffers.len();
    if !buffers.is_empty() {
        array.buffers = Some(add(image, Piece::Pointers(buffers))?);
    }
    add(image, Piece::Array(array))
}

/// One array on its way into an image.
struct Writer<'a> {
    data: &'a ArrayData,
    /// The first row, counted from the array's own offset.
    start: usize,
    /// The first row, counted from the buffers' begin.
    begin: usize,
    length: usize,
    buffers: Vec<Option<Place>>,
    array: Array,
}

impl<'a> Writer<'a> {
    fn validity(&mut self, image: &mut Image<'a>, kind: Kind) -> Result<()> {
        if kind == Kind::Null {
            self.array.null_count = self.length;
        }
        if !kind.has_validity() {
            return Ok(());
        }
        let nulls = match self.data.nulls() {
            Some(nulls) if (self.start, self.length) == (0, nulls.len()) => Some(nulls.clone()),
            Some(nulls) => Some(nulls.slice(self.start, self.length)),
            None => None,
        };
        let place = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => None,
            Some(nulls) => {
                self.array.null_count = nulls.null_count();
                let whole = self.data.nulls().map_or(&[][..], |nulls| nulls.validity());
                Some(add(
                    image,
                    Piece::Bits {
                        bytes: whole,
                        offset: nulls.offset(),
                        length: nulls.len(),
                    },
                )?)
            }
        };
        self.buffers.push(place);
        Ok(())
    }

    fn values(&mut self, image: &mut Image<'a>, kind: Kind) -> Result<()> {
        match kind {
            Kind::Null => {}
            Kind::Bits => {
                let bytes = self.data.buffers()[0].as_slice();
                let piece = Piece::Bits {
                    bytes,
                    offset: self.begin,
                    length: self.length,
                };
                self.buffer(image, piece)?;
            }
            Kind::Fixed { width, dictionary } => {
                self.fixed(image, 0, width)?;
                if dictionary {
                    let values = &self.data.child_data()[0];
                    self.array.dictionary = Some(array(image, values, 0, values.len())?);
                }
            }
            Kind::Variable { width } => {
                let (first, length) = self.offsets(image, width)?;
                let bytes = self.data.buffers()[1].get(first..first + length);
                let bytes = bytes.ok_or_else(|| wrong("offsets behind the values"))?;
                self.buffer(image, Piece::Bytes(bytes))?;
            }
            Kind::View => self.views(image)?,
            Kind::List { width } => {
                let (first, length) = self.offsets(image, width)?;
                self.children(image, first, Some(length))?;
            }
            Kind::ListView { width } => {
                self.fixed(image, 0, width)?;
                self.fixed(image, 1, width)?;
                self.children(image, 0, None)?;
            }
            Kind::FixedList { size } => {
                self.children(image, self.begin * size, Some(self.length * size))?;
            }
            Kind::Struct => self.children(image, self.begin, Some(self.length))?,
            Kind::Union { dense } => {
                self.fixed(image, 0, 1)?;
                if dense {
                    self.fixed(image, 1, 4)?;
                    self.children(image, 0, None)?;
                } else {
                    self.children(image, self.begin, Some(self.length))?;
                }
            }
            // The ends count from the first row of the whole.
            Kind::Runs => {
                self.array.offset = self.begin;
                self.children(image, 0, None)?;
            }
        }
        Ok(())
    }

    fn buffer(&mut self, image: &mut Image<'a>, piece: Piece<'a>) -> Result<()> {
        self.buffers.push(Some(add(image, piece)?));
        Ok(())
    }

    fn fixed(&mut self, image: &mut Image<'a>, index: usize, width: usize) -> Result<()> {
        let (from, length) = (self.begin * width, self.length * width);
        let bytes = &self.data.buffers()[index][from..from + length];
        self.buffer(image, Piece::Bytes(bytes))
    }

    /// Writes offsets that begin with 0, and returns where the values begin and how many they are.
    fn offsets(&mut self, image: &mut Image<'a>, width: usize) -> Result<(usize, usize)> {
        let buffer = self.data.buffers()[0].as_slice();
        // An empty array may lack its only offset.
        if buffer.is_empty() {
            self.buffer(image, Piece::Owned(vec![0; width]))?;
            return Ok((0, 0));
        }
        let bytes = &buffer[self.begin * width..(self.begin + self.length + 1) * width];
        let first = offset_at(bytes, 0, width);
        let last = offset_at(bytes, self.length, width);
        let values = last.checked_sub(first);
        let values = values.ok_or_else(|| wrong("offsets that decrease"))?;
        let piece = match first {
            0 => Piece::Bytes(bytes),
            base => Piece::Offsets {
                bytes,
                width,
                base: base as u64,
            },
        };
        self.buffer(image, piece)?;
        Ok((first, values))
    }

    fn views(&mut self, image: &mut Image<'a>) -> Result<()> {
        let buffers = self.data.buffers();
        let views = &buffers[0][self.begin * VIEW..(self.begin + self.length) * VIEW];
        let views = self.without_undefined(views);
        let needed: usize = views.chunks_exact(VIEW).map(far_length).sum();
        let held: usize = buffers[1..].iter().map(|buffer| buffer.len()).sum();
        // Few rows of a large table often share its whole buffers.
        if needed < held / 2 && i32::try_from(needed).is_ok() {
            let (views, bytes) = self.gather(&views)?;
            let size = (bytes.len() as u64).to_le_bytes().to_vec();
            self.buffer(image, Piece::Owned(views))?;
            self.buffer(image, Piece::Owned(bytes))?;
            return self.buffer(image, Piece::Owned(size));
        }
        let views = match views {
            Cow::Borrowed(views) => Piece::Bytes(views),
            Cow::Owned(views) => Piece::Owned(views),
        };
        self.buffer(image, views)?;
        let mut sizes = Vec::new();
        for buffer in &buffers[1..] {
            sizes.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
            self.buffer(image, Piece::Bytes(buffer))?;
        }
        self.buffer(image, Piece::Owned(sizes))
    }

    /// The views with zeros in null rows, whose views Arrow leaves undefined.
    fn without_undefined(&self, views: &'a [u8]) -> Cow<'a, [u8]> {
        let nulls = self.data.nulls().filter(|nulls| nulls.null_count() > 0);
        let Some(nulls) = nulls.map(|nulls| nulls.slice(self.start, self.length)) else {
            return Cow::Borrowed(views);
        };
        let rows = || views.chunks_exact(VIEW).enumerate();
        if !rows().any(|(row, view)| nulls.is_null(row) && view != [0; VIEW]) {
            return Cow::Borrowed(views);
        }
        let mut sound = views.to_vec();
        for (row, view) in sound.chunks_exact_mut(VIEW).enumerate() {
            if nulls.is_null(row) {
                view.fill(0);
            }
        }
        Cow::Owned(sound)
    }

    /// Copies what views point to into one buffer, and the views, which then point there.
    fn gather(&self, views: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut moved, mut bytes) = (views.to_vec(), Vec::new());
        for view in moved.chunks_exact_mut(VIEW) {
            let length = far_length(view);
            if length == 0 {
                continue;
            }
            let (buffer, from) = (word(view, 8), word(view, 12));
            let place = bytes.len();
            let value = (self.data.buffers().get(1 + buffer))
                .and_then(|buffer| buffer.get(from..from + length));
            bytes.extend_from_slice(value.ok_or_else(|| wrong("a view behind its buffer"))?);
            view[8..12].fill(0);
            view[12..].copy_from_slice(&u32::try_from(place).unwrap_or(u32::MAX).to_le_bytes());
        }
        Ok((moved, bytes))
    }

    /// Writes the rows of all children from `start` on; all of them without a length.
    fn children(
        &mut self,
        image: &mut Image<'a>,
        start: usize,
        length: Option<usize>,
    ) -> Result<()> {
        let mut places = Vec::new();
        for child in self.data.child_data() {
            places.push(Some(array(
                image,
                child,
                start,
                length.unwrap_or(child.len()),
            )?));
        }
        self.array.n_children = places.len();
        if !places.is_empty() {
            self.array.children = Some(add(image, Piece::Pointers(places))?);
        }
        Ok(())
    }
}

/// Bytes of a view that lie in another buffer.
fn far_length(view: &[u8]) -> usize {
    match word(view, 0) {
        0..=12 => 0,
        length => length,
    }
}

fn word(view: &[u8], at: usize) -> usize {
    super::read::u32_at(view, at) as usize
}

/// The offset at an index. Arrays of the host have offsets that fit.
fn offset_at(bytes: &[u8], index: usize, width: usize) -> usize {
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[index * width..(index + 1) * width]);
    usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX)
}

fn add<'a>(image: &mut Image<'a>, piece: Piece<'a>) -> Result<Place> {
    image.add(piece).ok_or_else(too_large)
}

fn wrong(text: impl Display) -> Error {
    Error::Batch(text.to_string())
}

fn too_large() -> Error {
    let most = u64::from(u32::MAX) + 1 - u64::from(ALIGNMENT);
    Error::Input(format!("more than {most} bytes for one call"))
}
