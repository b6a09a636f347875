//! Checks of children and buffers against their array, as far as headers and the first and last
//! offset tell (level `structure` of rule A8).

use crate::arrow::decode::columns::{Columns, Node};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::{Layout, Type};
use crate::error::{Error, Result};

/// The first and the last offset; they must be in order and not negative.
pub(super) fn range(
    columns: &Columns,
    node: &Node,
    offsets: usize,
    large: bool,
) -> Result<(usize, usize)> {
    if columns.buffers[offsets].at.len == 0 {
        return Ok((0, 0));
    }
    let read = |index| -> Result<i64> {
        if large {
            columns.read_once::<i64>(offsets, index)
        } else {
            columns.read_once::<i32>(offsets, index).map(i64::from)
        }
    };
    let (first, last) = (read(0)?, read(node.len()?)?);
    match (usize::try_from(first), usize::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(Error::invalid_data(format!(
            "offsets that run from {first} to {last}"
        ))),
    }
}

/// Checks that the children fit their parent, by headers and the first and last offset.
pub(super) fn check(columns: &Columns, field: &DecodedField, id: usize) -> Result<()> {
    let node = &columns.nodes[id];
    let at_least = |index: usize, need: usize| {
        let length = columns.child(node, index).len()?;
        if length < need {
            return Err(Error::invalid_data(format!(
                "a child has {length} values, its parent of length {} needs {need}",
                node.length
            )));
        }
        Ok(())
    };
    match field.layout {
        Layout::Struct | Layout::Union { dense: false } => {
            (0..node.n_children).try_for_each(|index| at_least(index, node.len()?))
        }
        Layout::FixedSizeList { size } => {
            let need = node.len()?.checked_mul(size).ok_or_else(|| {
                Error::invalid_data(format!("{} lists of {size} values", node.length))
            })?;
            at_least(0, need)
        }
        Layout::List { large } => {
            let (_, last) = range(columns, node, node.buffer(1), large)?;
            at_least(0, last)?;
            if matches!(field.ty, Type::Map { .. }) {
                check_map(columns, node)
            } else {
                Ok(())
            }
        }
        Layout::RunEndEncoded => check_run_ends(columns, field, node),
        _ => Ok(()),
    }
}

/// Neither the entries nor the keys of a map may be null.
fn check_map(columns: &Columns, node: &Node) -> Result<()> {
    let entries = columns.child(node, 0);
    let keys = columns.child(entries, 0);
    if entries.null_count != 0 || keys.null_count != 0 {
        return Err(Error::invalid_data(format!(
            "a map has {} null entries and {} null keys: neither may be null",
            entries.null_count, keys.null_count
        )));
    }
    Ok(())
}

fn check_run_ends(columns: &Columns, field: &DecodedField, node: &Node) -> Result<()> {
    let (ends, values) = (columns.child(node, 0), columns.child(node, 1));
    if ends.null_count != 0 {
        return Err(Error::invalid_data("a run end is null"));
    }
    if ends.length != values.length {
        return Err(Error::invalid_data(format!(
            "{} run ends and {} values",
            ends.length, values.length
        )));
    }
    let last = match ends.len()?.checked_sub(1) {
        Some(last) => run_end(columns, field, ends, last)?,
        None => 0,
    };
    // On a GPU, a value that is not fetched yet reads as 0.
    if last < node.length && !columns.is_waiting() {
        return Err(Error::invalid_data(format!(
            "the last run ends at {last}, before the array's length {}",
            node.length
        )));
    }
    Ok(())
}

/// The end of run `index`.
pub(super) fn run_end(
    columns: &Columns,
    field: &DecodedField,
    ends: &Node,
    index: usize,
) -> Result<i64> {
    let buffer = ends.buffer(1);
    match field.children.first().map(|ends| &ends.ty) {
        Some(Type::Int { bits: 16, .. }) => columns.read_once::<i16>(buffer, index).map(i64::from),
        Some(Type::Int { bits: 32, .. }) => columns.read_once::<i32>(buffer, index).map(i64::from),
        _ => columns.read_once::<i64>(buffer, index),
    }
}
