//! Joins a dictionary and its delta in new memory (rule A3).
//!
//! Both were checked at level `full`, so the code can follow offsets, sizes and run ends; accesses
//! are bounds-checked nevertheless. Earlier joined bytes stay in place and grow, so that a delta
//! costs its own bytes only. Bitmaps are copied each time, because readers see their last byte.

mod runs;
mod views;

use std::sync::Arc;

use crate::arrow::decode::bits;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::columns::{Buffer, Columns, Node, struct_bytes};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::decode::grown::{Grown, with_room};
use crate::arrow::decode::parts::{ArrayPart, Numbers, Width, to_usize, too_long};
use crate::arrow::format::{Layout, Type};
use crate::device::HostBuffer;
use crate::error::{Error, Result};

/// The values of `old`, then those of `delta`. Also returns the copied bytes.
pub(super) fn join(
    field: &DecodedField,
    old: &Arc<Columns>,
    delta: &Arc<Columns>,
    budget: &DecodeBudget<'_>,
) -> Result<(Columns, u64)> {
    let mut joiner = Joiner {
        out: Columns::default(),
        budget,
        copied: 0,
    };
    let parts = [ArrayPart::whole(old, 0)?, ArrayPart::whole(delta, 0)?];
    joiner.values(field, &parts)?;
    Ok((joiner.out, joiner.copied))
}

struct Joiner<'a> {
    out: Columns,
    budget: &'a DecodeBudget<'a>,
    copied: u64,
}

impl Joiner<'_> {
    fn keep(&mut self, memory: HostBuffer) -> Buffer {
        self.copied = self.copied.saturating_add(memory.len() as u64);
        self.out.keep(memory)
    }

    /// Returns `old` followed by `new`. Appends in place if `old` has free room and nothing else
    /// was appended to it.
    fn extend(&mut self, part: &ArrayPart<'_>, old: &[u8], new: &[u8]) -> Result<Buffer> {
        let len = old.len().checked_add(new.len()).ok_or_else(too_long)?;
        if len == 0 {
            return Ok(Buffer::empty());
        }
        let address = old.as_ptr().addr();
        let known = part.columns.holds.grown.get(&address);
        if let Some(grown) = known {
            self.budget.take(grown.capacity() as u64)?;
            if grown.append(old.len(), new) {
                self.copied = self.copied.saturating_add(new.len() as u64);
                return self.grow(Arc::clone(grown), len);
            }
        }
        let capacity = with_room(len);
        self.budget.take(capacity as u64)?;
        let grown = Grown::new(capacity)?;
        if !grown.append(0, old) || !grown.append(old.len(), new) {
            return Err(too_long());
        }
        self.copied = self.copied.saturating_add(len as u64);
        self.grow(Arc::new(grown), len)
    }

    fn grow(&mut self, grown: Arc<Grown>, len: usize) -> Result<Buffer> {
        let at = grown.bytes(len)?;
        self.out.holds.grown.insert(at.data.addr(), grown);
        Ok(Buffer { at, private: true })
    }

    /// Temporary memory of `bytes`, beside the result.
    fn temporary(&self, bytes: usize) -> Result<Vec<u8>> {
        self.budget.take(bytes as u64)?;
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(bytes)
            .map_err(|_| Error::out_of_memory(format!("no memory for {bytes} bytes of a delta")))?;
        Ok(memory)
    }

    /// Writes numbers as integers of a width.
    fn write_numbers(
        &self,
        numbers: impl ExactSizeIterator<Item = Result<i64>>,
        width: Width,
    ) -> Result<Vec<u8>> {
        let bytes = numbers.len().checked_mul(width.bytes());
        let mut written = self.temporary(bytes.ok_or_else(too_long)?)?;
        for number in numbers {
            let number = number?;
            match width {
                Width::Two => {
                    let number = i16::try_from(number).map_err(|_| too_long())?;
                    written.extend(number.to_ne_bytes());
                }
                Width::Four => {
                    let number = i32::try_from(number).map_err(|_| too_long())?;
                    written.extend(number.to_ne_bytes());
                }
                Width::Eight => written.extend(number.to_ne_bytes()),
            }
        }
        Ok(written)
    }

    /// Adds a node with its buffers and room for its children.
    fn push(
        &mut self,
        parts: &[ArrayPart<'_>; 2],
        buffers: Vec<Buffer>,
        n_children: usize,
    ) -> Result<usize> {
        let length = parts[0]
            .len
            .checked_add(parts[1].len)
            .ok_or_else(too_long)?;
        self.budget.take(struct_bytes(1, buffers.len()))?;
        let length = i64::try_from(length).map_err(|_| too_long())?;
        let node = Node {
            n_buffers: buffers.len(),
            ..self.out.blank(length, 0)
        };
        self.out.buffers.extend(buffers);
        Ok(self.out.push(node, n_children))
    }

    fn column(&mut self, field: &DecodedField, parts: &[ArrayPart<'_>; 2]) -> Result<usize> {
        match field.dictionary {
            Some(encoding) => self.encoded(encoding.width(), parts),
            None => self.values(field, parts),
        }
    }

    /// The bitmap of both parts, and the null count.
    fn validity(&mut self, parts: &[ArrayPart<'_>; 2]) -> Result<(Buffer, i64)> {
        let bitmaps = [
            parts[0].columns.bytes(parts[0].node.buffer(0))?,
            parts[1].columns.bytes(parts[1].node.buffer(0))?,
        ];
        if bitmaps.iter().all(|bitmap| bitmap.is_empty()) {
            return Ok((Buffer::ABSENT, 0));
        }
        let total = parts[0]
            .len
            .checked_add(parts[1].len)
            .ok_or_else(too_long)?;
        let mut memory = self.bitmap(total)?;
        let target = memory.as_mut_slice();
        let mut row = 0;
        for (part, bitmap) in parts.iter().zip(bitmaps) {
            match bitmap {
                [] => bits::fill(target, row, part.len),
                bitmap => bits::copy(target, row, bitmap, part.start, part.len),
            }
            row += part.len;
        }
        let nulls = total - bits::count_ones(target, total);
        if nulls == 0 {
            return Ok((Buffer::ABSENT, 0));
        }
        Ok((
            self.keep(memory),
            i64::try_from(nulls).map_err(|_| too_long())?,
        ))
    }

    /// Memory for a bitmap. A bit counts as a byte, which bounds the time of repeated copies.
    fn bitmap(&self, rows: usize) -> Result<HostBuffer> {
        self.budget.take(rows as u64)?;
        HostBuffer::new(rows.div_ceil(8))
    }

    fn fixed(&mut self, buffer: usize, width: usize, parts: &[ArrayPart<'_>; 2]) -> Result<Buffer> {
        let [old, new] = parts;
        self.extend(
            old,
            old.bytes(buffer, width, 0)?,
            new.bytes(buffer, width, 0)?,
        )
    }

    /// Indices do not change: between the two parts an inner dictionary can only have grown.
    fn encoded(&mut self, width: usize, parts: &[ArrayPart<'_>; 2]) -> Result<usize> {
        let [old, new] = parts;
        let (old_generation, new_generation) = (old.node.generation, new.node.generation);
        let unused = |part: &ArrayPart<'_>| part.node.null_count == part.node.length;
        if old_generation != new_generation && !unused(old) && !unused(new) {
            return Err(Error::unsupported(
                "a delta of a dictionary whose inner dictionary was replaced in between; the \
                 producer must send the outer one anew",
            ));
        }
        let (validity, null_count) = self.validity(parts)?;
        let indices = self.fixed(1, width, parts)?;
        let id = self.push(parts, vec![validity, indices], 0)?;
        let source = if unused(new) && !unused(old) {
            old
        } else {
            new
        };
        self.out.nodes[id].null_count = null_count;
        self.out.nodes[id].generation = source.node.generation;
        if let Some(dictionary) = source.node.dictionary {
            let grafted = self.graft(source.columns, dictionary)?;
            self.out.nodes[id].dictionary = Some(grafted);
            let inner = &source.columns.holds.inner;
            let known = inner.binary_search_by_key(&dictionary, |(node, _)| *node);
            // Holds the dictionary only: the whole source would keep all predecessors.
            let held = known.map_or(source.columns, |at| &inner[at].1);
            self.out.holds.inner.push((grafted, Arc::clone(held)));
        }
        Ok(id)
    }

    /// Adds an array without a copy of its buffers.
    fn graft(&mut self, columns: &Columns, id: usize) -> Result<usize> {
        let node = columns.nodes[id];
        self.budget.take(struct_bytes(1, node.n_buffers))?;
        let place = self.out.nodes.len();
        let first_child = self.out.children.len();
        self.out.nodes.push(Node {
            first_buffer: self.out.buffers.len(),
            first_child,
            ..node
        });
        self.out
            .buffers
            .extend_from_slice(&columns.buffers[node.first_buffer..][..node.n_buffers]);
        self.out.children.resize(first_child + node.n_children, 0);
        for (index, child) in columns.children_of(&node).iter().enumerate() {
            self.out.children[first_child + index] = self.graft(columns, *child)?;
        }
        if let Some(dictionary) = node.dictionary {
            self.out.nodes[place].dictionary = Some(self.graft(columns, dictionary)?);
        }
        Ok(place)
    }

    fn values(&mut self, field: &DecodedField, parts: &[ArrayPart<'_>; 2]) -> Result<usize> {
        let layout = field.layout;
        let mut buffers = Vec::new();
        let mut null_count = 0;
        if layout.has_validity() {
            let (validity, nulls) = self.validity(parts)?;
            buffers.push(validity);
            null_count = nulls;
        }
        // For each child, the parts that are joined.
        let mut children: Vec<[ArrayPart<'_>; 2]> = Vec::new();
        match layout {
            Layout::Null => {
                null_count = i64::try_from(parts[0].len.saturating_add(parts[1].len)).unwrap_or(0)
            }
            Layout::Boolean => buffers.push(self.bits(parts)?),
            Layout::Fixed { width, .. } => buffers.push(self.fixed(1, width, parts)?),
            Layout::Binary { large, .. } => {
                let (offsets, ranges) = self.offsets(Width::of_offsets(large), parts)?;
                let piece = |index: usize| -> Result<_> {
                    let (start, len): (usize, usize) = ranges[index];
                    let bytes = parts[index].columns.bytes(parts[index].node.buffer(2))?;
                    let end = start.checked_add(len).ok_or_else(too_long)?;
                    Ok(bytes.get(start..end).unwrap_or_default())
                };
                buffers.extend([offsets, self.extend(&parts[0], piece(0)?, piece(1)?)?]);
            }
            Layout::View { .. } => self.views(parts, &mut buffers)?,
            Layout::List { large } => {
                let (offsets, ranges) = self.offsets(Width::of_offsets(large), parts)?;
                buffers.push(offsets);
                children.push([
                    parts[0].child_range(0, ranges[0].0, ranges[0].1)?,
                    parts[1].child_range(0, ranges[1].0, ranges[1].1)?,
                ]);
            }
            Layout::ListView { large } => {
                let width = Width::of_offsets(large);
                let whole = [parts[0].child(0)?, parts[1].child(0)?];
                let added = self.moved(1, width, &parts[1], whole[0].node.length)?;
                let known = parts[0].bytes(1, width.bytes(), 0)?;
                buffers.push(self.extend(&parts[0], known, &added)?);
                buffers.push(self.fixed(2, width.bytes(), parts)?);
                children.push(whole);
            }
            Layout::FixedSizeList { size } => {
                children.push([parts[0].scaled_child(size)?, parts[1].scaled_child(size)?]);
            }
            Layout::Struct => self.same_range(parts, &mut children)?,
            Layout::Union { dense: false } => {
                buffers.push(self.fixed(0, 1, parts)?);
                self.same_range(parts, &mut children)?;
            }
            Layout::Union { dense: true } => {
                buffers.push(self.fixed(0, 1, parts)?);
                for index in 0..field.children.len() {
                    children.push([parts[0].child(index)?, parts[1].child(index)?]);
                }
                let added = self.dense_offsets(field, parts)?;
                let known = parts[0].bytes(1, Width::Four.bytes(), 0)?;
                buffers.push(self.extend(&parts[0], known, &added)?);
            }
            Layout::RunEndEncoded => return self.run_ends(field, parts),
        }
        let id = self.push(parts, buffers, children.len())?;
        self.out.nodes[id].null_count = null_count;
        self.adopt(id, field, &children)?;
        Ok(id)
    }

    fn adopt(
        &mut self,
        id: usize,
        field: &DecodedField,
        children: &[[ArrayPart<'_>; 2]],
    ) -> Result<()> {
        let first = self.out.nodes[id].first_child;
        for (index, (child, parts)) in field.children.iter().zip(children).enumerate() {
            self.out.children[first + index] = self.column(child, parts)?;
        }
        Ok(())
    }

    fn same_range<'a>(
        &self,
        parts: &[ArrayPart<'a>; 2],
        children: &mut Vec<[ArrayPart<'a>; 2]>,
    ) -> Result<()> {
        for index in 0..parts[0].node.n_children {
            children.push([
                parts[0].child_range(index, parts[0].start, parts[0].len)?,
                parts[1].child_range(index, parts[1].start, parts[1].len)?,
            ]);
        }
        Ok(())
    }

    fn bits(&mut self, parts: &[ArrayPart<'_>; 2]) -> Result<Buffer> {
        let total = parts[0]
            .len
            .checked_add(parts[1].len)
            .ok_or_else(too_long)?;
        let mut memory = self.bitmap(total)?;
        let target = memory.as_mut_slice();
        let mut row = 0;
        for part in parts {
            let source = part.columns.bytes(part.node.buffer(1))?;
            bits::copy(target, row, source, part.start, part.len);
            row += part.len;
        }
        Ok(self.keep(memory))
    }

    /// Offsets from 0 over both parts, and each part's range of values (start, length).
    fn offsets(
        &mut self,
        width: Width,
        parts: &[ArrayPart<'_>; 2],
    ) -> Result<(Buffer, [(usize, usize); 2])> {
        let [old, new] = parts;
        let (old_offsets, new_offsets) = (old.numbers(1, width, 1)?, new.numbers(1, width, 1)?);
        let ends = |offsets: &Numbers<'_>| (offsets.at(0), offsets.at(offsets.len() - 1));
        let (first, last) = ends(&old_offsets);
        let (new_first, new_last) = ends(&new_offsets);
        let base = last - first;
        let ranges = [
            (to_usize(first)?, to_usize(base)?),
            (to_usize(new_first)?, to_usize(new_last - new_first)?),
        ];
        let rest = 1..new_offsets.len();
        let moved = rest.map(|index| {
            let offset = new_offsets.at(index) - new_first;
            offset.checked_add(base).ok_or_else(too_long)
        });
        let added = self.write_numbers(moved, width)?;
        let rewritten;
        let known = if first == 0 && old.len > 0 {
            old.bytes(1, width.bytes(), 1)?
        } else {
            let all = 0..old_offsets.len();
            rewritten =
                self.write_numbers(all.map(|index| Ok(old_offsets.at(index) - first)), width)?;
            &rewritten
        };
        Ok((self.extend(old, known, &added)?, ranges))
    }

    /// The numbers of a part, plus `base`.
    fn moved(
        &self,
        buffer: usize,
        width: Width,
        part: &ArrayPart<'_>,
        base: i64,
    ) -> Result<Vec<u8>> {
        let numbers = part.numbers(buffer, width, 0)?;
        let moved = (0..numbers.len())
            .map(|index| numbers.at(index).checked_add(base).ok_or_else(too_long));
        self.write_numbers(moved, width)
    }

    /// The offsets of the delta's part of a dense union; they start after the old children.
    fn dense_offsets(&self, field: &DecodedField, parts: &[ArrayPart<'_>; 2]) -> Result<Vec<u8>> {
        let Type::Union { ids, .. } = &field.ty else {
            return Ok(Vec::new());
        };
        let mut bases = [None; 128];
        for (index, id) in ids.iter().enumerate() {
            if let Some(base) = usize::try_from(*id).ok().and_then(|id| bases.get_mut(id)) {
                *base = Some(parts[0].child(index)?.node.length);
            }
        }
        let types = parts[1].elements::<i8>(0, 0)?;
        let offsets = parts[1].numbers(1, Width::Four, 0)?;
        let moved = types.iter().enumerate().map(|(row, id)| {
            let base = usize::try_from(*id).ok().and_then(|id| *bases.get(id)?);
            let base = base.ok_or_else(too_long)?;
            offsets.at(row).checked_add(base).ok_or_else(too_long)
        });
        self.write_numbers(moved, Width::Four)
    }
}
