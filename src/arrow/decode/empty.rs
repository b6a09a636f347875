//! Arrays of length 0 that the decoder makes.

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::columns::{Buffer, Columns, NO_LENGTHS, Node, struct_bytes};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::Layout;
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
    let id = out.nodes.len();
    let n_children = field.children.len();
    let mut node = Node {
        length: 0,
        null_count: 0,
        first_buffer: out.buffers.len(),
        n_buffers: 0,
        first_child: out.children.len(),
        n_children,
        dictionary: None,
        generation: 0,
        lengths: NO_LENGTHS,
    };
    let rest = match layout {
        Layout::Null | Layout::FixedSizeList { .. } | Layout::Struct | Layout::RunEndEncoded => 0,
        Layout::Boolean | Layout::Fixed { .. } | Layout::List { .. } => 1,
        Layout::Union { dense } => 1 + usize::from(dense),
        Layout::Binary { .. } | Layout::ListView { .. } | Layout::View { .. } => 2,
    };
    if layout.has_validity() {
        out.buffers.push(Buffer::ABSENT);
        node.n_buffers += 1;
    }
    out.buffers
        .extend(std::iter::repeat_n(Buffer::empty(), rest));
    node.n_buffers += rest;
    out.nodes.push(node);
    out.children.resize(node.first_child + n_children, 0);
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
    let id = out.nodes.len();
    out.nodes.push(Node {
        length: 0,
        null_count: 0,
        first_buffer: out.buffers.len(),
        n_buffers: 2,
        first_child: out.children.len(),
        n_children: 0,
        dictionary: Some(id + 1),
        generation: 0,
        lengths: NO_LENGTHS,
    });
    out.buffers.extend([Buffer::ABSENT, Buffer::empty()]);
    push_empty(out, field, budget)?;
    Ok(id)
}
