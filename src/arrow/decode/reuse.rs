//! A batch like the one before: the same header, over columns of fixed width without nulls. Only
//! where its buffers lie is new, so that nothing is read from the header again.

use std::sync::Arc;

use crate::arrow::decode::body::ReceivedBody;
use crate::arrow::decode::build::is_aligned;
use crate::arrow::decode::columns::{Buffer, Columns};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::Layout;
use crate::proto::Header;

/// The lists of the last batch, whose memory serves the next one.
#[derive(Debug, Default)]
pub(super) struct SpareColumns {
    columns: Option<Box<Columns>>,
    /// What they describe still; `None`: they are empty.
    plain: Option<PlainBatch>,
}

/// A batch of nothing but columns of fixed width, without nulls and used where they lie: two
/// buffers each, of which the first is not handed out.
#[derive(Debug)]
pub(super) struct PlainBatch {
    header: Header,
    pub(super) rows: u64,
    /// The most that a column asks for; a power of two.
    align: usize,
}

impl PlainBatch {
    /// `align` is [`alignment`] of the schema.
    pub(super) fn new(header: &Header, align: usize, rows: u64) -> Self {
        Self {
            header: header.clone(),
            rows,
            align,
        }
    }
}

impl SpareColumns {
    /// Empty lists.
    pub(super) fn take(&mut self) -> Box<Columns> {
        let mut columns = self.columns.take().unwrap_or_default();
        if self.plain.take().is_some() {
            columns.clear();
        }
        columns
    }

    /// The arrays of a batch like the last one. The body is known to be that of the header.
    pub(super) fn again(
        &mut self,
        header: &Header,
        body: &ReceivedBody,
    ) -> Option<(Box<Columns>, PlainBatch)> {
        let plain = self.plain.take_if(|plain| {
            let aligned = |buffer| is_aligned(buffer, plain.align);
            plain.header.is(header) && body.gpu.is_none() && body.buffers.iter().all(aligned)
        })?;
        let mut columns = self.columns.take()?;
        // The first buffer is that of the batch itself.
        let places = columns.buffers.get_mut(1..).unwrap_or_default();
        let places = places.as_chunks_mut::<2>().0;
        for ([_, place], [_, values]) in places.iter_mut().zip(body.buffers.as_chunks::<2>().0) {
            *place = Buffer {
                at: *values,
                private: !body.shared,
            };
        }
        columns.holds.body = Some(Arc::clone(&body.owner));
        Some((columns, plain))
    }

    /// Takes the lists of a batch that has been handed out, and what they describe.
    pub(super) fn put(&mut self, mut columns: Box<Columns>, plain: Option<PlainBatch>) {
        if plain.is_none() {
            columns.clear();
        }
        self.plain = plain;
        self.columns = Some(columns);
    }
}

/// The most that a column of fixed width among those of `root` asks for.
pub(super) fn alignment(root: &DecodedField) -> usize {
    let columns = root.children.iter().map(|column| match column.layout {
        Layout::Fixed { align, .. } => align,
        _ => 1,
    });
    columns.max().unwrap_or(1)
}
