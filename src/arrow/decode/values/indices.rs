//! Checks that each dictionary index refers to a value.

use super::Checker;
use crate::arrow::decode::bits;
use crate::arrow::decode::columns::Node;
use crate::arrow::decode::counted::CountedList;
use crate::arrow::decode::index::Index;
use crate::arrow::decode::reachable::Ancestors;
use crate::device::HostBuffer;
use crate::error::{Error, Result};

impl Checker<'_> {
    pub(super) fn indices(
        &mut self,
        id: usize,
        bits: u8,
        signed: bool,
        ancestors: &Ancestors<'_>,
    ) -> Result<()> {
        let node = self.columns.nodes[id];
        self.validity(&node)?;
        let width = usize::from(bits / 8);
        self.make_private(node.buffer(1), node.len()?.saturating_mul(width))?;
        let values = node
            .dictionary
            .map_or(0, |dictionary| self.columns.nodes[dictionary].length);
        let outside = match (bits, signed) {
            (8, true) => self.outside::<i8>(&node, values, ancestors),
            (8, false) => self.outside::<u8>(&node, values, ancestors),
            (16, true) => self.outside::<i16>(&node, values, ancestors),
            (16, false) => self.outside::<u16>(&node, values, ancestors),
            (32, true) => self.outside::<i32>(&node, values, ancestors),
            (32, false) => self.outside::<u32>(&node, values, ancestors),
            (_, true) => self.outside::<i64>(&node, values, ancestors),
            (_, false) => self.outside::<u64>(&node, values, ancestors),
        }?;
        self.hide(id, &outside)
    }

    /// Makes unreachable rows null. The dictionary may have no value for them.
    pub(super) fn hide(&mut self, id: usize, rows: &[usize]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let node = self.columns.nodes[id];
        let (place, len) = (node.buffer(0), node.len()?);
        if self.columns.buffers[place].at.len == 0 {
            self.budget.take(len.div_ceil(8) as u64)?;
            let mut valid = HostBuffer::new(len.div_ceil(8))?;
            bits::fill(valid.as_mut_slice(), 0, len);
            self.columns.buffers[place] = self.columns.keep(valid);
        }
        self.change(place, len.div_ceil(8), |valid| {
            for row in rows {
                if let Some(byte) = valid.get_mut(row / 8) {
                    *byte &= !(1 << (row % 8));
                }
            }
            Ok(())
        })?;
        let hidden = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        self.columns.nodes[id].null_count = node.null_count.saturating_add(hidden);
        Ok(())
    }

    /// Unreachable rows that are not null and have an index outside of the dictionary. The format
    /// allows any index under a null.
    pub(super) fn outside<T: Index>(
        &self,
        node: &Node,
        values: i64,
        ancestors: &Ancestors<'_>,
    ) -> Result<Vec<usize>> {
        let valid = self.bitmap(node)?;
        let indices = self.columns.slice::<T>(node.buffer(1), node.len()?)?;
        if T::are_surely_below(indices, values) {
            return Ok(Vec::new());
        }
        let is_inside = |index: T| {
            let index = index.try_into();
            index.is_ok_and(|index| (0..values).contains(&index))
        };
        // The loop has no exit, so that the compiler can vectorise it.
        let Some(first) = indices.first().copied() else {
            return Ok(Vec::new());
        };
        let ends = |(least, most): (T, T), index: &T| (least.min(*index), most.max(*index));
        let (least, most) = indices.iter().fold((first, first), ends);
        if is_inside(least) && is_inside(most) {
            return Ok(Vec::new());
        }
        let mut outside = CountedList::new(self.budget);
        for (row, index) in indices.iter().enumerate() {
            if is_inside(*index) || !valid.get(row) {
                continue;
            }
            if self.is_reachable(Some(ancestors), row)? {
                return Err(Error::invalid_data(format!(
                    "row {row} refers to a value that its dictionary of {values} does not have"
                )));
            }
            outside.add(row)?;
        }
        Ok(outside.rows)
    }
}
