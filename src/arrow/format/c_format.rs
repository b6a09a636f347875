//! Types as the format strings of the C data interface.

use super::{IntervalUnit, TimeUnit, Type};

impl Type {
    /// Parses a format string of the C data interface. The error is a text.
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
        Self::decimal(bits, precision, scale).ok()
    }

    /// A decimal of a width that exists and has room for the digits. The error is a text.
    pub(super) fn decimal(bits: i32, precision: i32, scale: i32) -> Result<Self, String> {
        // The most digits of each width.
        let (bits, most) = match bits {
            32 => (32, 9),
            64 => (64, 18),
            128 => (128, 38),
            256 => (256, 76),
            other => return Err(format!("decimals of {other} bits")),
        };
        if !(1..=most).contains(&precision) {
            return Err(format!(
                "decimals of {bits} bits with precision {precision}: it must be from 1 to {most}"
            ));
        }
        Ok(Self::Decimal {
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

/// Parses the type ids of a union: distinct numbers from 0 to 127.
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

/// True if the ids of a union are distinct numbers from 0 to 127.
fn valid_ids(ids: &[i8]) -> bool {
    let mut seen = [false; 128];
    ids.iter()
        .all(|id| usize::try_from(*id).is_ok_and(|id| !std::mem::replace(&mut seen[id], true)))
}
