//! Builds arrays from a header and its body. Makes the checks that need no time per row (level
//! `structure` of rule A8).

mod buffers;

use std::sync::Arc;

use arrow::ipc;

use crate::arrow::decode::body::ReceivedBody;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::columns::{
    Buffer, Columns, Dictionary, Node, ReceivedDictionaries, struct_bytes,
};
use crate::arrow::decode::compression::Codec;
use crate::arrow::decode::field::DecodedField;
use crate::arrow::decode::{children, empty};
use crate::arrow::format::{Layout, offset_width};
use crate::device::BufferRef;
use crate::error::{Error, Result};

/// The input of a build, besides the field.
pub(super) struct BuildContext<'a> {
    /// The latest dictionaries.
    pub(super) dictionaries: &'a Arc<ReceivedDictionaries>,
    /// True if all values are checked, even bitmaps of columns with a null count of 0.
    pub(super) full: bool,
    /// Metadata version 4: unions and run-end encoded arrays have a validity bitmap.
    pub(super) version_4: bool,
    /// The remaining memory budget of this message.
    pub(super) budget: &'a DecodeBudget<'a>,
}

/// Arrays, and the number of bytes that were copied or unpacked for them.
#[derive(Debug)]
pub(super) struct Built {
    /// Boxed, because many functions pass it on.
    pub(super) columns: Box<Columns>,
    pub(super) copied: u64,
    /// True if all columns took the [plain path](Builder::plain).
    pub(super) plain: bool,
}

/// Builds a record batch as one struct array with the columns of `root` as children. `spare` is
/// empty and provides memory.
pub(super) fn batch(
    context: &BuildContext<'_>,
    root: &DecodedField,
    header: &ipc::RecordBatch<'_>,
    body: &ReceivedBody,
    spare: Box<Columns>,
) -> Result<Built> {
    let mut builder = Builder::new(context, header, body, spare)?;
    builder.out.holds.dictionaries =
        (!context.dictionaries.is_empty()).then(|| Arc::clone(context.dictionaries));
    let node = Node {
        null_count: 0,
        n_buffers: 1,
        ..builder.out.blank(not_negative("rows", header.length())?, 0)
    };
    let id = builder.out.push(node, root.children.len());
    builder.out.buffers.push(Buffer::ABSENT);
    for (index, child) in root.children.iter().enumerate() {
        let column = builder.column(child)?;
        builder.adopt(id, index, column);
        let length = builder.out.nodes[column].length;
        if length != node.length {
            return Err(Error::invalid_data(format!(
                "column {:?} has {length} values in a batch of {} rows",
                child.name, node.length
            )));
        }
    }
    builder.finish()
}

/// Builds the values of a dictionary. `spare` is as in [`batch`].
pub(super) fn dictionary(
    context: &BuildContext<'_>,
    field: &DecodedField,
    header: &ipc::RecordBatch<'_>,
    body: &ReceivedBody,
    spare: Box<Columns>,
) -> Result<Built> {
    let mut builder = Builder::new(context, header, body, spare)?;
    builder
        .values(field)
        .map_err(|error| error.context("dictionary"))?;
    // On a GPU the lengths of view buffers are uploaded at the end.
    if builder.out.remote.is_none() {
        builder.out.settle()?;
    }
    builder.finish()
}

/// The two numbers of a node: the length and the null count.
#[inline]
fn numbers(node: &[u8; 16]) -> (i64, i64) {
    let (halves, _) = node.as_chunks::<8>();
    let number = |half: Option<&[u8; 8]>| half.map_or(0, |half| i64::from_le_bytes(*half));
    (number(halves.first()), number(halves.last()))
}

/// `align` is a power of two. A remainder would cost a division for each buffer.
#[inline]
pub(super) fn is_aligned(buffer: &BufferRef, align: usize) -> bool {
    buffer.data.addr() & (align - 1) == 0
}

/// The small functions are inlined: their results are large, and they run two or three times for
/// each column of each batch.
struct Builder<'a> {
    context: &'a BuildContext<'a>,
    /// The nodes as bytes, two numbers each. The generated code would make a call for each number.
    nodes: std::slice::Iter<'a, [u8; 16]>,
    buffers: std::slice::Iter<'a, BufferRef>,
    variadic: Option<flatbuffers::Vector<'a, i64>>,
    next_variadic: usize,
    codec: Option<Codec>,
    shared: bool,
    out: Box<Columns>,
    copied: u64,
    plain: bool,
}

/// Rule A4: compressed bodies must be sent, not lent.
pub(super) fn ensure_sent(body: &ReceivedBody) -> Result<()> {
    if body.shared {
        return Err(Error::protocol(
            "a compressed body was lent, but it must be sent",
        ));
    }
    Ok(())
}

#[inline]
fn not_negative(what: &str, number: i64) -> Result<i64> {
    if number < 0 {
        return Err(Error::invalid_data(format!("{what}: {number} is negative")));
    }
    Ok(number)
}

impl<'a> Builder<'a> {
    fn new(
        context: &'a BuildContext<'a>,
        header: &ipc::RecordBatch<'a>,
        body: &'a ReceivedBody,
        mut out: Box<Columns>,
    ) -> Result<Self> {
        let nodes = header.nodes().map_or(&[][..], |nodes| nodes.bytes());
        let nodes = nodes.as_chunks::<16>().0;
        let codec = Codec::of(header)?;
        if codec.is_some() {
            ensure_sent(body)?;
        }
        // The caller has copied compressed bodies from a GPU to the host.
        if codec.is_some() && out.remote.is_some() {
            return Err(Error::unsupported("a compressed body on a GPU"));
        }
        // The header does not count the root of a batch.
        let (n_nodes, n_buffers) = (
            nodes.len().saturating_add(1),
            body.buffers.len().saturating_add(1),
        );
        context.budget.take(struct_bytes(n_nodes, n_buffers))?;
        let reserved = (out.nodes.try_reserve(n_nodes))
            .and_then(|()| out.buffers.try_reserve(n_buffers))
            .and_then(|()| out.children.try_reserve(n_nodes));
        reserved.map_err(|_| Error::out_of_memory("no memory for the arrays of a message"))?;
        out.holds.body = Some(Arc::clone(&body.owner));
        Ok(Self {
            context,
            nodes: nodes.iter(),
            buffers: body.buffers.iter(),
            variadic: header.variadicBufferCounts(),
            next_variadic: 0,
            codec,
            shared: body.shared,
            out,
            copied: 0,
            plain: true,
        })
    }

    /// Rule A8: nodes and buffers beyond the schema's are as invalid as missing ones.
    fn finish(self) -> Result<Built> {
        let spare = |what: &str, count: usize| {
            if count == 0 {
                return Ok(());
            }
            Err(Error::invalid_data(format!(
                "the header has {count} {what} more than its schema"
            )))
        };
        spare("nodes", self.nodes.len())?;
        spare("buffers", self.buffers.len())?;
        let counts = self.variadic.map_or(0, |counts| counts.len());
        spare(
            "counts of view buffers",
            counts.saturating_sub(self.next_variadic),
        )?;
        Ok(Built {
            columns: self.out,
            copied: self.copied,
            plain: self.plain,
        })
    }

    #[inline]
    fn adopt(&mut self, parent: usize, index: usize, child: usize) {
        let first = self.out.nodes[parent].first_child;
        self.out.children[first + index] = child;
    }

    /// The next array of the header, dictionary-encoded or not.
    #[inline(always)]
    fn column(&mut self, field: &DecodedField) -> Result<usize> {
        let column = match field.dictionary {
            Some(_) => self.encoded(field),
            None => self.values(field),
        };
        column.map_err(|error| error.context(format_args!("column {:?}", field.name)))
    }

    /// The indices of a dictionary-encoded column, and its dictionary.
    fn encoded(&mut self, field: &DecodedField) -> Result<usize> {
        let Some(encoding) = field.dictionary else {
            return self.values(field);
        };
        let mut node = self.next_node()?;
        self.validity(&mut node)?;
        let width = encoding.width();
        self.elements(&mut node, width, width, 0)?;
        let id = self.out.push(node, 0);
        let dictionary = match self.context.dictionaries.get(&encoding.id) {
            Some(Dictionary {
                columns,
                generation,
                ..
            }) => {
                self.out.nodes[id].generation = *generation;
                // Many columns may use one dictionary.
                self.context.budget.take(columns.struct_bytes())?;
                if self.out.holds.dictionaries.is_some() {
                    self.out.append_held(columns)
                } else {
                    self.out.append(columns)
                }
            }
            // Some writers send no dictionary if no value refers to it.
            None if node.null_count == node.length => {
                let columns = Arc::new(empty::dictionary(field, self.context.budget)?);
                self.context.budget.take(columns.struct_bytes())?;
                self.out.append(&columns)
            }
            None => {
                return Err(Error::invalid_data(format!(
                    "dictionary {} is used before it was sent",
                    encoding.id
                )));
            }
        };
        self.out.nodes[id].dictionary = Some(dictionary);
        Ok(id)
    }

    /// An array of the field's own type.
    fn values(&mut self, field: &DecodedField) -> Result<usize> {
        let layout = field.layout;
        if let Layout::Fixed { width, align } = layout
            && let Some(id) = self.plain(width, align)
        {
            return Ok(id);
        }
        let mut node = self.next_node()?;
        if layout.has_validity() {
            self.validity(&mut node)?;
        } else {
            self.without_validity(layout, &mut node)?;
        }
        match layout {
            Layout::Null
            | Layout::Struct
            | Layout::FixedSizeList { .. }
            | Layout::RunEndEncoded => {}
            Layout::Boolean => {
                let bytes = node.len()?.div_ceil(8);
                self.buffer(&mut node, bytes, 1)?;
            }
            Layout::Fixed { width, align } => self.elements(&mut node, width, align, 0)?,
            Layout::Binary { large, .. } => {
                let offsets = self.offsets(&mut node, large)?;
                let (first, last) = children::range(&self.out, &node, offsets, large)?;
                // The offsets are in order and not negative: the last offset is the length.
                debug_assert!(first <= last);
                self.buffer(&mut node, last, 1)?;
            }
            Layout::View { .. } => self.views(&mut node)?,
            Layout::List { large } => {
                self.offsets(&mut node, large)?;
            }
            Layout::ListView { large } => {
                let width = offset_width(large);
                self.elements(&mut node, width, width, 0)?;
                self.elements(&mut node, width, width, 0)?;
            }
            Layout::Union { dense } => {
                self.elements(&mut node, 1, 1, 0)?;
                if dense {
                    self.elements(&mut node, 4, 4, 0)?;
                }
            }
        }
        let id = self.out.push(node, field.children.len());
        if field.children.is_empty() {
            return Ok(id);
        }
        for (index, child) in field.children.iter().enumerate() {
            let child = self.column(child)?;
            self.adopt(id, index, child);
        }
        children::check(&self.out, field, id)?;
        Ok(id)
    }

    /// An array of the most common kind: fixed width, no nulls, aligned, not compressed. `None` for
    /// all others, without a change: the general code handles them and their errors.
    #[inline(always)]
    fn plain(&mut self, width: usize, align: usize) -> Option<usize> {
        let [node, nodes @ ..] = self.nodes.as_slice() else {
            return None;
        };
        let [validity, values, buffers @ ..] = self.buffers.as_slice() else {
            return None;
        };
        let (length, null_count) = numbers(node);
        let need = usize::try_from(length).ok()?.checked_mul(width)?;
        let plain = self.codec.is_none()
            && null_count == 0
            // A bitmap without nulls is ignored, except at level full.
            && (validity.len == 0 || !self.context.full)
            && values.len != 0
            && values.len >= need
            && is_aligned(values, align);
        if !plain {
            return None;
        }
        self.nodes = nodes.iter();
        self.buffers = buffers.iter();
        let node = Node {
            n_buffers: 2,
            ..self.out.blank(length, 0)
        };
        let values = Buffer {
            at: *values,
            private: !self.shared,
        };
        self.out.buffers.push(Buffer::ABSENT);
        self.out.buffers.push(values);
        Some(self.out.push(node, 0))
    }

    #[inline(always)]
    fn next_node(&mut self) -> Result<Node> {
        self.plain = false;
        let node = self
            .nodes
            .next()
            .ok_or_else(|| Error::invalid_data("the header has fewer nodes than its schema"))?;
        let (length, null_count) = numbers(node);
        let length = not_negative("length", length)?;
        let null_count = not_negative("null count", null_count)?;
        if null_count > length {
            return Err(Error::invalid_data(format!(
                "{null_count} nulls among {length} values"
            )));
        }
        Ok(self.out.blank(length, null_count))
    }

    /// Handles types without a validity bitmap of their own.
    fn without_validity(&mut self, layout: Layout, node: &mut Node) -> Result<()> {
        if layout == Layout::Null {
            // All values are null, whatever the writer counted.
            node.null_count = node.length;
            return Ok(());
        }
        // Rule A6: in version 4 these types have a bitmap too. It must have no nulls, because the C
        // data interface has no place for it.
        if self.context.version_4 {
            self.next_buffer()?;
        }
        if node.null_count != 0 {
            return Err(Error::invalid_data(format!(
                "{} nulls in an array of a type that has no validity bitmap",
                node.null_count
            )));
        }
        Ok(())
    }
}
