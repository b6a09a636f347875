//! The fields of a received stream, as decoding and exporting need them.

use std::ffi::CString;
use std::sync::Arc;

use crate::arrow::format::{Layout, Type};

/// How the values of a field refer to a dictionary.
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

/// A field. Where it is dictionary-encoded, `ty` and `children` are those of the dictionary.
#[derive(Debug)]
pub(super) struct DecodedField {
    pub(super) name: CString,
    pub(super) nullable: bool,
    /// As the C data interface encodes it; empty where there is none.
    pub(super) metadata: Box<[u8]>,
    pub(super) ty: Type,
    /// Of the values, also where there is a dictionary. Known beforehand: it is asked for with
    /// every column of every batch.
    pub(super) layout: Layout,
    /// The type as the C data interface writes it: of the values, also where there is a dictionary.
    pub(super) format: CString,
    pub(super) children: Vec<Arc<DecodedField>>,
    pub(super) dictionary: Option<Encoding>,
}

impl DecodedField {
    /// Whether two fields hold values of one type, so that one dictionary can serve both. Names
    /// and metadata do not matter, inner dictionaries do.
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
