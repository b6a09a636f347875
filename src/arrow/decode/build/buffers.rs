//! The buffers of a body, in the order of the header.

use super::{Builder, is_aligned};
use crate::arrow::decode::columns::{Buffer, Node, private_copy};
use crate::arrow::decode::compression::{Codec, LENGTH_BYTES, Unpacked, unpack};
use crate::arrow::format::offset_width;
use crate::device::BufferRef;
use crate::error::{Error, Result};

impl Builder<'_> {
    /// The next buffer of the body, unpacked.
    #[inline(always)]
    pub(super) fn next_buffer(&mut self) -> Result<Buffer> {
        let at = *self
            .buffers
            .next()
            .ok_or_else(|| Error::invalid_data("the header has fewer buffers than its schema"))?;
        if at.len == 0 {
            return Ok(Buffer::empty());
        }
        match self.codec {
            None => Ok(Buffer {
                at,
                private: !self.shared,
            }),
            Some(codec) => self.unpack(codec, at),
        }
    }

    #[inline(never)]
    pub(super) fn unpack(&mut self, codec: Codec, at: BufferRef) -> Result<Buffer> {
        // SAFETY: `new` refuses compressed bodies on a GPU and shared ones. So the body lies on the
        // host, nobody writes to it, and `out` holds its owner.
        let packed = unsafe { at.as_slice() };
        match unpack(codec, packed, self.context.budget)? {
            Unpacked::Stored => Ok(Buffer {
                at: BufferRef::of(&packed[LENGTH_BYTES..]),
                private: true,
            }),
            Unpacked::Memory(memory) => {
                self.copied = self.copied.saturating_add(memory.len() as u64);
                Ok(self.out.keep(memory))
            }
        }
    }

    /// Adds the next buffer to a node; it must have `need` bytes. Copies an unaligned buffer:
    /// writers may pad to 8 bytes only, or not at all in compressed bodies.
    #[inline(always)]
    pub(super) fn buffer(&mut self, node: &mut Node, need: usize, align: usize) -> Result<()> {
        let mut buffer = self.next_buffer()?;
        if buffer.at.len < need {
            return Err(Error::invalid_data(format!(
                "buffer {} has {} bytes, {need} are needed for {} values",
                node.n_buffers, buffer.at.len, node.length
            )));
        }
        if buffer.at.len == 0 {
            buffer = Buffer::empty();
        } else if !is_aligned(&buffer.at, align) {
            buffer = self.copy(BufferRef {
                data: buffer.at.data,
                len: need,
            })?;
        }
        self.out.buffers.push(buffer);
        node.n_buffers += 1;
        Ok(())
    }

    pub(super) fn copy(&mut self, source: BufferRef) -> Result<Buffer> {
        if let Some(remote) = &mut self.out.remote {
            if source.len == 0 {
                return Ok(Buffer::empty());
            }
            // The GPU copies the buffer after all checks.
            remote.misaligned.push(self.out.buffers.len());
            let private = !self.shared;
            return Ok(Buffer {
                at: source,
                private,
            });
        }
        // The body bounds the bytes that the peer sent, but not lent memory.
        if self.shared {
            self.context.budget.take(source.len as u64)?;
        }
        let memory = private_copy(source)?;
        self.copied = self.copied.saturating_add(source.len as u64);
        Ok(self.out.keep(memory))
    }

    /// The next buffer, with `width` bytes for each value and `extra` values more.
    #[inline(always)]
    pub(super) fn elements(
        &mut self,
        node: &mut Node,
        width: usize,
        align: usize,
        extra: usize,
    ) -> Result<()> {
        let need = node
            .len()?
            .checked_add(extra)
            .and_then(|count| count.checked_mul(width))
            .ok_or_else(|| Error::invalid_data(format!("an array of length {}", node.length)))?;
        self.buffer(node, need, align)
    }

    /// The validity bitmap; NULL without nulls.
    #[inline(always)]
    pub(super) fn validity(&mut self, node: &mut Node) -> Result<()> {
        let bytes = node.len()?.div_ceil(8);
        let buffer = self.next_buffer()?;
        // A bitmap without nulls is left out, which makes consumers faster.
        let useless = node.null_count == 0 && (buffer.at.len == 0 || !self.context.full);
        if !useless && buffer.at.len < bytes {
            return Err(Error::invalid_data(format!(
                "the validity bitmap has {} bytes where {} values, {} of them null, need {bytes}",
                buffer.at.len, node.length, node.null_count
            )));
        }
        self.out
            .buffers
            .push(if useless { Buffer::ABSENT } else { buffer });
        node.n_buffers += 1;
        Ok(())
    }

    /// The offsets of an array, one more than values. The format allows none for an empty array.
    /// Returns the index of the buffer.
    pub(super) fn offsets(&mut self, node: &mut Node, large: bool) -> Result<usize> {
        let width = offset_width(large);
        if node.length != 0 {
            self.elements(node, width, width, 1)?;
        } else {
            let place = self.out.buffers.len();
            self.buffer(node, 0, width)?;
            if self.out.buffers[place].at.len < width {
                self.out.buffers[place] = Buffer::empty();
            }
        }
        Ok(node.buffer(node.n_buffers - 1))
    }

    /// Views, their data buffers, and the lengths of these, which the C data interface requires.
    pub(super) fn views(&mut self, node: &mut Node) -> Result<()> {
        self.elements(node, 16, 8, 0)?;
        let count = self
            .variadic
            .filter(|counts| self.next_variadic < counts.len())
            .map(|counts| counts.get(self.next_variadic))
            .ok_or_else(|| {
                Error::invalid_data("the header has fewer counts of view buffers than its schema")
            })?;
        self.next_variadic += 1;
        // Rule A8: the number of remaining buffers bounds the count, before any allocation.
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.buffers.len())
            .ok_or_else(|| {
                Error::invalid_data(format!(
                    "{count} view buffers where the header has {} left",
                    self.buffers.len()
                ))
            })?;
        if count > 0 {
            node.lengths = self.out.lengths.len();
        }
        for _ in 0..count {
            self.buffer(node, 0, 1)?;
            let length = self.out.buffers.last().map_or(0, |buffer| buffer.at.len);
            self.out
                .lengths
                .push(i64::try_from(length).unwrap_or(i64::MAX));
        }
        // If there are lengths, this buffer is replaced when all lengths are known.
        self.out.buffers.push(Buffer::empty());
        node.n_buffers += 1;
        Ok(())
    }
}
