//! The values of arguments: times, sizes, numbers, settings; and the error of wrong ones.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use fundu::TimeUnit::{MicroSecond, MilliSecond, Minute, Second};
use fundu::{CustomDurationParser, CustomTimeUnit};
use parse_size::Config;

/// An error in the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Reads a time: `5`, `2.5s`, `300ms`, `50us`, `2m`.
pub fn duration(text: &str) -> Result<Duration> {
    const UNITS: [CustomTimeUnit<'_>; 4] = [
        CustomTimeUnit::with_default(MicroSecond, &["us"]),
        CustomTimeUnit::with_default(MilliSecond, &["ms"]),
        CustomTimeUnit::with_default(Second, &["s"]),
        CustomTimeUnit::with_default(Minute, &["m", "min"]),
    ];
    let mut parser = CustomDurationParser::with_time_units(&UNITS);
    let read = parser.disable_infinity(true).parse(text);
    let time = read.and_then(|time| Duration::try_from(time).map_err(Into::into));
    match time {
        // What the parser says for a number that is too large.
        Ok(Duration::MAX) => bail!("{text:?} is too long"),
        Ok(time) => Ok(time),
        Err(error) => bail!("{text:?} is not a time, as 5, 2.5s, 300ms, 50us or 2m: {error}"),
    }
}

/// Reads a time limit.
pub fn timeout(text: &str) -> Result<Duration> {
    match duration(text)? {
        Duration::ZERO => bail!("a time-out of 0 lets nothing come; the least is 1us"),
        timeout => Ok(timeout),
    }
}

/// Reads a number of at least 1.
pub fn count(text: &str) -> Result<NonZeroUsize> {
    match text.parse::<usize>().map(NonZeroUsize::new) {
        Ok(Some(count)) => Ok(count),
        Ok(None) => bail!("the least is 1"),
        Err(error) => bail!("{text:?} is not a whole number from 1 on: {error}"),
    }
}

/// Reads `NAME=VALUE`.
pub fn setting(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => bail!("{text:?} is not NAME=VALUE, as ucx.TLS=tcp"),
    }
}

/// Reads a number of bytes: `4096`, `64K`, `512M`, `1.5G`, in powers of 1024.
pub fn bytes(text: &str) -> Result<u64> {
    let size = Config::new().with_binary().parse_size(text);
    size.map_err(|error| {
        anyhow!("{text:?} is not a number of bytes, as 4096, 64K, 512M or 16G: {error}")
    })
}

/// Least limit for a message: a schema is a message too.
const LEAST_MESSAGE: u64 = 64 << 10;

/// Reads the limit for a message.
pub fn message(text: &str) -> Result<u64> {
    match bytes(text)? {
        bytes if bytes < LEAST_MESSAGE => bail!("the least is {}K", LEAST_MESSAGE >> 10),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times and sizes are read with their units, and refused without a known one.
    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(duration("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(duration("300ms").unwrap(), Duration::from_millis(300));
        assert_eq!(duration("50us").unwrap(), Duration::from_micros(50));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "s", "-1s", "1h", "nan", "inf", "1e300m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(bytes("4096").unwrap(), 4096);
        assert_eq!(bytes("64K").unwrap(), 65_536);
        assert_eq!(bytes("2GiB").unwrap(), 2 << 30);
        for bad in ["", "G", "-1", "1X", "99999999999T"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
