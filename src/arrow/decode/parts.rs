//! Parts of arrays, for joins.

use std::sync::Arc;

use crate::arrow::decode::columns::{Columns, Node};
use crate::arrow::decode::plain::Plain;
use crate::error::{Error, Result};

/// A range of the values of one array.
#[derive(Clone, Copy)]
pub(super) struct ArrayPart<'a> {
    pub(super) columns: &'a Arc<Columns>,
    pub(super) node: &'a Node,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl<'a> ArrayPart<'a> {
    pub(super) fn whole(columns: &'a Arc<Columns>, id: usize) -> Result<Self> {
        let node = &columns.nodes[id];
        Ok(Self {
            columns,
            node,
            start: 0,
            len: node.len()?,
        })
    }

    pub(super) fn child(&self, index: usize) -> Result<Self> {
        Self::whole(self.columns, self.columns.children_of(self.node)[index])
    }

    pub(super) fn child_range(&self, index: usize, start: usize, len: usize) -> Result<Self> {
        Ok(Self {
            start,
            len,
            ..self.child(index)?
        })
    }

    /// The part of the only child, which has `size` values for each value of this part.
    pub(super) fn scaled_child(&self, size: usize) -> Result<Self> {
        let times = |count: usize| count.checked_mul(size).ok_or_else(too_long);
        self.child_range(0, times(self.start)?, times(self.len)?)
    }

    /// The elements of this part in a buffer with one element for each value, and `extra` more.
    pub(super) fn elements<T: Plain>(&self, buffer: usize, extra: usize) -> Result<&'a [T]> {
        let end = self
            .start
            .checked_add(self.len)
            .and_then(|end| end.checked_add(extra));
        let end = end.ok_or_else(too_long)?;
        let all = self.columns.slice::<T>(self.node.buffer(buffer), end)?;
        Ok(&all[self.start..])
    }

    /// The bytes of this part in a buffer of `width` bytes per value, and `extra` values more.
    pub(super) fn bytes(&self, buffer: usize, width: usize, extra: usize) -> Result<&'a [u8]> {
        let at = |count: usize| count.checked_mul(width).ok_or_else(too_long);
        let end = self.start.checked_add(self.len).ok_or_else(too_long)?;
        let end = at(end.checked_add(extra).ok_or_else(too_long)?)?;
        let all = self.columns.slice::<u8>(self.node.buffer(buffer), end)?;
        // For an empty part the start may be after the end.
        Ok(all.get(at(self.start)?..).unwrap_or_default())
    }

    /// The offsets, sizes or run ends of this part.
    pub(super) fn numbers(&self, buffer: usize, width: Width, extra: usize) -> Result<Numbers<'a>> {
        // An empty array may have no offsets.
        if self.len == 0 && self.columns.buffers[self.node.buffer(buffer)].at.len == 0 {
            return Ok(Numbers::Eight(&[0][..extra.min(1)]));
        }
        Ok(match width {
            Width::Two => Numbers::Two(self.elements(buffer, extra)?),
            Width::Four => Numbers::Four(self.elements(buffer, extra)?),
            Width::Eight => Numbers::Eight(self.elements(buffer, extra)?),
        })
    }
}

/// Numbers of one of three widths.
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    Two(&'a [i16]),
    Four(&'a [i32]),
    Eight(&'a [i64]),
}

impl Numbers<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Two(numbers) => numbers.len(),
            Self::Four(numbers) => numbers.len(),
            Self::Eight(numbers) => numbers.len(),
        }
    }

    /// The number at `index`; 0 after the end.
    pub(super) fn at(&self, index: usize) -> i64 {
        let number = match self {
            Self::Two(numbers) => numbers.get(index).map(|number| (*number).into()),
            Self::Four(numbers) => numbers.get(index).map(|number| (*number).into()),
            Self::Eight(numbers) => numbers.get(index).copied(),
        };
        number.unwrap_or(0)
    }

    /// The number of numbers up to `limit`; the numbers must be in order.
    pub(super) fn up_to(&self, limit: i64) -> usize {
        match self {
            Self::Two(numbers) => numbers.partition_point(|number| i64::from(*number) <= limit),
            Self::Four(numbers) => numbers.partition_point(|number| i64::from(*number) <= limit),
            Self::Eight(numbers) => numbers.partition_point(|number| *number <= limit),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Width {
    Two,
    Four,
    Eight,
}

impl Width {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    pub(super) fn of_offsets(large: bool) -> Self {
        if large { Self::Eight } else { Self::Four }
    }
}

pub(super) fn too_long() -> Error {
    Error::invalid_data("a dictionary joined with its delta is too long for its type")
}

pub(super) fn to_usize(number: i64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::invalid_data(format!("a negative offset {number}")))
}
