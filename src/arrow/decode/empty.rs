//! Arrays of length 0 that the decoder makes.

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::columns::{Buffer, Columns, Node, struct_bytes};
use crate::arrow::decode::field::DecodedField;
use crate::error::Result;

/// Most buffers of an array of length 0.
const MOST_BUFFERS: usize = 3;

/// The dictionary of a column without a received dictionary, whose values are all null. It counts
/// against the budget, because it may have many fields, and its batch few bytes.
pub(super) fn dictionary(field: &DecodedField, budget: &DecodeBudget<'_>) -> Result<Columns> {
    let mut out = Columns::default();
    push_empty(&mut out, field, budget)?;
    Ok(out)
}

fn push_empty(out: &mut Columns, field: &DecodedField, budget: &DecodeBudget<'_>) -> Result<usize> {
    budget.take(struct_bytes(1, MOST_BUFFERS))?;
    let layout = field.layout;
    let mut node = out.blank(0, 0);
    if layout.has_validity() {
        out.buffers.push(Buffer::ABSENT);
    }
    node.n_buffers = usize::from(layout.buffers());
    out.buffers
        .resize(node.first_buffer + node.n_buffers, Buffer::empty());
    let id = out.push(node, field.children.len());
    for (index, child) in field.children.iter().enumerate() {
        let child = if child.dictionary.is_some() {
            push_empty_encoded(out, child, budget)?
        } else {
            push_empty(out, child, budget)?
        };
        out.children[node.first_child + index] = child;
    }
    Ok(id)
}

fn push_empty_encoded(
    out: &mut Columns,
    field: &DecodedField,
    budget: &DecodeBudget<'_>,
) -> Result<usize> {
    budget.take(struct_bytes(1, MOST_BUFFERS))?;
    let node = Node {
        n_buffers: 2,
        dictionary: Some(out.nodes.len() + 1),
        ..out.blank(0, 0)
    };
    let id = out.push(node, 0);
    out.buffers.extend([Buffer::ABSENT, Buffer::empty()]);
    push_empty(out, field, budget)?;
    Ok(id)
}
