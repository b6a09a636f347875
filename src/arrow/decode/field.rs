//! The type tree of a received stream: what a field is, how its arrays lie in memory, and how the
//! C data interface writes its type.

use std::ffi::CString;
use std::sync::Arc;

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Milli,
    Micro,
    Nano,
}

impl Unit {
    fn letter(self) -> char {
        match self {
            Self::Second => 's',
            Self::Milli => 'm',
            Self::Micro => 'u',
            Self::Nano => 'n',
        }
    }
}

/// The three intervals of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interval {
    Months,
    DayTime,
    MonthDayNano,
}

/// A type, its parameters checked. Children are with the [`DecodedField`].
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DecodedType {
    Null,
    Bool,
    Int {
        bits: u8,
        signed: bool,
    },
    Float {
        bits: u8,
    },
    Decimal {
        bits: u16,
        precision: i32,
        scale: i32,
    },
    Date32,
    Date64,
    Time(Unit),
    Timestamp {
        unit: Unit,
        zone: String,
    },
    Duration(Unit),
    Interval(Interval),
    Bytes {
        large: bool,
        utf8: bool,
    },
    View {
        utf8: bool,
    },
    FixedBytes(i32),
    List {
        large: bool,
    },
    ListView {
        large: bool,
    },
    FixedList(i32),
    Map {
        sorted: bool,
    },
    Struct,
    Union {
        dense: bool,
        ids: Box<[i8]>,
    },
    RunEnds,
}

/// How arrays of a type lie in memory: all that building and checking them depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodedLayout {
    /// No buffers.
    Null,
    /// Validity, one bit for each value.
    Bits,
    /// Validity, `width` bytes for each value. `align` is what typed access needs, up to 8: the C
    /// data interface recommends 8, and consumers that want 16 for wide decimals copy those
    /// themselves.
    Fixed { width: usize, align: usize },
    /// Validity, offsets, bytes.
    Bytes { large: bool, utf8: bool },
    /// Validity, 16-byte views, any number of data buffers.
    Views { utf8: bool },
    /// Validity, offsets; one child. Maps too.
    List { large: bool },
    /// Validity, offsets, sizes; one child.
    ListView { large: bool },
    /// Validity; one child with `size` values for each.
    FixedList { size: usize },
    /// Validity; children of the same length.
    Struct,
    /// Type ids and, where dense, offsets; no validity since metadata version 5.
    Union { dense: bool },
    /// No buffers; run ends and values as children.
    RunEnds,
}

impl DecodedLayout {
    /// Whether the first buffer is a validity bitmap.
    pub(super) fn has_validity(self) -> bool {
        !matches!(self, Self::Null | Self::Union { .. } | Self::RunEnds)
    }
}

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
    pub(super) ty: DecodedType,
    /// Of the values, also where there is a dictionary. Known beforehand: it is asked for with
    /// every column of every batch.
    pub(super) layout: DecodedLayout,
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

impl DecodedType {
    pub(super) fn layout(&self) -> DecodedLayout {
        let fixed = |bits: u16| {
            let width = usize::from(bits / 8);
            DecodedLayout::Fixed {
                width,
                align: width.min(8),
            }
        };
        match *self {
            Self::Null => DecodedLayout::Null,
            Self::Bool => DecodedLayout::Bits,
            Self::Int { bits, .. } | Self::Float { bits } => fixed(u16::from(bits)),
            Self::Decimal { bits, .. } => fixed(bits),
            Self::Date32 | Self::Time(Unit::Second | Unit::Milli) => fixed(32),
            Self::Interval(Interval::Months) => fixed(32),
            Self::Date64 | Self::Time(_) | Self::Timestamp { .. } | Self::Duration(_) => fixed(64),
            Self::Interval(Interval::DayTime) => fixed(64),
            Self::Interval(Interval::MonthDayNano) => fixed(128),
            Self::Bytes { large, utf8 } => DecodedLayout::Bytes { large, utf8 },
            Self::View { utf8 } => DecodedLayout::Views { utf8 },
            // Parsing has refused negative sizes.
            Self::FixedBytes(width) => DecodedLayout::Fixed {
                width: width.unsigned_abs() as usize,
                align: 1,
            },
            Self::FixedList(size) => DecodedLayout::FixedList {
                size: size.unsigned_abs() as usize,
            },
            Self::List { large } => DecodedLayout::List { large },
            Self::Map { .. } => DecodedLayout::List { large: false },
            Self::ListView { large } => DecodedLayout::ListView { large },
            Self::Struct => DecodedLayout::Struct,
            Self::Union { dense, .. } => DecodedLayout::Union { dense },
            Self::RunEnds => DecodedLayout::RunEnds,
        }
    }

    /// The format string of the C data interface.
    pub(super) fn format(&self) -> String {
        match self {
            Self::Null => "n".into(),
            Self::Bool => "b".into(),
            Self::Int { bits, signed } => integer_format(*bits, *signed).into(),
            Self::Float { bits: 16 } => "e".into(),
            Self::Float { bits: 32 } => "f".into(),
            Self::Float { .. } => "g".into(),
            Self::Decimal {
                bits: 128,
                precision,
                scale,
            } => format!("d:{precision},{scale}"),
            Self::Decimal {
                bits,
                precision,
                scale,
            } => format!("d:{precision},{scale},{bits}"),
            Self::Date32 => "tdD".into(),
            Self::Date64 => "tdm".into(),
            Self::Time(unit) => format!("tt{}", unit.letter()),
            Self::Timestamp { unit, zone } => format!("ts{}:{zone}", unit.letter()),
            Self::Duration(unit) => format!("tD{}", unit.letter()),
            Self::Interval(Interval::Months) => "tiM".into(),
            Self::Interval(Interval::DayTime) => "tiD".into(),
            Self::Interval(Interval::MonthDayNano) => "tin".into(),
            Self::Bytes {
                large: false,
                utf8: false,
            } => "z".into(),
            Self::Bytes {
                large: true,
                utf8: false,
            } => "Z".into(),
            Self::Bytes {
                large: false,
                utf8: true,
            } => "u".into(),
            Self::Bytes {
                large: true,
                utf8: true,
            } => "U".into(),
            Self::View { utf8: false } => "vz".into(),
            Self::View { utf8: true } => "vu".into(),
            Self::FixedBytes(width) => format!("w:{width}"),
            Self::List { large: false } => "+l".into(),
            Self::List { large: true } => "+L".into(),
            Self::ListView { large: false } => "+vl".into(),
            Self::ListView { large: true } => "+vL".into(),
            Self::FixedList(size) => format!("+w:{size}"),
            Self::Map { .. } => "+m".into(),
            Self::Struct => "+s".into(),
            Self::Union { dense, ids } => {
                let ids: Vec<String> = ids.iter().map(i8::to_string).collect();
                format!("+u{}:{}", if *dense { 'd' } else { 's' }, ids.join(","))
            }
            Self::RunEnds => "+r".into(),
        }
    }
}

/// The format string of an integer; widths other than 8, 16 and 32 are 64.
pub(super) fn integer_format(bits: u8, signed: bool) -> &'static str {
    match (bits, signed) {
        (8, true) => "c",
        (8, false) => "C",
        (16, true) => "s",
        (16, false) => "S",
        (32, true) => "i",
        (32, false) => "I",
        (_, true) => "l",
        (_, false) => "L",
    }
}
