//! Arrow's types as a tree of fields. Conversions: to and from format strings of the C data
//! interface and tables of the IPC format, and to [`Layout`], the buffers of an array of the type.

mod c_format;
mod field;
mod from_ipc;
mod metadata;
#[cfg(test)]
mod tests;
mod to_ipc;

pub use field::{DictionaryEncoding, Field, MAX_DEPTH, Schema};
pub use from_ipc::{ensure_little_endian, ensure_not_too_deep, index_type, metadata_from_ipc};
pub use metadata::{
    MAX_METADATA, Metadata, metadata_bytes, parse_metadata, parse_pairs, write_metadata,
};
pub use to_ipc::metadata_to_ipc;

/// The unit of times, timestamps and durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Seconds.
    Second,
    /// Milliseconds.
    Millisecond,
    /// Microseconds.
    Microsecond,
    /// Nanoseconds.
    Nanosecond,
}

/// The unit of calendar intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntervalUnit {
    /// 4 bytes: months.
    YearMonth,
    /// 8 bytes: days and milliseconds.
    DayTime,
    /// 16 bytes: months, days and nanoseconds.
    MonthDayNano,
}

/// An Arrow type without its children. The parameters of a value are valid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// No values.
    Null,
    /// One bit each.
    Boolean,
    /// Integers of 8, 16, 32 or 64 bits.
    Int {
        /// Width of a value.
        bits: u8,
        /// Two's complement or unsigned.
        signed: bool,
    },
    /// Floating point of 16, 32 or 64 bits.
    Float {
        /// Width of a value.
        bits: u8,
    },
    /// Decimals of 32, 64, 128 or 256 bits.
    Decimal {
        /// Width of a value.
        bits: u16,
        /// Number of decimal digits.
        precision: i32,
        /// Digits after the point; may be negative.
        scale: i32,
    },
    /// Days since the epoch, 32 bits.
    Date32,
    /// Milliseconds since the epoch, 64 bits.
    Date64,
    /// Time of day: 32 bits down to milliseconds, 64 bits below.
    Time(TimeUnit),
    /// Instants, 64 bits; without a time zone the string is empty.
    Timestamp(TimeUnit, String),
    /// Elapsed time, 64 bits.
    Duration(TimeUnit),
    /// Calendar intervals.
    Interval(IntervalUnit),
    /// Byte strings with offsets.
    Binary {
        /// 64-bit offsets.
        large: bool,
        /// The bytes are UTF-8.
        utf8: bool,
    },
    /// Byte strings with views.
    View {
        /// The bytes are UTF-8.
        utf8: bool,
    },
    /// Byte strings of one length, which is not negative.
    FixedSizeBinary(i32),
    /// Lists with offsets.
    List {
        /// 64-bit offsets.
        large: bool,
    },
    /// Lists with offsets and sizes.
    ListView {
        /// 64-bit offsets and sizes.
        large: bool,
    },
    /// Lists of one length, which is not negative.
    FixedSizeList(i32),
    /// Lists of key-value pairs.
    Map {
        /// The keys of each map are sorted.
        keys_sorted: bool,
    },
    /// One value of each child.
    Struct,
    /// A value of one child; a type id selects the child.
    Union {
        /// Each child has only its own values, which offsets locate.
        dense: bool,
        /// One id for each child, from 0 to 127.
        ids: Vec<i8>,
    },
    /// Runs of equal values: run ends, then values.
    RunEndEncoded,
}

/// The buffers and children of an array of a type; a transfer needs no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// No buffers.
    Null,
    /// Validity, values of one bit.
    Boolean,
    /// Validity, values of `width` bytes.
    Fixed {
        /// Bytes for each value.
        width: usize,
        /// Alignment of addresses for typed access, in bytes: at most 8, as the C data interface
        /// recommends.
        align: usize,
    },
    /// Validity, offsets, bytes.
    Binary {
        /// 64-bit offsets.
        large: bool,
        /// The bytes are UTF-8.
        utf8: bool,
    },
    /// Validity, views of 16 bytes, any number of byte buffers (in C also their lengths).
    View {
        /// The bytes are UTF-8.
        utf8: bool,
    },
    /// Validity, offsets; one child.
    List {
        /// 64-bit offsets.
        large: bool,
    },
    /// Validity, offsets, sizes; one child.
    ListView {
        /// 64-bit offsets and sizes.
        large: bool,
    },
    /// Validity; one child.
    FixedSizeList {
        /// Values for each list.
        size: usize,
    },
    /// Validity; children of the same length.
    Struct,
    /// Type ids and, when dense, offsets; no validity (metadata V5, rule A6).
    Union {
        /// With offsets.
        dense: bool,
    },
    /// No buffers; run ends and values as children.
    RunEndEncoded,
}

/// Bytes of an offset.
pub fn offset_width(large: bool) -> usize {
    if large { 8 } else { 4 }
}

/// The properties of a child that its parent's type checks.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Type of the values.
    pub ty: &'a Type,
    /// True if the child is dictionary-encoded.
    pub is_encoded: bool,
    /// The number of the child's own children.
    pub children: usize,
}

impl Layout {
    /// True if arrays begin with a validity bitmap.
    pub const fn has_validity(self) -> bool {
        !matches!(self, Self::Null | Self::Union { .. } | Self::RunEndEncoded)
    }

    /// The number of buffers in C, without the variadic buffers of views.
    #[inline]
    pub const fn buffers(self) -> u8 {
        match self {
            Self::Null | Self::RunEndEncoded => 0,
            Self::Struct | Self::FixedSizeList { .. } | Self::Union { dense: false } => 1,
            Self::Boolean
            | Self::Fixed { .. }
            | Self::List { .. }
            | Self::Union { dense: true } => 2,
            Self::Binary { .. } | Self::ListView { .. } | Self::View { .. } => 3,
        }
    }
}

impl Type {
    /// The layout of arrays of this type. For a dictionary-encoded field, the layout of the
    /// dictionary; see [`Field::layout`].
    pub fn layout(&self) -> Layout {
        let fixed = |bits: u16| {
            let width = usize::from(bits / 8);
            Layout::Fixed {
                width,
                align: width.min(8),
            }
        };
        match self {
            Self::Null => Layout::Null,
            Self::Boolean => Layout::Boolean,
            Self::Int { bits, .. } | Self::Float { bits } => fixed(u16::from(*bits)),
            Self::Decimal { bits, .. } => fixed(*bits),
            Self::Date32
            | Self::Time(TimeUnit::Second | TimeUnit::Millisecond)
            | Self::Interval(IntervalUnit::YearMonth) => fixed(32),
            Self::Date64
            | Self::Time(TimeUnit::Microsecond | TimeUnit::Nanosecond)
            | Self::Timestamp(..)
            | Self::Duration(_)
            | Self::Interval(IntervalUnit::DayTime) => fixed(64),
            Self::Interval(IntervalUnit::MonthDayNano) => fixed(128),
            Self::Binary { large, utf8 } => Layout::Binary {
                large: *large,
                utf8: *utf8,
            },
            Self::View { utf8 } => Layout::View { utf8: *utf8 },
            Self::FixedSizeBinary(width) => Layout::Fixed {
                width: usize::try_from(*width).unwrap_or(0),
                align: 1,
            },
            Self::List { large } => Layout::List { large: *large },
            Self::Map { .. } => Layout::List { large: false },
            Self::ListView { large } => Layout::ListView { large: *large },
            Self::FixedSizeList(size) => Layout::FixedSizeList {
                size: usize::try_from(*size).unwrap_or(0),
            },
            Self::Struct => Layout::Struct,
            Self::Union { dense, .. } => Layout::Union { dense: *dense },
            Self::RunEndEncoded => Layout::RunEndEncoded,
        }
    }

    /// The number of children of a field of this type; `None` if any number is valid.
    pub fn child_count(&self) -> Option<usize> {
        match self {
            Self::List { .. }
            | Self::ListView { .. }
            | Self::FixedSizeList(_)
            | Self::Map { .. } => Some(1),
            Self::RunEndEncoded => Some(2),
            Self::Union { ids, .. } => Some(ids.len()),
            Self::Struct => None,
            _ => Some(0),
        }
    }

    /// Checks the children of a field of this type. The error is a text.
    // Choice: entries and keys of maps, and run ends, may have the nullable flag, which the format
    // forbids. Common engines export such maps, and the flag promises nothing that code relies on.
    pub fn check_children<'a>(
        &self,
        mut children: impl ExactSizeIterator<Item = Child<'a>>,
    ) -> Result<(), String> {
        let count = children.len();
        if let Some(wanted) = self.child_count().filter(|wanted| *wanted != count) {
            return Err(format!(
                "type {} has {count} children where it must have {wanted}",
                self.format()
            ));
        }
        let first = children.next();
        match (self, first) {
            (Self::Map { .. }, Some(entries))
                if *entries.ty != Self::Struct || entries.is_encoded || entries.children != 2 =>
            {
                Err("the child of a map must be a struct of a key and a value".to_owned())
            }
            (Self::RunEndEncoded, Some(ends))
                if ends.is_encoded
                    || !matches!(
                        ends.ty,
                        Self::Int {
                            bits: 16 | 32 | 64,
                            signed: true
                        }
                    ) =>
            {
                Err("run ends must be signed integers of 16, 32 or 64 bits".to_owned())
            }
            _ => Ok(()),
        }
    }
}
