//! Bounds the log lines that clients can cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most lines of one kind within [`PERIOD`].
const MOST: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the lines of one kind: the time of the first one, and how many there were.
#[derive(Debug, Default)]
pub struct Lines(Mutex<Option<(Instant, u32)>>);

impl Lines {
    /// A counter without lines.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Calls `log` with a suffix for the line, unless the bound is reached.
    pub fn say(&self, log: impl FnOnce(&str)) {
        let mut counted = self.0.lock();
        let (since, count) = match *counted {
            Some((since, count)) if since.elapsed() < PERIOD => (since, count + 1),
            _ => (Instant::now(), 1),
        };
        *counted = Some((since, count));
        drop(counted);
        match count.cmp(&MOST) {
            std::cmp::Ordering::Less => log(""),
            std::cmp::Ordering::Equal => log(&format!(
                "; more lines of this kind are dropped for up to {} s",
                PERIOD.as_secs()
            )),
            std::cmp::Ordering::Greater => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client can cause a bounded number of lines only. The last line announces the silence.
    #[test]
    fn lines_are_bounded() {
        let lines = Lines::new();
        let mut suffixes = Vec::new();
        for _ in 0..1000 {
            lines.say(|more| suffixes.push(more.to_owned()));
        }
        assert_eq!(suffixes.len(), MOST as usize);
        let (last, others) = suffixes.split_last().unwrap();
        assert!(last.contains("are dropped"), "{last}");
        assert!(others.iter().all(String::is_empty));
    }
}
