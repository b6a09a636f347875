use std::io::ErrorKind;
use std::ops::Range;

use super::{ALIGNMENT, ARRAY_BYTES, SCHEMA_BYTES};
use crate::memory::{self, HostFile, HostFiles};
use crate::{Error, Result};

/// Smaller buffers are copied: they fit the caches, and calls of the system and page faults take
/// longer.
const LEAST_MAPPED: usize = 1 << 20;

/// Where a piece of an image lies, counted from the image's begin.
pub(crate) type Place = u32;

/// What is written into a guest's memory as one block, before its address is known.
#[derive(Default)]
pub(crate) struct Image<'a> {
    files: Option<&'a dyn HostFiles>,
    length: u32,
    /// More than [`ALIGNMENT`] if pages are mapped.
    page_bytes: Option<u32>,
    /// Rows of the longest array.
    rows: usize,
    /// The same with the rows before its offset.
    end: usize,
    pieces: Vec<(Place, Piece<'a>)>,
}

/// One buffer or struct.
pub(crate) enum Piece<'a> {
    /// Bytes as they are.
    Bytes(&'a [u8]),
    /// Bytes of which whole pages are a file's too.
    Mapped {
        bytes: &'a [u8],
        pages: Range<usize>,
        file: HostFile,
    },
    /// Bytes that were made for this image.
    Owned(Vec<u8>),
    /// Bits from the bit `offset` on, so many.
    Bits {
        bytes: &'a [u8],
        offset: usize,
        length: usize,
    },
    /// Offsets of `width` bytes, each less `base`.
    Offsets {
        bytes: &'a [u8],
        width: usize,
        base: u64,
    },
    /// Pointers to places of the image; `None` is NULL.
    Pointers(Vec<Option<Place>>),
    /// An ArrowArray.
    Array(Array),
    /// An ArrowSchema.
    Schema(Schema),
}

/// An ArrowArray with places for pointers.
#[derive(Default)]
pub(crate) struct Array {
    pub(crate) length: usize,
    pub(crate) null_count: usize,
    pub(crate) offset: usize,
    pub(crate) n_buffers: usize,
    pub(crate) n_children: usize,
    pub(crate) buffers: Option<Place>,
    pub(crate) children: Option<Place>,
    pub(crate) dictionary: Option<Place>,
}

/// An ArrowSchema with places for pointers.
#[derive(Default)]
pub(crate) struct Schema {
    pub(crate) format: Option<Place>,
    pub(crate) name: Option<Place>,
    pub(crate) metadata: Option<Place>,
    pub(crate) flags: i64,
    pub(crate) n_children: usize,
    pub(crate) children: Option<Place>,
    pub(crate) dictionary: Option<Place>,
}

impl<'a> Image<'a> {
    /// An image that maps large buffers, where the files behind them are known.
    pub(crate) fn with_files(files: Option<&'a dyn HostFiles>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// What the image's address is a multiple of.
    pub(crate) fn alignment(&self) -> u32 {
        self.page_bytes.unwrap_or(ALIGNMENT)
    }

    /// Bytes of the whole image.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Rows of the longest array.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The last row that an array refers to, counted from the begin of its buffers.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Reserves room for a piece of so many bytes; `None` if the image outgrows 32 bits.
    pub(crate) fn reserve(&mut self, length: usize) -> Option<Place> {
        let place = self.length;
        let end = u64::from(place) + u64::try_from(length).ok()?;
        self.length = u32::try_from(end.next_multiple_of(u64::from(ALIGNMENT))).ok()?;
        Some(place)
    }

    /// Puts a piece into room that was reserved for it.
    pub(crate) fn put(&mut self, place: Place, piece: Piece<'a>) {
        if let Piece::Array(array) = &piece {
            self.rows = self.rows.max(array.length);
            self.end = self.end.max(array.offset.saturating_add(array.length));
        }
        self.pieces.push((place, piece));
    }

    /// Adds a piece; `None` if the image outgrows 32 bits.
    pub(crate) fn add(&mut self, piece: Piece<'a>) -> Option<Place> {
        let piece = match piece {
            Piece::Bytes(bytes) => self.mapped(bytes)?,
            piece => piece,
        };
        let place = self.reserve(piece.length())?;
        self.put(place, piece);
        Some(place)
    }

    /// Large bytes of a file as their pages, with room before them so that they begin as far behind
    /// the begin of a page as they do in the file; `None` if the image outgrows 32 bits.
    fn mapped(&mut self, bytes: &'a [u8]) -> Option<Piece<'a>> {
        let files = (self.files).filter(|_| bytes.len() >= LEAST_MAPPED);
        let address = bytes.as_ptr() as usize;
        let page = memory::page_bytes();
        let behind = address % page;
        let file = files.and_then(|files| files.find(bytes)).filter(|file| {
            address.is_multiple_of(ALIGNMENT as usize) && file.offset % page as u64 == behind as u64
        });
        let Some(file) = file else {
            return Some(Piece::Bytes(bytes));
        };
        let page = u32::try_from(page).ok()?;
        let gap = u32::try_from(behind).ok()?.wrapping_sub(self.length) % page;
        self.length = self.length.checked_add(gap)?;
        self.page_bytes = Some(page);
        Some(Piece::Mapped {
            bytes,
            pages: memory::whole_pages(address, bytes.len()),
            file,
        })
    }

    /// Writes the image into `block`, which lies at `base` of the guest's memory and is as long
    /// as the image. Returns the part of the block that may hold pages of files.
    ///
    /// # Errors
    ///
    /// [`Error::Host`]: the system can neither map the pages nor copy them. A part of the block then has no memory.
    pub(crate) fn write(&self, block: &mut [u8], base: u32) -> Result<Range<usize>> {
        let mut mapped = 0..0;
        for (place, piece) in &self.pieces {
            let place = *place as usize;
            let to = &mut block[place..place + piece.length()];
            piece.write(to, base);
            if let Piece::Mapped { pages, file, .. } = piece {
                let offset = file.offset + pages.start as u64;
                let (to, file) = (&mut to[pages.clone()], file.file.as_fd());
                match memory::map(to, file, offset) {
                    Ok(()) => {}
                    // A process has only so many mappings (vm.max_map_count).
                    Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                        memory::copy(to, file, offset).map_err(|error| {
                            Error::Host(format!("the input cannot be copied: {error}"))
                        })?;
                        continue;
                    }
                    Err(error) => {
                        let text = format!("the input cannot be mapped: {error}");
                        return Err(Error::Host(text));
                    }
                }
                // Pieces lie in the order of their places.
                mapped.start = if mapped.is_empty() {
                    place + pages.start
                } else {
                    mapped.start
                };
                mapped.end = place + pages.end;
            }
        }
        Ok(mapped)
    }
}

impl Piece<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Mapped { bytes, .. } => bytes.len(),
            Self::Owned(bytes) => bytes.len(),
            Self::Bits { length, .. } => length.div_ceil(8),
            Self::Offsets { bytes, .. } => bytes.len(),
            Self::Pointers(places) => places.len() * 4,
            Self::Array(_) => ARRAY_BYTES,
            Self::Schema(_) => SCHEMA_BYTES,
        }
    }

    fn write(&self, to: &mut [u8], base: u32) {
        match self {
            Self::Bytes(bytes) => to.copy_from_slice(bytes),
            Self::Mapped { bytes, pages, .. } => {
                to[..pages.start].copy_from_slice(&bytes[..pages.start]);
                to[pages.end..].copy_from_slice(&bytes[pages.end..]);
            }
            Self::Owned(bytes) => to.copy_from_slice(bytes),
            Self::Bits { bytes, offset, .. } => shift_bits(bytes, *offset, to),
            Self::Offsets {
                bytes,
                width: 4,
                base,
            } => rebase::<4>(bytes, *base, to),
            Self::Offsets { bytes, base, .. } => rebase::<8>(bytes, *base, to),
            Self::Pointers(places) => {
                for (to, place) in to.chunks_exact_mut(4).zip(places) {
                    to.copy_from_slice(&pointer(*place, base));
                }
            }
            Self::Array(array) => {
                let counts = [
                    array.length,
                    array.null_count,
                    array.offset,
                    array.n_buffers,
                    array.n_children,
                ];
                for (to, count) in to.chunks_exact_mut(8).zip(counts) {
                    to.copy_from_slice(&(count as u64).to_le_bytes());
                }
                to[40..44].copy_from_slice(&pointer(array.buffers, base));
                to[44..48].copy_from_slice(&pointer(array.children, base));
                to[48..52].copy_from_slice(&pointer(array.dictionary, base));
                to[52..].fill(0);
            }
            Self::Schema(schema) => {
                to.fill(0);
                to[0..4].copy_from_slice(&pointer(schema.format, base));
                to[4..8].copy_from_slice(&pointer(schema.name, base));
                to[8..12].copy_from_slice(&pointer(schema.metadata, base));
                to[16..24].copy_from_slice(&schema.flags.to_le_bytes());
                to[24..32].copy_from_slice(&(schema.n_children as u64).to_le_bytes());
                to[32..36].copy_from_slice(&pointer(schema.children, base));
                to[36..40].copy_from_slice(&pointer(schema.dictionary, base));
            }
        }
    }
}

/// A pointer as the guest reads it. The caller's block lies within 32 bits.
fn pointer(place: Option<Place>, base: u32) -> [u8; 4] {
    place
        .map_or(0, |place| base.wrapping_add(place))
        .to_le_bytes()
}

/// Copies bits so that the one at `offset` becomes the first. Bits past the end are any.
fn shift_bits(bytes: &[u8], offset: usize, to: &mut [u8]) {
    let bytes = &bytes[offset / 8..];
    let shift = offset % 8;
    if shift == 0 {
        to.copy_from_slice(&bytes[..to.len()]);
        return;
    }
    for (index, to) in to.iter_mut().enumerate() {
        let high = bytes.get(index + 1).map_or(0, |byte| byte << (8 - shift));
        *to = bytes[index] >> shift | high;
    }
}

/// Copies offsets of `WIDTH` bytes, each less `base`.
fn rebase<const WIDTH: usize>(bytes: &[u8], base: u64, to: &mut [u8]) {
    let base = base.to_le_bytes();
    let mut narrow = [0; 8];
    narrow[..WIDTH].copy_from_slice(&base[..WIDTH]);
    let base = u64::from_le_bytes(narrow);
    for (from, to) in bytes.chunks_exact(WIDTH).zip(to.chunks_exact_mut(WIDTH)) {
        let mut word = [0; 8];
        word[..WIDTH].copy_from_slice(from);
        let moved = u64::from_le_bytes(word).wrapping_sub(base).to_le_bytes();
        to.copy_from_slice(&moved[..WIDTH]);
    }
}
