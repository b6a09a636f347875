//! Arrays of length 0 that the decoder makes.

use crate::arrow::decode::columns::{Buffer, Columns, NO_LENGTHS, Node};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::Layout;

/// The dictionary of a column without a received dictionary, whose values are all null.
pub(super) fn dictionary(field: &DecodedField) -> Columns {
    let mut out = Columns::default();
    push_empty(&mut out, field);
    out
}

fn push_empty(out: &mut Columns, field: &DecodedField) -> usize {
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
            push_empty_encoded(out, child)
        } else {
            push_empty(out, child)
        };
        out.children[node.first_child + index] = child;
    }
    id
}

fn push_empty_encoded(out: &mut Columns, field: &DecodedField) -> usize {
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
    push_empty(out, field);
    id
}
