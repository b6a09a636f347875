//! The fields of a received stream, for decoding and the export.

use std::ffi::CString;
use std::sync::Arc;

use crate::arrow::format::{Layout, Type};

/// The dictionary encoding of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) id: i64,
    pub(super) bits: u8,
    pub(super) signed: bool,
    pub(super) ordered: bool,
}

impl Encoding {
    /// Bytes of one index.
    pub(super) fn width(self) -> usize {
        usize::from(self.bits / 8)
    }
}

/// A field. In a dictionary-encoded field, `ty` and `children` describe the dictionary.
#[derive(Debug)]
pub(super) struct DecodedField {
    pub(super) name: CString,
    pub(super) nullable: bool,
    /// In the encoding of the C data interface; empty without metadata.
    pub(super) metadata: Box<[u8]>,
    pub(super) ty: Type,
    /// The layout of the values, also with a dictionary. Stored, because every column of every
    /// batch needs it.
    pub(super) layout: Layout,
    /// The format string of the type of the values, also with a dictionary.
    pub(super) format: CString,
    pub(super) children: Vec<Arc<DecodedField>>,
    pub(super) dictionary: Option<Encoding>,
}

impl DecodedField {
    /// True if two fields have values of one type, so that one dictionary can serve both. Names and
    /// metadata do not matter; inner dictionaries do.
    pub(super) fn same_type(&self, other: &Self) -> bool {
        self.ty == other.ty
            && self.children.len() == other.children.len()
            && self.children.iter().zip(&other.children).all(|(a, b)| {
                a.dictionary.map(|encoding| encoding.id) == b.dictionary.map(|encoding| encoding.id)
                    && a.dictionary.map(Encoding::width) == b.dictionary.map(Encoding::width)
                    && a.same_type(b)
            })
    }
}
