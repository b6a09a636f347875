//! The nulls of a column.

use super::{Column, VALIDITY};
use crate::arrow::encode::bits::{BitRange, Bits};
use crate::arrow::encode::fault::{Checked, Fault};
use crate::arrow::format::Layout;

impl<'a> Column<'a> {
    /// The validity of `rows` rows from `start` on, a result of [`start`](Self::start). `None` if
    /// the array has no bitmap or a null count of 0.
    pub(in crate::arrow::encode) fn validity(
        &self,
        start: usize,
        rows: usize,
    ) -> Checked<Option<Bits<'a>>> {
        self.validity_range(start, rows)?
            .map(|range| self.read_bits(range))
            .transpose()
    }

    /// The address of [`validity`](Self::validity), without a read.
    pub(in crate::arrow::encode) fn validity_range(
        &self,
        start: usize,
        rows: usize,
    ) -> Checked<Option<BitRange>> {
        if !self.layout.has_validity() || self.array.null_count == 0 || rows == 0 {
            return Ok(None);
        }
        if self.pointer(VALIDITY).is_null() {
            return match self.array.null_count {
                -1 => Ok(None),
                count => Err(Fault::invalid(format!(
                    "the null count is {count} and the validity buffer is NULL"
                ))),
            };
        }
        self.bit_range(VALIDITY, "validity", start, rows).map(Some)
    }

    /// True if the layout has a bitmap and the array's null count is 0.
    #[inline]
    pub(in crate::arrow::encode) fn has_no_nulls(&self) -> bool {
        self.array.null_count == 0 && self.layout.has_validity()
    }

    /// The number of nulls in `rows` rows from `start` on (rule A2: for 0 there is no bitmap).
    pub(in crate::arrow::encode) fn null_count(&self, start: usize, rows: usize) -> Checked<usize> {
        if self.layout == Layout::Null {
            return Ok(rows);
        }
        let Some(range) = self.validity_range(start, rows)? else {
            return Ok(0);
        };
        // The producer's count is valid for the whole array only.
        match usize::try_from(self.array.null_count) {
            Ok(count) if rows == self.len => Ok(count),
            // SAFETY: the array lives and does not change during 'a, by the contract of `of_field`.
            _ => unsafe { self.memory.zeros(range) },
        }
    }
}
