use super::{ALIGNMENT, ARRAY_BYTES, SCHEMA_BYTES};

/// Where a piece of an image lies, counted from the image's begin.
pub(crate) type Place = u32;

/// What is written into a guest's memory as one block, before its address is known.
#[derive(Default)]
pub(crate) struct Image<'a> {
    length: u32,
    pieces: Vec<(Place, Piece<'a>)>,
}

/// One buffer or struct.
pub(crate) enum Piece<'a> {
    /// Bytes as they are.
    Bytes(&'a [u8]),
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
    /// Bytes of the whole image.
    pub(crate) fn length(&self) -> u32 {
        self.length
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
        self.pieces.push((place, piece));
    }

    /// Adds a piece; `None` if the image outgrows 32 bits.
    pub(crate) fn add(&mut self, piece: Piece<'a>) -> Option<Place> {
        let place = self.reserve(piece.length())?;
        self.put(place, piece);
        Some(place)
    }

    /// Writes the image into `block`, which lies at `base` of the guest's memory and is as long
    /// as the image.
    pub(crate) fn write(&self, block: &mut [u8], base: u32) {
        for (place, piece) in &self.pieces {
            let place = *place as usize;
            piece.write(&mut block[place..place + piece.length()], base);
        }
    }
}

impl Piece<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
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
