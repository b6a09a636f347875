//! A dictionary and its delta, joined in memory of our own (rule A3).
//!
//! Both have been checked at level `full` before, so offsets, sizes and run ends can be followed;
//! every access is bounds-checked all the same.

use std::sync::Arc;

use crate::arrow::decode::budget::Budget;
use crate::arrow::decode::columns::{Buffer, Columns, Hold, NO_LENGTHS, Node, Plain};
use crate::arrow::decode::field::{Field, Layout, Type};
use crate::arrow::decode::values::count_ones;
use crate::device::HostBuffer;
use crate::error::{Error, Result};

/// The values of `old`, then those of `delta`. Returns also the bytes copied.
pub(super) fn join(
    field: &Field,
    old: &Arc<Columns>,
    delta: &Arc<Columns>,
    budget: &Budget<'_>,
) -> Result<(Columns, u64)> {
    let mut joiner = Joiner {
        out: Columns::default(),
        budget,
        copied: 0,
    };
    let parts = [Part::whole(old, 0)?, Part::whole(delta, 0)?];
    joiner.values(field, &parts)?;
    Ok((joiner.out, joiner.copied))
}

/// Some of the values of one array.
#[derive(Clone, Copy)]
struct Part<'a> {
    columns: &'a Arc<Columns>,
    node: &'a Node,
    start: usize,
    len: usize,
}

impl<'a> Part<'a> {
    fn whole(columns: &'a Arc<Columns>, id: usize) -> Result<Self> {
        let node = &columns.nodes[id];
        Ok(Self {
            columns,
            node,
            start: 0,
            len: node.len()?,
        })
    }

    fn child(&self, index: usize) -> Result<Self> {
        Self::whole(self.columns, self.columns.children_of(self.node)[index])
    }

    fn child_range(&self, index: usize, start: usize, len: usize) -> Result<Self> {
        Ok(Self {
            start,
            len,
            ..self.child(index)?
        })
    }

    /// The values of the only child, `size` for each of this array's.
    fn scaled_child(&self, size: usize) -> Result<Self> {
        let times = |count: usize| count.checked_mul(size).ok_or_else(too_long);
        self.child_range(0, times(self.start)?, times(self.len)?)
    }

    /// The values in use of a buffer with one element for each, and `extra` more.
    fn elements<T: Plain>(&self, buffer: usize, extra: usize) -> Result<&'a [T]> {
        let end = self
            .start
            .checked_add(self.len)
            .and_then(|end| end.checked_add(extra));
        let end = end.ok_or_else(too_long)?;
        let all = self.columns.slice::<T>(self.node.buffer(buffer), end)?;
        Ok(&all[self.start..])
    }

    /// Offsets, sizes or run ends in use, widened.
    fn numbers(&self, buffer: usize, width: Width, extra: usize) -> Result<Vec<i64>> {
        // The offsets of an empty array may be missing.
        if self.len == 0 && self.columns.buffers[self.node.buffer(buffer)].at.len == 0 {
            return Ok(vec![0; extra]);
        }
        Ok(match width {
            Width::Two => widened(self.elements::<i16>(buffer, extra)?),
            Width::Four => widened(self.elements::<i32>(buffer, extra)?),
            Width::Eight => self.elements::<i64>(buffer, extra)?.to_vec(),
        })
    }
}

fn widened<T: Plain + Into<i64>>(numbers: &[T]) -> Vec<i64> {
    numbers.iter().map(|number| (*number).into()).collect()
}

#[derive(Clone, Copy)]
enum Width {
    Two,
    Four,
    Eight,
}

impl Width {
    fn of_offsets(large: bool) -> Self {
        if large { Self::Eight } else { Self::Four }
    }
}

fn too_long() -> Error {
    Error::invalid_data("a dictionary joined with its delta is too long for its type")
}

fn place(number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::invalid_data(format!("a negative offset {number}")))
}

struct Joiner<'a> {
    out: Columns,
    budget: &'a Budget<'a>,
    copied: u64,
}

impl Joiner<'_> {
    /// Memory for a part of the result. Values without bytes may be as many as a peer says.
    fn memory(&self, bytes: usize) -> Result<HostBuffer> {
        self.budget.take(bytes as u64)?;
        HostBuffer::new(bytes)
    }

    fn keep(&mut self, memory: HostBuffer) -> Buffer {
        self.copied = self.copied.saturating_add(memory.len() as u64);
        self.out.keep(memory)
    }

    fn keep_bytes(&mut self, pieces: &[&[u8]]) -> Result<Buffer> {
        let total = pieces
            .iter()
            .try_fold(0usize, |sum, piece| sum.checked_add(piece.len()));
        let mut memory = self.memory(total.ok_or_else(too_long)?)?;
        let mut rest = memory.as_mut_slice();
        for piece in pieces {
            let (target, after) = rest.split_at_mut(piece.len());
            target.copy_from_slice(piece);
            rest = after;
        }
        Ok(self.keep(memory))
    }

    fn keep_numbers(&mut self, numbers: &[i64], width: Width) -> Result<Buffer> {
        let mut bytes = Vec::new();
        for number in numbers {
            match width {
                Width::Two => {
                    bytes.extend(
                        i16::try_from(*number)
                            .map_err(|_| too_long())?
                            .to_ne_bytes(),
                    );
                }
                Width::Four => {
                    bytes.extend(
                        i32::try_from(*number)
                            .map_err(|_| too_long())?
                            .to_ne_bytes(),
                    );
                }
                Width::Eight => bytes.extend(number.to_ne_bytes()),
            }
        }
        self.keep_bytes(&[&bytes])
    }

    /// Adds a node with its buffers and room for its children.
    fn push(
        &mut self,
        parts: &[Part<'_>; 2],
        buffers: Vec<Buffer>,
        n_children: usize,
    ) -> Result<usize> {
        let length = parts[0]
            .len
            .checked_add(parts[1].len)
            .ok_or_else(too_long)?;
        self.out.nodes.push(Node {
            length: i64::try_from(length).map_err(|_| too_long())?,
            null_count: 0,
            first_buffer: self.out.buffers.len(),
            n_buffers: buffers.len(),
            first_child: self.out.children.len(),
            n_children,
            dictionary: None,
            generation: 0,
            lengths: NO_LENGTHS,
        });
        self.out.buffers.extend(buffers);
        self.out
            .children
            .resize(self.out.children.len() + n_children, 0);
        Ok(self.out.nodes.len() - 1)
    }

    fn column(&mut self, field: &Field, parts: &[Part<'_>; 2]) -> Result<usize> {
        match field.dictionary {
            Some(encoding) => self.encoded(encoding.width(), parts),
            None => self.values(field, parts),
        }
    }

    /// The bitmap of both parts, and how many values are null.
    fn validity(&mut self, parts: &[Part<'_>; 2]) -> Result<(Buffer, i64)> {
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
        let mut memory = self.memory(total.div_ceil(8))?;
        let target = memory.as_mut_slice();
        let mut row = 0;
        for (part, bitmap) in parts.iter().zip(bitmaps) {
            for source in part.start..part.start.saturating_add(part.len) {
                let valid = bitmap.is_empty() || bit(bitmap, source);
                target[row / 8] |= u8::from(valid) << (row % 8);
                row += 1;
            }
        }
        let nulls = total - count_ones(target, total);
        if nulls == 0 {
            return Ok((Buffer::ABSENT, 0));
        }
        Ok((
            self.keep(memory),
            i64::try_from(nulls).map_err(|_| too_long())?,
        ))
    }

    fn fixed(&mut self, buffer: usize, width: usize, parts: &[Part<'_>; 2]) -> Result<Buffer> {
        let piece = |part: &Part<'_>| -> Result<_> {
            let bytes = |count: usize| count.checked_mul(width).ok_or_else(too_long);
            let (start, len) = (bytes(part.start)?, bytes(part.len)?);
            let columns: &Columns = part.columns;
            let all = columns.slice::<u8>(
                part.node.buffer(buffer),
                start.checked_add(len).ok_or_else(too_long)?,
            )?;
            // An empty slice stands for an empty part wherever it starts.
            Ok(all.get(start..).unwrap_or_default().to_vec())
        };
        let (first, second) = (piece(&parts[0])?, piece(&parts[1])?);
        self.keep_bytes(&[&first, &second])
    }

    /// Indices stay as they are: an inner dictionary only ever grew between the two parts.
    fn encoded(&mut self, width: usize, parts: &[Part<'_>; 2]) -> Result<usize> {
        let [old, new] = parts;
        let (old_generation, new_generation) = (old.node.generation, new.node.generation);
        let unused = |part: &Part<'_>| part.node.null_count == part.node.length;
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
            let grafted = self.graft(source.columns, dictionary);
            self.out.nodes[id].dictionary = Some(grafted);
            self.out
                .holds
                .rest
                .push(Hold::Dictionary(Arc::clone(source.columns)));
        }
        Ok(id)
    }

    /// Adds an array that stays where it is.
    fn graft(&mut self, columns: &Columns, id: usize) -> usize {
        let node = columns.nodes[id];
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
            self.out.children[first_child + index] = self.graft(columns, *child);
        }
        if let Some(dictionary) = node.dictionary {
            self.out.nodes[place].dictionary = Some(self.graft(columns, dictionary));
        }
        place
    }

    fn values(&mut self, field: &Field, parts: &[Part<'_>; 2]) -> Result<usize> {
        let layout = field.layout;
        let mut buffers = Vec::new();
        let mut null_count = 0;
        if layout.has_validity() {
            let (validity, nulls) = self.validity(parts)?;
            buffers.push(validity);
            null_count = nulls;
        }
        // What each child takes of both parts.
        let mut children: Vec<[Part<'_>; 2]> = Vec::new();
        match layout {
            Layout::Null => null_count = i64::try_from(parts[0].len + parts[1].len).unwrap_or(0),
            Layout::Bits => buffers.push(self.bits(parts)?),
            Layout::Fixed { width, .. } => buffers.push(self.fixed(1, width, parts)?),
            Layout::Bytes { large, .. } => {
                let (offsets, ranges) = self.offsets(Width::of_offsets(large), parts)?;
                let piece = |index: usize| -> Result<_> {
                    let (start, len): (usize, usize) = ranges[index];
                    let bytes = parts[index].columns.bytes(parts[index].node.buffer(2))?;
                    Ok(bytes
                        .get(start..start.saturating_add(len))
                        .unwrap_or_default())
                };
                buffers.extend([offsets, self.keep_bytes(&[piece(0)?, piece(1)?])?]);
            }
            Layout::Views { .. } => self.views(parts, &mut buffers)?,
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
                let mut offsets = parts[0].numbers(1, width, 0)?;
                for offset in parts[1].numbers(1, width, 0)? {
                    offsets.push(
                        offset
                            .checked_add(whole[0].node.length)
                            .ok_or_else(too_long)?,
                    );
                }
                let mut sizes = parts[0].numbers(2, width, 0)?;
                sizes.extend(parts[1].numbers(2, width, 0)?);
                buffers.push(self.keep_numbers(&offsets, width)?);
                buffers.push(self.keep_numbers(&sizes, width)?);
                children.push(whole);
            }
            Layout::FixedList { size } => {
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
                let offsets = dense_offsets(field, parts)?;
                buffers.push(self.keep_numbers(&offsets, Width::Four)?);
            }
            Layout::RunEnds => return self.run_ends(field, parts),
        }
        let id = self.push(parts, buffers, children.len())?;
        self.out.nodes[id].null_count = null_count;
        self.adopt(id, field, &children)?;
        Ok(id)
    }

    fn adopt(&mut self, id: usize, field: &Field, children: &[[Part<'_>; 2]]) -> Result<()> {
        let first = self.out.nodes[id].first_child;
        for (index, (child, parts)) in field.children.iter().zip(children).enumerate() {
            self.out.children[first + index] = self.column(child, parts)?;
        }
        Ok(())
    }

    fn same_range<'a>(
        &self,
        parts: &[Part<'a>; 2],
        children: &mut Vec<[Part<'a>; 2]>,
    ) -> Result<()> {
        for index in 0..parts[0].node.n_children {
            children.push([
                parts[0].child_range(index, parts[0].start, parts[0].len)?,
                parts[1].child_range(index, parts[1].start, parts[1].len)?,
            ]);
        }
        Ok(())
    }

    fn bits(&mut self, parts: &[Part<'_>; 2]) -> Result<Buffer> {
        let total = parts[0]
            .len
            .checked_add(parts[1].len)
            .ok_or_else(too_long)?;
        let mut memory = self.memory(total.div_ceil(8))?;
        let target = memory.as_mut_slice();
        let mut row = 0;
        for part in parts {
            let source = part.columns.bytes(part.node.buffer(1))?;
            for index in part.start..part.start.saturating_add(part.len) {
                target[row / 8] |= u8::from(bit(source, index)) << (row % 8);
                row += 1;
            }
        }
        Ok(self.keep(memory))
    }

    /// Offsets from 0 over both parts, and the range (start, length) that each part covers.
    fn offsets(
        &mut self,
        width: Width,
        parts: &[Part<'_>; 2],
    ) -> Result<(Buffer, [(usize, usize); 2])> {
        let mut joined = vec![0];
        let mut ranges = [(0, 0); 2];
        for (part, range) in parts.iter().zip(&mut ranges) {
            let offsets = part.numbers(1, width, 1)?;
            let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
            let base = joined[joined.len() - 1];
            for offset in &offsets[1..] {
                joined.push((offset - first).checked_add(base).ok_or_else(too_long)?);
            }
            *range = (place(first)?, place(last - first)?);
        }
        Ok((self.keep_numbers(&joined, width)?, ranges))
    }

    fn views(&mut self, parts: &[Part<'_>; 2], buffers: &mut Vec<Buffer>) -> Result<()> {
        let mut joined = Vec::new();
        let mut data = Vec::new();
        let mut base = 0i32;
        for part in parts {
            let bytes = part.len.checked_mul(16).ok_or_else(too_long)?;
            let start = part.start.checked_mul(16).ok_or_else(too_long)?;
            let end = start.checked_add(bytes).ok_or_else(too_long)?;
            let views = part.columns.slice::<u8>(part.node.buffer(1), end)?;
            for view in views.get(start..).unwrap_or_default().as_chunks::<16>().0 {
                let mut view = u128::from_le_bytes(*view);
                // The length is in the low 32 bits; past 12 the buffer number is in bits 64..96.
                if view & 0xffff_ffff > 12 {
                    view += u128::from(base.unsigned_abs()) << 64;
                }
                joined.extend(view.to_le_bytes());
            }
            for index in 2..part.node.n_buffers - 1 {
                data.push(part.columns.bytes(part.node.buffer(index))?);
            }
            base = i32::try_from(data.len()).map_err(|_| too_long())?;
        }
        buffers.push(self.keep_bytes(&[&joined])?);
        let mut lengths = Vec::new();
        for bytes in data {
            lengths.push(i64::try_from(bytes.len()).map_err(|_| too_long())?);
            buffers.push(self.keep_bytes(&[bytes])?);
        }
        buffers.push(self.keep_numbers(&lengths, Width::Eight)?);
        Ok(())
    }

    fn run_ends(&mut self, field: &Field, parts: &[Part<'_>; 2]) -> Result<usize> {
        let width = match field.children.first().map(|ends| &ends.ty) {
            Some(Type::Int { bits: 16, .. }) => Width::Two,
            Some(Type::Int { bits: 32, .. }) => Width::Four,
            _ => Width::Eight,
        };
        let mut joined = Vec::new();
        let mut runs = [(0, 0); 2];
        let mut base = 0i64;
        for (part, runs) in parts.iter().zip(&mut runs) {
            let (start, len) = (
                i64::try_from(part.start).map_err(|_| too_long())?,
                i64::try_from(part.len).map_err(|_| too_long())?,
            );
            let stop = start.checked_add(len).ok_or_else(too_long)?;
            let ends = part.child(0)?.numbers(1, width, 0)?;
            let first = ends.partition_point(|end| *end <= start);
            let mut before = start;
            for end in &ends[first.min(ends.len())..] {
                if before >= stop {
                    break;
                }
                before = (*end).min(stop);
                joined.push((before - start).checked_add(base).ok_or_else(too_long)?);
                runs.1 += 1;
            }
            runs.0 = first;
            base = base.checked_add(len).ok_or_else(too_long)?;
        }
        let ends = self.keep_numbers(&joined, width)?;
        let id = self.push(parts, Vec::new(), 2)?;
        let values = [
            parts[0].child_range(1, runs[0].0, runs[0].1)?,
            parts[1].child_range(1, runs[1].0, runs[1].1)?,
        ];
        let end_parts = [
            Part {
                len: runs[0].1,
                ..values[0]
            },
            Part {
                len: runs[1].1,
                ..values[1]
            },
        ];
        let ends = self.push(&end_parts, vec![Buffer::ABSENT, ends], 0)?;
        let first = self.out.nodes[id].first_child;
        self.out.children[first] = ends;
        if let Some(child) = field.children.get(1) {
            self.out.children[first + 1] = self.column(child, &values)?;
        }
        Ok(id)
    }
}

fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap
        .get(index / 8)
        .is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

/// Offsets of a dense union: those of the delta start after the old children.
fn dense_offsets(field: &Field, parts: &[Part<'_>; 2]) -> Result<Vec<i64>> {
    let Type::Union { ids, .. } = &field.ty else {
        return Ok(Vec::new());
    };
    let mut offsets = parts[0].numbers(1, Width::Four, 0)?;
    let types = parts[1].elements::<i8>(0, 0)?;
    for (offset, id) in parts[1].numbers(1, Width::Four, 0)?.into_iter().zip(types) {
        let child = ids
            .iter()
            .position(|other| other == id)
            .ok_or_else(too_long)?;
        let base = parts[0].child(child)?.node.length;
        offsets.push(offset.checked_add(base).ok_or_else(too_long)?);
    }
    Ok(offsets)
}
