//! Reuse of the last batch's lists for a batch with the same header, if all columns have a fixed
//! width and no nulls. Only the addresses of the buffers differ, so the header is not read again.

use std::sync::Arc;

use crate::arrow::decode::body::ReceivedBody;
use crate::arrow::decode::build::is_aligned;
use crate::arrow::decode::columns::{Buffer, Columns};
use crate::arrow::decode::field::DecodedField;
use crate::arrow::format::Layout;
use crate::proto::Header;

/// The lists of the last batch; their memory serves the next batch.
#[derive(Debug, Default)]
pub(super) struct SpareColumns {
    columns: Option<Box<Columns>>,
    /// The batch that the lists describe; `None` if they are empty.
    plain: Option<PlainBatch>,
}

/// A batch with only columns of fixed width, without nulls or copies. Each column has two buffers,
/// of which the first (validity) is not exported.
#[derive(Debug)]
pub(super) struct PlainBatch {
    header: Header,
    pub(super) rows: u64,
    /// The largest alignment that a column needs; a power of two.
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
    /// The lists, emptied.
    pub(super) fn take(&mut self) -> Box<Columns> {
        let mut columns = self.columns.take().unwrap_or_default();
        if self.plain.take().is_some() {
            columns.clear();
        }
        columns
    }

    /// The arrays of a batch like the last one. The caller has checked the body against the header.
    pub(super) fn reuse(
        &mut self,
        header: &Header,
        body: &ReceivedBody,
    ) -> Option<(Box<Columns>, PlainBatch)> {
        let plain = self.plain.take_if(|plain| {
            let aligned = |buffer| is_aligned(buffer, plain.align);
            plain.header.is(header) && body.gpu.is_none() && body.buffers.iter().all(aligned)
        })?;
        let mut columns = self.columns.take()?;
        // The first buffer belongs to the batch itself.
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

    /// Keeps the lists of an exported batch, and the batch that they describe.
    pub(super) fn put(&mut self, mut columns: Box<Columns>, plain: Option<PlainBatch>) {
        if plain.is_none() {
            columns.clear();
        }
        self.plain = plain;
        self.columns = Some(columns);
    }
}

/// The largest alignment that the fixed-width columns of `root` need.
pub(super) fn alignment(root: &DecodedField) -> usize {
    let columns = root.children.iter().map(|column| match column.layout {
        Layout::Fixed { align, .. } => align,
        _ => 1,
    });
    columns.max().unwrap_or(1)
}
