//! Arrow's types as a tree of fields, in the three spellings that libdipc meets: the format
//! strings of the C data interface, the tables of the IPC format, and [`Layout`], which says what
//! buffers an array of the type has.

mod field;
mod from_ipc;
mod metadata;
#[cfg(test)]
mod tests;
mod to_ipc;

pub use field::{DictionaryEncoding, Field, MAX_DEPTH, Schema};
pub use from_ipc::{ensure_little_endian, ensure_not_too_deep, index_type, metadata_from_ipc};
pub use metadata::{MAX_METADATA, Metadata, parse_metadata, write_metadata};
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

/// An Arrow type without its children. Parameters are known to be valid where a value exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// No values at all.
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
    /// Instants, 64 bits; the time zone is empty where there is none.
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
    /// Byte strings of one length, not negative.
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
    /// Lists of one length, not negative.
    FixedSizeList(i32),
    /// Lists of key and value.
    Map {
        /// The keys of each map are sorted.
        keys_sorted: bool,
    },
    /// A value of every child.
    Struct,
    /// A value of one child, with the type id of each child.
    Union {
        /// Values stand in their child densely, found by offsets.
        dense: bool,
        /// One id for each child, not negative.
        ids: Vec<i8>,
    },
    /// Runs of equal values: run ends, then values.
    RunEndEncoded,
}

/// What buffers and children the array of a type has, which is all that moving it needs.
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
        /// Bytes that typed access wants addresses to be a multiple of: at most 8, as the C data
        /// interface recommends.
        align: usize,
    },
    /// Validity, offsets, bytes.
    Binary {
        /// 64-bit offsets.
        large: bool,
        /// The bytes are UTF-8.
        utf8: bool,
    },
    /// Validity, views of 16 bytes, any number of byte buffers (and their lengths, in C).
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

/// A child of a field, as far as its parent's type minds.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Type of the values.
    pub ty: &'a Type,
    /// Whether it is dictionary-encoded.
    pub is_encoded: bool,
    /// How many children it has.
    pub children: usize,
}

impl Layout {
    /// Whether arrays begin with a validity bitmap.
    pub const fn has_validity(self) -> bool {
        !matches!(self, Self::Null | Self::Union { .. } | Self::RunEndEncoded)
    }
}

impl Type {
    /// The layout of arrays of this type. For a dictionary-encoded field this is the layout of the
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

    /// Reads a format string of the C data interface. What is wrong comes back as a text.
    pub fn parse(format: &str, keys_sorted: bool) -> Result<Self, String> {
        let int = |bits, signed| Self::Int { bits, signed };
        Ok(match format {
            "n" => Self::Null,
            "b" => Self::Boolean,
            "c" => int(8, true),
            "C" => int(8, false),
            "s" => int(16, true),
            "S" => int(16, false),
            "i" => int(32, true),
            "I" => int(32, false),
            "l" => int(64, true),
            "L" => int(64, false),
            "e" => Self::Float { bits: 16 },
            "f" => Self::Float { bits: 32 },
            "g" => Self::Float { bits: 64 },
            "z" => Self::Binary {
                large: false,
                utf8: false,
            },
            "Z" => Self::Binary {
                large: true,
                utf8: false,
            },
            "u" => Self::Binary {
                large: false,
                utf8: true,
            },
            "U" => Self::Binary {
                large: true,
                utf8: true,
            },
            "vz" => Self::View { utf8: false },
            "vu" => Self::View { utf8: true },
            "tdD" => Self::Date32,
            "tdm" => Self::Date64,
            "tiM" => Self::Interval(IntervalUnit::YearMonth),
            "tiD" => Self::Interval(IntervalUnit::DayTime),
            "tin" => Self::Interval(IntervalUnit::MonthDayNano),
            "+l" => Self::List { large: false },
            "+L" => Self::List { large: true },
            "+vl" => Self::ListView { large: false },
            "+vL" => Self::ListView { large: true },
            "+m" => Self::Map { keys_sorted },
            "+s" => Self::Struct,
            "+r" => Self::RunEndEncoded,
            _ => return Self::parse_parametric(format),
        })
    }

    fn parse_parametric(format: &str) -> Result<Self, String> {
        let unknown = || format!("the format string \"{format}\" is not known");
        let length = |text: &str| {
            text.parse::<i32>()
                .ok()
                .filter(|length| *length >= 0)
                .ok_or_else(unknown)
        };
        let unit =
            |letter: Option<char>| letter.and_then(TimeUnit::from_letter).ok_or_else(unknown);
        if let Some(parameters) = format.strip_prefix("d:") {
            return Self::parse_decimal(parameters).ok_or_else(unknown);
        }
        if let Some(width) = format.strip_prefix("w:") {
            return Ok(Self::FixedSizeBinary(length(width)?));
        }
        if let Some(size) = format.strip_prefix("+w:") {
            return Ok(Self::FixedSizeList(length(size)?));
        }
        if let Some(ids) = format.strip_prefix("+ud:") {
            return Ok(Self::Union {
                dense: true,
                ids: parse_ids(ids).ok_or_else(unknown)?,
            });
        }
        if let Some(ids) = format.strip_prefix("+us:") {
            return Ok(Self::Union {
                dense: false,
                ids: parse_ids(ids).ok_or_else(unknown)?,
            });
        }
        if let Some(rest) = format.strip_prefix("ts") {
            let (unit_letter, zone) = rest.split_once(':').ok_or_else(unknown)?;
            let mut letters = unit_letter.chars();
            let unit = unit(letters.next())?;
            if letters.next().is_some() {
                return Err(unknown());
            }
            return Ok(Self::Timestamp(unit, zone.to_owned()));
        }
        let mut letters = format.chars();
        match (
            letters.next(),
            letters.next(),
            letters.next(),
            letters.next(),
        ) {
            (Some('t'), Some('t'), letter, None) => Ok(Self::Time(unit(letter)?)),
            (Some('t'), Some('D'), letter, None) => Ok(Self::Duration(unit(letter)?)),
            _ => Err(unknown()),
        }
    }

    fn parse_decimal(parameters: &str) -> Option<Self> {
        let mut numbers = parameters.split(',').map(str::parse::<i32>);
        let precision = numbers.next()?.ok()?;
        let scale = numbers.next()?.ok()?;
        let bits = numbers.next().unwrap_or(Ok(128)).ok()?;
        if numbers.next().is_some() {
            return None;
        }
        Self::decimal(bits, precision, scale)
    }

    /// A decimal, where the width exists and holds the digits.
    pub fn decimal(bits: i32, precision: i32, scale: i32) -> Option<Self> {
        let (bits, digits) = match bits {
            32 => (32, 9),
            64 => (64, 18),
            128 => (128, 38),
            256 => (256, 76),
            _ => return None,
        };
        (1..=digits).contains(&precision).then_some(Self::Decimal {
            bits,
            precision,
            scale,
        })
    }

    /// The format string of the C data interface.
    pub fn format(&self) -> String {
        let fixed = match self {
            Self::Null => "n",
            Self::Boolean => "b",
            Self::Int {
                bits: 8,
                signed: true,
            } => "c",
            Self::Int {
                bits: 8,
                signed: false,
            } => "C",
            Self::Int {
                bits: 16,
                signed: true,
            } => "s",
            Self::Int {
                bits: 16,
                signed: false,
            } => "S",
            Self::Int {
                bits: 32,
                signed: true,
            } => "i",
            Self::Int {
                bits: 32,
                signed: false,
            } => "I",
            Self::Int { signed: true, .. } => "l",
            Self::Int { signed: false, .. } => "L",
            Self::Float { bits: 16 } => "e",
            Self::Float { bits: 32 } => "f",
            Self::Float { .. } => "g",
            Self::Binary {
                large: false,
                utf8: false,
            } => "z",
            Self::Binary {
                large: true,
                utf8: false,
            } => "Z",
            Self::Binary {
                large: false,
                utf8: true,
            } => "u",
            Self::Binary {
                large: true,
                utf8: true,
            } => "U",
            Self::View { utf8: false } => "vz",
            Self::View { utf8: true } => "vu",
            Self::Date32 => "tdD",
            Self::Date64 => "tdm",
            Self::Interval(IntervalUnit::YearMonth) => "tiM",
            Self::Interval(IntervalUnit::DayTime) => "tiD",
            Self::Interval(IntervalUnit::MonthDayNano) => "tin",
            Self::List { large: false } => "+l",
            Self::List { large: true } => "+L",
            Self::ListView { large: false } => "+vl",
            Self::ListView { large: true } => "+vL",
            Self::Map { .. } => "+m",
            Self::Struct => "+s",
            Self::RunEndEncoded => "+r",
            Self::Decimal {
                bits: 128,
                precision,
                scale,
            } => {
                return format!("d:{precision},{scale}");
            }
            Self::Decimal {
                bits,
                precision,
                scale,
            } => {
                return format!("d:{precision},{scale},{bits}");
            }
            Self::Time(unit) => return format!("tt{}", unit.letter()),
            Self::Timestamp(unit, zone) => return format!("ts{}:{zone}", unit.letter()),
            Self::Duration(unit) => return format!("tD{}", unit.letter()),
            Self::FixedSizeBinary(width) => return format!("w:{width}"),
            Self::FixedSizeList(size) => return format!("+w:{size}"),
            Self::Union { dense, ids } => {
                let ids: Vec<String> = ids.iter().map(i8::to_string).collect();
                return format!("+u{}:{}", if *dense { 'd' } else { 's' }, ids.join(","));
            }
        };
        fixed.to_owned()
    }

    /// How many children a field of this type has; `None` where any number will do.
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

    /// Checks the children of a field of this type. What is wrong comes back as a text.
    // Choice: entries and keys of maps, and run ends, may say that they can be null, which the
    // format forbids. Engines in use export maps so, nothing is read by that flag, and a consumer
    // that minds can see it.
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

impl TimeUnit {
    fn from_letter(letter: char) -> Option<Self> {
        match letter {
            's' => Some(Self::Second),
            'm' => Some(Self::Millisecond),
            'u' => Some(Self::Microsecond),
            'n' => Some(Self::Nanosecond),
            _ => None,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Second => 's',
            Self::Millisecond => 'm',
            Self::Microsecond => 'u',
            Self::Nanosecond => 'n',
        }
    }
}

/// Type ids of a union: numbers from 0 to 127, none twice.
fn parse_ids(text: &str) -> Option<Vec<i8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let ids: Vec<i8> = text
        .split(',')
        .map(|id| id.parse().ok())
        .collect::<Option<_>>()?;
    valid_ids(&ids).then_some(ids)
}

/// Whether ids of a union are numbers from 0 to 127, none twice.
pub(crate) fn valid_ids(ids: &[i8]) -> bool {
    let mut seen = [false; 128];
    ids.iter()
        .all(|id| usize::try_from(*id).is_ok_and(|id| !std::mem::replace(&mut seen[id], true)))
}
