//! Arrow's C data interface as a 32-bit guest lays it out: structs of little-endian words in one
//! linear memory, with pointers that are offsets into this memory.
//!
//! [`image`], [`write`](mod@write) and [`schema_out`] put tables into a guest's memory; [`read`],
//! [`schema_in`] and [`array_in`] take them out and trust nothing there.

pub(crate) mod array_in;
pub(crate) mod image;
mod kind;
#[cfg(test)]
mod mutations;
pub(crate) mod read;
pub(crate) mod schema_in;
pub(crate) mod schema_out;
pub(crate) mod write;

/// Size of a guest's ArraySchema.
pub(crate) const SCHEMA_BYTES: usize = 48;
/// Size of a guest's ArrowArray.
pub(crate) const ARRAY_BYTES: usize = 64;
/// Alignment of all that the host writes.
pub(crate) const ALIGNMENT: u32 = 64;
/// Levels of types within types.
const DEPTH: usize = 64;
/// Columns and fields within columns of one schema.
const FIELDS: usize = 1 << 16;
/// Bytes of names, formats and metadata of one schema.
const TEXT_BYTES: usize = 16 << 20;
