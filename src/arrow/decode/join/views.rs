//! Joins view columns: the views and their data buffers.

use std::sync::Arc;

use super::Joiner;
use crate::arrow::decode::columns::Buffer;
use crate::arrow::decode::grown::{Grown, with_room};
use crate::arrow::decode::parts::{ArrayPart, Width, too_long};
use crate::device::BufferRef;
use crate::error::Result;

impl Joiner<'_> {
    /// Joins the views, and the data in as few buffers as 32-bit offsets allow. Otherwise each
    /// delta would add a buffer.
    pub(super) fn views(
        &mut self,
        parts: &[ArrayPart<'_>; 2],
        buffers: &mut Vec<Buffer>,
    ) -> Result<()> {
        let [old, new] = parts;
        let data = |part: &ArrayPart<'_>| 2..part.node.n_buffers.saturating_sub(1).max(2);
        let mut joined = Vec::new();
        for index in data(old) {
            let bytes = old.columns.bytes(old.node.buffer(index))?;
            joined.push(self.extend(old, bytes, &[])?);
        }
        // For each data buffer of the delta, its new buffer and offset.
        let mut places = Vec::new();
        for index in data(new) {
            let bytes = new.columns.bytes(new.node.buffer(index))?;
            let last = joined.last().copied().filter(|last| {
                let end = last.at.len.checked_add(bytes.len());
                end.is_some_and(|end| i32::try_from(end).is_ok())
            });
            let before = match last {
                Some(last) => {
                    joined.pop();
                    last.at
                }
                None => BufferRef::EMPTY,
            };
            places.push((joined.len(), before.len));
            joined.push(self.extend_own(before, bytes)?);
        }
        let mut added = self.temporary(new.len.checked_mul(16).ok_or_else(too_long)?)?;
        for view in new.bytes(1, 16, 0)?.as_chunks::<16>().0 {
            added.extend(moved_view(view, &places)?);
        }
        buffers.push(self.extend(old, old.bytes(1, 16, 0)?, &added)?);
        let lengths = joined.iter().map(|data| i64::try_from(data.at.len));
        let lengths = lengths.map(|length| length.map_err(|_| too_long()));
        let lengths = self.write_numbers(lengths, Width::Eight)?;
        buffers.append(&mut joined);
        buffers.push(self.extend(old, &[], &lengths)?);
        Ok(())
    }

    /// [`extend`](Self::extend) for bytes of the result.
    pub(super) fn extend_own(&mut self, old: BufferRef, new: &[u8]) -> Result<Buffer> {
        let grown = self.out.holds.grown.get(&old.data.addr()).map(Arc::clone);
        if let Some(grown) = &grown
            && grown.append(old.len, new)
        {
            self.copied = self.copied.saturating_add(new.len() as u64);
            let at = grown.bytes(old.len.checked_add(new.len()).ok_or_else(too_long)?)?;
            return Ok(Buffer { at, private: true });
        }
        let len = old.len.checked_add(new.len()).ok_or_else(too_long)?;
        if len == 0 {
            return Ok(Buffer::empty());
        }
        let capacity = with_room(len);
        self.budget.take(capacity as u64)?;
        let larger = Grown::new(capacity)?;
        if let Some(grown) = grown {
            let known = grown.bytes(old.len)?;
            // SAFETY: `grown` is alive, and nobody writes to its used bytes.
            let known = unsafe { known.as_slice() };
            if !larger.append(0, known) {
                return Err(too_long());
            }
            self.out.holds.grown.remove(&old.data.addr());
        }
        if !larger.append(old.len, new) {
            return Err(too_long());
        }
        self.copied = self.copied.saturating_add(len as u64);
        self.grow(Arc::new(larger), len)
    }
}

/// A view with the new buffer number and offset; `places` has them for each old buffer number.
fn moved_view(view: &[u8; 16], places: &[(usize, usize)]) -> Result<[u8; 16]> {
    let value = u128::from_le_bytes(*view);
    let part = |from: u32| (value >> from) & u128::from(u32::MAX);
    // The length; up to 12 bytes are stored in the view.
    if part(0) <= 12 {
        return Ok(*view);
    }
    let number = usize::try_from(part(64)).map_err(|_| too_long())?;
    let (buffer, shift) = places.get(number).copied().ok_or_else(too_long)?;
    let offset = usize::try_from(part(96)).ok();
    let offset = offset.and_then(|offset| offset.checked_add(shift));
    let small = |number: usize| i32::try_from(number).map_err(|_| too_long());
    let (buffer, offset) = (small(buffer)?, small(offset.ok_or_else(too_long)?)?);
    let low = value & u128::from(u64::MAX);
    let high = u128::from(buffer.cast_unsigned()) | u128::from(offset.cast_unsigned()) << 32;
    Ok((low | high << 64).to_le_bytes())
}
