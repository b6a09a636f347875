//! The report of a fetch, for people and for programs.

use std::fmt;

use indicatif::{DecimalBytes, HumanCount};
use serde::Serialize;

use crate::display::escape;
use crate::verify::Difference;

/// How the data of one endpoint was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// `libdipc`, or `DoGet` of Flight.
    pub by: &'static str,
    /// The location: one URI or two.
    pub from: Vec<String>,
}

/// The figures of one fetch.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The ticket of the request.
    pub ticket: String,
    /// Rows received.
    pub rows: u64,
    /// Record batches received.
    pub batches: u64,
    /// Bytes of the bodies, lent or received.
    pub bytes: u64,
    /// Seconds spent asking for the stream and waiting for its batches.
    pub seconds: f64,
    /// Gigabytes (10^9 bytes) for each of these seconds.
    pub gigabytes_per_second: f64,
    /// Seconds from start to end, including the work on the rows (writing, comparing).
    pub total_seconds: f64,
    /// Bytes read in the server's memory without a copy.
    pub bytes_lent: u64,
    /// Bytes copied on this side.
    pub bytes_copied: u64,
    /// Bytes received through the connection.
    pub bytes_received: u64,
    /// Bytes copied on this side within a GPU or between GPUs.
    pub bytes_copied_on_device: u64,
    /// Bytes copied on this side between the host and a GPU.
    pub bytes_staged: u64,
    /// Device of the table: host or cuda:N; unknown for a table without batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How each part of the table was fetched, if a Flight server gave a choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// The hash of the content, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The outcome of the comparison, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The first rows were there, and no further batch was fetched.
    #[serde(skip)]
    pub stopped: bool,
    /// The file written, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Verified {
    /// The other table.
    pub against: String,
    /// Whether they are equal.
    pub equal: bool,
    /// The first difference, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

impl Report {
    /// Computes the figures that follow from others.
    pub fn complete(&mut self) {
        self.bytes = self.bytes_lent + self.bytes_received;
        if self.seconds > 0.0 {
            self.gigabytes_per_second = as_float(self.bytes) / 1e9 / self.seconds;
        }
    }
}

/// Converts a number for display with three digits, where the rounding is invisible.
#[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
pub fn as_float(number: u64) -> f64 {
    number as f64
}

/// Bytes in decimal units, like GB/s.
pub fn bytes_text(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

/// "1 batch", "2,000 batches".
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{} {noun}", HumanCount(count))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let so_far = if self.stopped { "the first " } else { "" };
        writeln!(
            f,
            "{}: {so_far}{} in {}, {}",
            self.ticket,
            counted(self.rows, "row", "rows"),
            counted(self.batches, "batch", "batches"),
            bytes_text(self.bytes)
        )?;
        write!(
            f,
            "fetched in {:.3} s, {:.2} GB/s; {} lent, {} copied, {} received",
            self.seconds,
            self.gigabytes_per_second,
            bytes_text(self.bytes_lent),
            bytes_text(self.bytes_copied),
            bytes_text(self.bytes_received)
        )?;
        // The GPU figures are left out if no GPU took part.
        if let Some(device) = self.device.as_ref().filter(|device| *device != "host") {
            write!(f, ", on {device}")?;
        }
        for (bytes, how) in [
            (self.bytes_staged, "between the host and a GPU"),
            (self.bytes_copied_on_device, "on a GPU"),
        ] {
            if bytes > 0 {
                write!(f, ", {} copied {how}", bytes_text(bytes))?;
            }
        }
        if self.bytes_lent > 0 {
            // Lent bytes were not read yet, so their rate would mislead.
            write!(f, " (lent memory is mapped, and its reading not counted)")?;
        }
        if self.total_seconds > self.seconds * 1.1 {
            write!(
                f,
                "\n{:.3} s in all, work on the rows included",
                self.total_seconds
            )?;
        }
        for Taken { by, from } in &self.taken {
            write!(f, "\nfetched by {by} from {}", escape(&from.join(" ")))?;
        }
        if let Some(output) = &self.output {
            write!(f, "\nwritten to {output}")?;
        }
        if let Some(checksum) = &self.checksum {
            write!(f, "\nchecksum {checksum}")?;
        }
        match &self.verified {
            Some(Verified {
                against,
                difference: Some(difference),
                ..
            }) => {
                write!(f, "\nNOT equal to {against}: {difference}")
            }
            Some(Verified { against, .. }) => write!(f, "\nequal to {against}, value for value"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The throughput counts lent and received bytes, but no further copies here.
    #[test]
    fn throughput_counts_lent_and_received_bytes() {
        let mut report = Report {
            seconds: 2.0,
            bytes_lent: 3_000_000_000,
            bytes_received: 1_000_000_000,
            bytes_copied: 5_000_000_000,
            ..Report::default()
        };
        report.complete();
        assert_eq!(report.bytes, 4_000_000_000);
        assert!((report.gigabytes_per_second - 2.0).abs() < 1e-9);
        assert!(
            report
                .to_string()
                .contains("2.00 GB/s; 3.00 GB lent, 5.00 GB copied")
        );
    }

    /// Promise of `--device`: the table's device and the copies for it are shown only if a GPU took
    /// part.
    #[test]
    fn copies_for_a_gpu_are_told() {
        let mut report = Report {
            bytes_received: 3_000_000,
            device: Some("host".to_owned()),
            ..Report::default()
        };
        assert!(!report.to_string().contains("GPU"));
        assert!(!report.to_string().contains("host"));
        report.bytes_staged = 2_000_000;
        report.bytes_copied_on_device = 1000;
        report.device = Some("cuda:1".to_owned());
        let text = report.to_string();
        assert!(
            text.contains(
                "3.00 MB received, on cuda:1, 2.00 MB copied between the host and a GPU, 1.00 kB \
                 copied on a GPU"
            ),
            "{text}"
        );
    }

    /// Bytes are shown in decimal units.
    #[test]
    fn bytes_are_shown_in_decimal_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (12_340_000, "12.34 MB"),
            (123_400_000_000, "123.40 GB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    /// Promise of `--json`: results that were not requested are left out.
    #[test]
    fn json_has_only_what_was_asked_for() {
        let json = serde_json::to_value(Report::default()).unwrap();
        assert!(json.get("rows").is_some());
        assert!(json.get("checksum").is_none() && json.get("verified").is_none());
    }
}
