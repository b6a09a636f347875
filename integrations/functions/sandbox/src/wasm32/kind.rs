use arrow::datatypes::{DataType, IntervalUnit, UnionMode};

/// How the values of a type lie in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bits,
    /// Values of so many bytes; `dictionary`: they point into one.
    Fixed {
        width: usize,
        dictionary: bool,
    },
    /// Offsets of `width` bytes into bytes.
    Variable {
        width: usize,
    },
    View,
    /// Offsets of `width` bytes into a child.
    List {
        width: usize,
    },
    /// Offsets and sizes of `width` bytes.
    ListView {
        width: usize,
    },
    FixedList {
        size: usize,
    },
    Struct,
    Union {
        dense: bool,
    },
    Runs,
}

impl Kind {
    /// The kind of a type, or `None` if its parameters make no type.
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        use DataType as D;
        Some(match data_type {
            D::Null => Self::Null,
            D::Boolean => Self::Bits,
            D::Binary | D::Utf8 => Self::Variable { width: 4 },
            D::LargeBinary | D::LargeUtf8 => Self::Variable { width: 8 },
            D::BinaryView | D::Utf8View => Self::View,
            D::List(_) | D::Map(_, _) => Self::List { width: 4 },
            D::LargeList(_) => Self::List { width: 8 },
            D::ListView(_) => Self::ListView { width: 4 },
            D::LargeListView(_) => Self::ListView { width: 8 },
            D::FixedSizeList(_, size) => Self::FixedList {
                size: usize::try_from(*size).ok()?,
            },
            D::Struct(_) => Self::Struct,
            D::Union(_, mode) => Self::Union {
                dense: *mode == UnionMode::Dense,
            },
            D::RunEndEncoded(_, _) => Self::Runs,
            D::Dictionary(key, _) if key.is_dictionary_key_type() => Self::Fixed {
                width: key.primitive_width()?,
                dictionary: true,
            },
            D::Dictionary(_, _) => return None,
            D::FixedSizeBinary(width) => Self::Fixed {
                width: usize::try_from(*width).ok()?,
                dictionary: false,
            },
            D::Interval(IntervalUnit::MonthDayNano) => Self::Fixed {
                width: 16,
                dictionary: false,
            },
            other => Self::Fixed {
                width: other.primitive_width()?,
                dictionary: false,
            },
        })
    }

    /// True if the first buffer is a bitmap of what is not null.
    pub(super) fn has_validity(self) -> bool {
        !matches!(self, Self::Null | Self::Union { .. } | Self::Runs)
    }

    /// Buffers, with that of the nulls. Views have one more for each of their data, and the sizes
    /// of these.
    pub(super) fn buffers(self) -> usize {
        match self {
            Self::Null | Self::Runs => 0,
            Self::Struct | Self::FixedList { .. } | Self::Union { dense: false } => 1,
            Self::Bits | Self::Fixed { .. } | Self::List { .. } | Self::Union { dense: true } => 2,
            Self::Variable { .. } | Self::ListView { .. } | Self::View => 3,
        }
    }
}

/// The types of a type's children.
pub(super) fn children(data_type: &DataType) -> Vec<&DataType> {
    use DataType as D;
    match data_type {
        D::List(f)
        | D::LargeList(f)
        | D::ListView(f)
        | D::LargeListView(f)
        | D::FixedSizeList(f, _)
        | D::Map(f, _) => vec![f.data_type()],
        D::Struct(fields) => fields.iter().map(|f| f.data_type()).collect(),
        D::Union(fields, _) => fields.iter().map(|(_, f)| f.data_type()).collect(),
        D::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}
