//! LZ4 frames, unpacked block by block into the memory of their content.
//!
//! The crate's own reader clears room for a block of the largest size that the frame names, up to 8
//! MiB, also for a frame of a few bytes. A body of many such frames would take far longer than its
//! bytes and its content explain (rule A8).

use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use crate::device::HostBuffer;
use crate::error::{Error, Result};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Earlier content that blocks may refer to.
const WINDOW: usize = 64 << 10;
/// Marks a block that is stored, not packed.
const STORED: u32 = 1 << 31;

/// The blocks of a frame.
struct Frame<'a> {
    rest: &'a [u8],
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_size: Option<u64>,
    most_block: usize,
}

/// A block of a frame.
enum Block<'a> {
    Packed(&'a [u8]),
    Stored(&'a [u8]),
}

/// Unpacks a frame whose content has `length` bytes. Begins with memory of `first` bytes.
///
/// # Errors
///
/// `InvalidData`: the frame is malformed, or its content is longer or shorter. `OutOfMemory`.
pub(super) fn unpack(packed: &[u8], length: usize, first: usize) -> Result<HostBuffer> {
    let mut frame = Frame::open(packed)?;
    let mut memory = HostBuffer::new(first.min(length))?;
    let mut filled = 0;
    while let Some(block) = frame.next()? {
        let left = length.saturating_sub(filled);
        let room = match &block {
            Block::Packed(_) => frame.most_block.min(left),
            Block::Stored(bytes) if bytes.len() <= left => bytes.len(),
            Block::Stored(_) => return Err(longer(length)),
        };
        if memory.len() < filled.saturating_add(room) {
            // Grows with the bytes that have come, so that a false claim takes no memory.
            let target = filled.saturating_mul(2).max(filled.saturating_add(room));
            let mut larger = HostBuffer::new(target.min(length))?;
            larger.as_mut_slice()[..filled].copy_from_slice(&memory.as_slice()[..filled]);
            memory = larger;
        }
        let (known, free) = memory.as_mut_slice().split_at_mut(filled);
        let room = free.get_mut(..room).unwrap_or_default();
        filled += match block {
            Block::Stored(bytes) => {
                room.copy_from_slice(bytes);
                bytes.len()
            }
            Block::Packed(bytes) => {
                let unpacked = match frame.linked {
                    true => {
                        let window = &known[filled.saturating_sub(WINDOW)..];
                        decompress_into_with_dict(bytes, room, window)
                    }
                    false => decompress_into(bytes, room),
                };
                unpacked.map_err(|error| match error {
                    DecompressError::OutputTooSmall { .. } if left <= frame.most_block => {
                        longer(length)
                    }
                    error => malformed(&error.to_string()),
                })?
            }
        };
    }
    if filled != length {
        return Err(malformed(&format!(
            "it ends after {filled} of {length} bytes"
        )));
    }
    frame.check_content(memory.as_slice())?;
    Ok(memory)
}

impl<'a> Frame<'a> {
    fn open(packed: &'a [u8]) -> Result<Self> {
        let cut = || malformed("it is cut off");
        let rest = packed.strip_prefix(&MAGIC);
        let rest = rest.ok_or_else(|| malformed("it is no LZ4 frame"))?;
        let [flags, sizes] = *rest.first_chunk::<2>().ok_or_else(cut)?;
        let has = |bit: u32| flags >> bit & 1 == 1;
        if flags >> 6 != 1 || has(1) || sizes & 0x8f != 0 {
            return Err(malformed("its version is unknown"));
        }
        if has(0) {
            return Err(malformed("it needs a dictionary of its own"));
        }
        let most_block = match sizes >> 4 {
            number @ 4..=7 => 1 << (2 * number + 8),
            number => return Err(malformed(&format!("it has blocks of size {number}"))),
        };
        let size_bytes = if has(3) { size_of::<u64>() } else { 0 };
        let (descriptor, rest) = rest.split_at_checked(2 + size_bytes).ok_or_else(cut)?;
        let (checksum, rest) = rest.split_first().ok_or_else(cut)?;
        if checksum_of(descriptor).to_le_bytes()[1] != *checksum {
            return Err(malformed("the checksum of its header is wrong"));
        }
        let content_size = descriptor[2..].first_chunk().copied();
        Ok(Self {
            rest,
            linked: !has(5),
            block_checksums: has(4),
            content_checksum: has(2),
            content_size: content_size.map(u64::from_le_bytes),
            most_block,
        })
    }

    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*word))
    }

    /// The next block. Writers may leave out the mark at the end.
    fn next(&mut self) -> Result<Option<Block<'a>>> {
        let Some(word) = self.word().filter(|word| *word != 0) else {
            return Ok(None);
        };
        let len = usize::try_from(word & !STORED).unwrap_or(usize::MAX);
        if len > self.most_block {
            return Err(malformed(&format!("it has a block of {len} bytes")));
        }
        let split = self.rest.split_at_checked(len);
        let (bytes, rest) = split.ok_or_else(|| malformed("a block is cut off"))?;
        self.rest = rest;
        if self.block_checksums && self.word() != Some(checksum_of(bytes)) {
            return Err(malformed("the checksum of a block is wrong"));
        }
        Ok(Some(match word & STORED {
            0 => Block::Packed(bytes),
            _ => Block::Stored(bytes),
        }))
    }

    /// Checks the length and the checksum that the frame gives for its content, once its blocks are
    /// read.
    fn check_content(&mut self, content: &[u8]) -> Result<()> {
        let is_long = |size: u64| size == content.len() as u64;
        if !self.content_size.is_none_or(is_long) {
            return Err(malformed("its content is not as long as it says"));
        }
        if self.content_checksum && self.word() != Some(checksum_of(content)) {
            return Err(malformed("the checksum of its content is wrong"));
        }
        Ok(())
    }
}

#[cold]
fn malformed(why: &str) -> Error {
    Error::invalid_data(format!("a compressed buffer cannot be unpacked: {why}"))
}

#[cold]
fn longer(length: usize) -> Error {
    Error::invalid_data(format!(
        "a compressed buffer holds more than the {length} bytes it claims"
    ))
}

/// The checksum of LZ4 frames.
fn checksum_of(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn content(len: usize) -> Vec<u8> {
        let word = |n: u32| n.wrapping_mul(n) >> (n % 29);
        let words = (0..u32::MAX).flat_map(|n| word(n).to_le_bytes());
        words.take(len).collect()
    }

    fn frame(info: FrameInfo, content: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// Rule A4: frames of every kind that writers make, with one block and many.
    #[test]
    fn frames_of_every_kind_are_read() {
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            for size in [
                BlockSize::Max64KB,
                BlockSize::Max256KB,
                BlockSize::Max1MB,
                BlockSize::Max4MB,
            ] {
                for checks in 0..8 {
                    for len in [0, 1, 15, 16, 100, 64 << 10, 300_000] {
                        let content = content(len);
                        let info = FrameInfo::new()
                            .block_mode(mode)
                            .block_size(size)
                            .block_checksums(checks & 1 != 0)
                            .content_checksum(checks & 2 != 0)
                            .content_size((checks & 4 != 0).then_some(len as u64));
                        let packed = frame(info, &content);
                        for first in [len, 1] {
                            let memory = unpack(&packed, len, first).unwrap();
                            assert_eq!(memory.as_slice(), content, "{size:?} {checks} {len}");
                        }
                        assert!(unpack(&packed, len + 1, 1).is_err());
                        assert!(len == 0 || unpack(&packed, len - 1, 1).is_err());
                    }
                }
            }
        }
    }

    /// Rule A8: each changed byte of a frame with all checksums is found, and so is a cut.
    #[test]
    fn damaged_frames_are_errors() {
        let content = content(2000);
        let info = FrameInfo::new()
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(2000));
        let packed = frame(info, &content);
        for place in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[place] ^= 0x10;
            assert!(unpack(&damaged, 2000, 2000).is_err(), "byte {place}");
            assert!(unpack(&packed[..place], 2000, 2000).is_err(), "{place}");
        }
    }

    /// Rule A8: a frame of a few bytes takes no memory for the blocks that it could have.
    #[test]
    fn a_small_frame_takes_little_memory() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB);
        let packed = frame(info, &[7; 100]);
        assert_eq!(unpack(&packed, 100, 100).unwrap().len(), 100);
        // A long claim is not believed either.
        let error = unpack(&packed, 1 << 40, 1 << 20).unwrap_err();
        assert!(error.text().contains("100 of"), "{error}");
    }
}
