//! Prediction of the reads that the encoder needs for a column on a GPU.

use super::column::Column;
use super::plan::{CopyRuns, VIEW};
use crate::arrow::format::{Layout, offset_width};

/// Requests the data to encode some rows of a column. Each read of unknown data is a request; known
/// data leads to further reads. Faults are ignored here, because the encoding meets them again.
pub(super) fn rows(column: &Column<'_>, first: usize, count: usize) {
    let Ok(start) = column.start(first, count) else {
        return;
    };
    let _ = column.null_count(start, count);
    let child = |index: usize, first: usize, count: usize| {
        if let Ok(child) = column.child(index) {
            rows(&child, first, count);
        }
    };
    let all = |index: usize| {
        if let Ok(child) = column.child(index) {
            rows(&child, 0, child.len);
        }
    };
    match column.layout {
        Layout::Null | Layout::Boolean | Layout::Fixed { .. } => {}
        Layout::Binary { large, .. } => {
            ends(column, start, count, offset_width(large));
        }
        Layout::View { .. } => {
            let _ = column.variadic();
        }
        Layout::List { large } => match ends(column, start, count, offset_width(large)) {
            Some(last) => child(0, 0, last),
            // The last offset is not known yet. Mostly it is the child's length.
            None => all(0),
        },
        Layout::ListView { .. } => all(0),
        Layout::FixedSizeList { size } => {
            if let (Some(first), Some(count)) = (start.checked_mul(size), count.checked_mul(size)) {
                child(0, first, count);
            }
        }
        Layout::Struct | Layout::Union { dense: false } => {
            (0..column.fields().len()).for_each(|index| child(index, start, count));
        }
        Layout::Union { dense: true } => (0..column.fields().len()).for_each(all),
        Layout::RunEndEncoded => {
            if let Ok(ends) = column.child(0) {
                values(&ends);
                rows(&ends, 0, ends.len);
            }
            match CopyRuns::of(column, start, count) {
                Ok(runs) => child(1, runs.first, runs.count),
                Err(_) => all(1),
            }
        }
    }
}

/// Requests the first and the last offset of some rows. Returns the last if both are known.
fn ends(column: &Column<'_>, start: usize, count: usize, width: usize) -> Option<usize> {
    if count == 0 {
        return Some(0);
    }
    let first = column.offset_at(1, "offsets", start, width);
    let last = column.offset_at(1, "offsets", start.checked_add(count)?, width);
    first.and(last).ok()
}

/// Requests all values of a column of fixed width.
fn values(column: &Column<'_>) {
    if let Layout::Fixed { width, .. } = column.layout
        && let Ok(start) = column.start(0, column.len)
    {
        let _ = column.elements(1, "values", start, column.len, width);
    }
}

/// Requests the whole array, for a comparison.
pub(super) fn whole(column: &Column<'_>) {
    let Ok(start) = column.start(0, column.len) else {
        return;
    };
    let len = column.len;
    let _ = column.validity(start, len);
    let part = |index: usize, count: usize, width: usize| {
        let _ = column.elements(index, "values", start, count, width);
    };
    match column.layout {
        Layout::Boolean => {
            let _ = column.bits(1, "values", start, len);
        }
        Layout::Fixed { .. } => values(column),
        Layout::Binary { large, .. } if len > 0 => {
            part(1, len + 1, offset_width(large));
            if let Ok(extent) = column.extent(offset_width(large)) {
                let _ = column.bytes(2, "data", 0, extent);
            }
        }
        Layout::View { .. } => {
            part(1, len, VIEW);
            for (index, len) in column.variadic().into_iter().flatten().enumerate() {
                if let Ok(len) = len {
                    let _ = column.bytes(index + 2, "variadic", 0, len);
                }
            }
        }
        Layout::List { large } if len > 0 => part(1, len + 1, offset_width(large)),
        Layout::ListView { large } => {
            part(1, len, offset_width(large));
            part(2, len, offset_width(large));
        }
        Layout::Union { dense } => {
            part(0, len, 1);
            if dense {
                part(1, len, 4);
            }
        }
        _ => {}
    }
    for index in 0..column.fields().len() {
        if let Ok(child) = column.child(index) {
            whole(&child);
        }
    }
}
