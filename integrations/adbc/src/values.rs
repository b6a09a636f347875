//! The values of options.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use adbc_core::error::Result;
use adbc_core::options::OptionValue;

use crate::error::invalid;

/// The shortest time limit, and the longest time that is not for ever.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// The value as bytes: the bytes of a text, the digits of a number.
pub(crate) fn bytes_of(value: OptionValue) -> Result<Vec<u8>> {
    match value {
        OptionValue::String(text) => Ok(text.into_bytes()),
        OptionValue::Bytes(bytes) => Ok(bytes),
        OptionValue::Int(number) => Ok(number.to_string().into_bytes()),
        OptionValue::Double(number) => Ok(number.to_string().into_bytes()),
        _ => Err(invalid(
            "a value of an option is of a kind that ADBC 1.1 lacks",
        )),
    }
}

/// The value as text.
pub(crate) fn text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(value).map_err(|_| invalid(format!("the value of {name} is not UTF-8")))
}

/// The value as a number of any kind.
pub(crate) fn parsed<T: FromStr>(name: &str, value: &[u8]) -> Result<T> {
    let text = text(name, value)?;
    let number = text.trim().parse();
    number.map_err(|_| invalid(format!("the value {text:?} of {name} is no such number")))
}

/// The value as a whole number of this range.
pub(crate) fn number<T>(name: &str, value: &[u8], range: RangeInclusive<T>) -> Result<T>
where
    T: FromStr + PartialOrd + Display,
{
    let text = text(name, value)?;
    let number = text.trim().parse().ok();
    number.filter(|it| range.contains(it)).ok_or_else(|| {
        let (least, most) = range.into_inner();
        invalid(format!(
            "the value {text:?} of {name} is not a whole number from {least} to {most}"
        ))
    })
}

/// The value as `true` or `false`.
pub(crate) fn flag(name: &str, value: &[u8]) -> Result<bool> {
    one_of(name, value, [("true", true), ("false", false)])
}

/// The value as a time limit in seconds; `None`: there is none.
pub(crate) fn limit(name: &str, value: &[u8]) -> Result<Option<Duration>> {
    seconds(name, value, SHORTEST)
}

/// The value as a time in seconds, which may be 0.
pub(crate) fn time(name: &str, value: &[u8]) -> Result<Duration> {
    Ok(seconds(name, value, Duration::ZERO)?.unwrap_or(FOREVER))
}

/// A time that never passes, for options of libdipc that have no other value for "no limit".
pub(crate) const FOREVER: Duration = Duration::from_nanos(u64::MAX);

/// The value as a time; `None`: for ever.
fn seconds(name: &str, value: &[u8], least: Duration) -> Result<Option<Duration>> {
    let text = text(name, value)?;
    let seconds = text.trim().parse().unwrap_or(f64::NAN);
    if seconds == f64::INFINITY {
        return Ok(None);
    }
    let time = Duration::try_from_secs_f64(seconds).ok();
    match time.filter(|it| (least..=LONGEST).contains(it)) {
        Some(time) => Ok(Some(time)),
        None => Err(invalid(format!(
            "the value {text:?} of {name} is not a number of seconds from {} to {}; inf is for \
             ever",
            least.as_secs_f64(),
            LONGEST.as_secs(),
        ))),
    }
}

/// The value as the path of a file. libdipc reads it when it first connects by TLS; so a missing
/// file is found here, before that.
pub(crate) fn file<'a>(name: &str, value: &'a [u8]) -> Result<&'a str> {
    let path = text(name, value)?;
    let usable = fs::metadata(path).and_then(|it| match it.file_type() {
        it if it.is_dir() => Err(ErrorKind::IsADirectory.into()),
        it if it.is_file() => File::open(path).map(drop),
        // A pipe can be read only once.
        _ => Ok(()),
    });
    match usable {
        Ok(()) => Ok(path),
        Err(error) => Err(invalid(format!(
            "the value {path:?} of {name} is no file that can be read ({error}): give the path of \
             a PEM file"
        ))),
    }
}

/// The value as one of a few words.
pub(crate) fn one_of<T, const N: usize>(
    name: &str,
    value: &[u8],
    known: [(&str, T); N],
) -> Result<T> {
    let text = text(name, value)?;
    let names = known.each_ref().map(|(name, _)| *name).join(", ");
    let found = known.into_iter().find(|(name, _)| *name == text);
    let (_, value) =
        found.ok_or_else(|| invalid(format!("the value {text:?} of {name} is none of {names}")))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of "Options": one rule for all times. A limit of 0, which nothing could keep, is
    /// refused.
    #[test]
    fn times_are_seconds_or_for_ever() {
        let limit = |text: &str| limit("dipc.deadline", text.as_bytes());
        let time = |text: &str| time("dipc.spin", text.as_bytes());
        for forever in ["inf", "Infinity", " INF "] {
            assert_eq!(limit(forever).unwrap(), None);
            assert_eq!(time(forever).unwrap(), FOREVER);
        }
        for (text, expected) in [
            ("0.000001", SHORTEST),
            ("2.5", Duration::from_millis(2500)),
            ("1000000000", LONGEST),
        ] {
            assert_eq!(limit(text).unwrap(), Some(expected));
            assert_eq!(time(text).unwrap(), expected);
        }
        for bad in [
            "",
            "soon",
            "NaN",
            "-1",
            "-inf",
            "-0.5",
            "1000000001",
            "1e300",
        ] {
            let error = time(bad).unwrap_err().to_string();
            let expected = format!("the value {bad:?} of dipc.spin is not a number of seconds");
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains("from 0 to 1000000000; inf is"), "{error}");
        }
        assert_eq!(time("0").unwrap(), Duration::ZERO);
        for none in ["0", "0.0", "0.0000001"] {
            let error = limit(none).unwrap_err().to_string();
            assert!(error.contains("from 0.000001 to"), "{error}");
        }
    }

    #[test]
    fn numbers_name_their_range() {
        let number = |text: &str| number("dipc.connections", text.as_bytes(), 1..=64_u16);
        assert_eq!(number("64").unwrap(), 64);
        for bad in ["0", "65", "-1", "2.5", "many", "", "99999999999999999999"] {
            let error = number(bad).unwrap_err().to_string();
            let expected =
                format!("{bad:?} of dipc.connections is not a whole number from 1 to 64");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
