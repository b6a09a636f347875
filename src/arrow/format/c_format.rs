//! Types as the format strings of the C data interface.

use super::{IntervalUnit, TimeUnit, Type};

/// The types whose format string says nothing else, for both directions.
macro_rules! formats {
    ($(
        $text:literal = $name:ident $({ $($field:ident: $value:literal),+ })? $(($unit:path))?;
    )+) => {
        fn of_text(text: &str) -> Option<Type> {
            Some(match text {
                $($text => Type::$name $({ $($field: $value),+ })? $(($unit))?,)+
                _ => return None,
            })
        }

        fn text_of(ty: &Type) -> Option<&'static str> {
            Some(match ty {
                $(Type::$name $({ $($field: $value),+ })? $(($unit))? => $text,)+
                _ => return None,
            })
        }
    };
}

formats! {
    "n" = Null;
    "b" = Boolean;
    "c" = Int { bits: 8, signed: true };
    "C" = Int { bits: 8, signed: false };
    "s" = Int { bits: 16, signed: true };
    "S" = Int { bits: 16, signed: false };
    "i" = Int { bits: 32, signed: true };
    "I" = Int { bits: 32, signed: false };
    "l" = Int { bits: 64, signed: true };
    "L" = Int { bits: 64, signed: false };
    "e" = Float { bits: 16 };
    "f" = Float { bits: 32 };
    "g" = Float { bits: 64 };
    "z" = Binary { large: false, utf8: false };
    "Z" = Binary { large: true, utf8: false };
    "u" = Binary { large: false, utf8: true };
    "U" = Binary { large: true, utf8: true };
    "vz" = View { utf8: false };
    "vu" = View { utf8: true };
    "tdD" = Date32;
    "tdm" = Date64;
    "tiM" = Interval(IntervalUnit::YearMonth);
    "tiD" = Interval(IntervalUnit::DayTime);
    "tin" = Interval(IntervalUnit::MonthDayNano);
    "tts" = Time(TimeUnit::Second);
    "ttm" = Time(TimeUnit::Millisecond);
    "ttu" = Time(TimeUnit::Microsecond);
    "ttn" = Time(TimeUnit::Nanosecond);
    "tDs" = Duration(TimeUnit::Second);
    "tDm" = Duration(TimeUnit::Millisecond);
    "tDu" = Duration(TimeUnit::Microsecond);
    "tDn" = Duration(TimeUnit::Nanosecond);
    "+l" = List { large: false };
    "+L" = List { large: true };
    "+vl" = ListView { large: false };
    "+vL" = ListView { large: true };
    "+s" = Struct;
    "+r" = RunEndEncoded;
}

/// The letters of the units in the format strings of timestamps.
const UNITS: [(&str, TimeUnit); 4] = [
    ("s", TimeUnit::Second),
    ("m", TimeUnit::Millisecond),
    ("u", TimeUnit::Microsecond),
    ("n", TimeUnit::Nanosecond),
];

impl Type {
    /// Parses a format string of the C data interface. The error is a text.
    pub fn parse(format: &str, keys_sorted: bool) -> Result<Self, String> {
        if format == "+m" {
            return Ok(Self::Map { keys_sorted });
        }
        let unknown = || format!("the format string \"{format}\" is not known");
        let ty = of_text(format).or_else(|| Self::parse_parametric(format));
        ty.ok_or_else(unknown)
    }

    fn parse_parametric(format: &str) -> Option<Self> {
        let length = |text: &str| text.parse::<i32>().ok().filter(|length| *length >= 0);
        let union = |ids, dense| parse_ids(ids).map(|ids| Self::Union { dense, ids });
        if let Some(parameters) = format.strip_prefix("d:") {
            return Self::parse_decimal(parameters);
        }
        if let Some(width) = format.strip_prefix("w:") {
            return Some(Self::FixedSizeBinary(length(width)?));
        }
        if let Some(size) = format.strip_prefix("+w:") {
            return Some(Self::FixedSizeList(length(size)?));
        }
        if let Some(ids) = format.strip_prefix("+ud:") {
            return union(ids, true);
        }
        if let Some(ids) = format.strip_prefix("+us:") {
            return union(ids, false);
        }
        let (unit, zone) = format.strip_prefix("ts")?.split_once(':')?;
        let unit = UNITS.iter().find(|(letter, _)| *letter == unit)?.1;
        Some(Self::Timestamp(unit, zone.to_owned()))
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
        match self {
            Self::Map { .. } => "+m".to_owned(),
            Self::Decimal {
                bits,
                precision,
                scale,
            } => match bits {
                128 => format!("d:{precision},{scale}"),
                _ => format!("d:{precision},{scale},{bits}"),
            },
            Self::Timestamp(unit, zone) => {
                let known = UNITS.iter().find(|(_, known)| known == unit);
                format!("ts{}:{zone}", known.map_or("s", |(letter, _)| letter))
            }
            Self::FixedSizeBinary(width) => format!("w:{width}"),
            Self::FixedSizeList(size) => format!("+w:{size}"),
            Self::Union { dense, ids } => {
                let ids: Vec<String> = ids.iter().map(i8::to_string).collect();
                format!("+u{}:{}", if *dense { 'd' } else { 's' }, ids.join(","))
            }
            // An integer or a float of another width, which `parse` and `from_ipc` never make.
            _ => text_of(self).unwrap_or_default().to_owned(),
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
