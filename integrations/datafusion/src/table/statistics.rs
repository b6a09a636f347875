//! What is known of a table before it is read.

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use dipc::{Description, Endpoint};

/// Rows and bytes, as far as the server has said. `None`: unknown.
#[derive(Debug, Clone)]
pub(super) struct Totals {
    rows: Option<usize>,
    bytes: Option<usize>,
    /// Rows and bytes of each partition.
    partitions: Vec<(Option<usize>, Option<usize>)>,
}

impl Totals {
    pub(super) fn new(description: &Description, partitions: &[Vec<Endpoint>]) -> Self {
        let whole = (
            counted(description.total_rows()),
            counted(description.total_bytes()),
        );
        let each = |parts: &Vec<Endpoint>| {
            (
                sum(parts.iter().map(|part| counted(part.total_rows()))),
                sum(parts.iter().map(|part| counted(part.total_bytes()))),
            )
        };
        let mut partitions: Vec<_> = partitions.iter().map(each).collect();
        if let [only] = &mut partitions[..] {
            *only = (whole.0.or(only.0), whole.1.or(only.1));
        }
        let (rows, bytes): (Vec<_>, Vec<_>) = partitions.iter().copied().unzip();
        Self {
            rows: whole.0.or_else(|| sum(rows.into_iter())),
            bytes: whole.1.or_else(|| sum(bytes.into_iter())),
            partitions,
        }
    }

    /// Statistics of one partition, or of all, which give at most `fetch` rows each. `is_whole`:
    /// for all columns. With a filter the statistics are those of all rows, and inexact.
    pub(super) fn statistics(
        &self,
        partition: Option<usize>,
        fetch: Option<usize>,
        is_whole: bool,
        output: &Schema,
    ) -> Statistics {
        let limited = |rows: Option<usize>| Some(rows?.min(fetch.unwrap_or(usize::MAX)));
        let known = |partition: Option<&(_, _)>| partition.copied().unwrap_or((None, None));
        let (rows, bytes) = match partition {
            Some(number) => {
                let (rows, bytes) = known(self.partitions.get(number));
                (limited(rows), bytes)
            }
            None if fetch.is_none() => (self.rows, self.bytes),
            None => (
                sum(self.partitions.iter().map(|it| limited(it.0))),
                self.bytes,
            ),
        };
        let mut statistics = Statistics::new_unknown(output);
        statistics.num_rows = rows.map_or(Precision::Absent, Precision::Exact);
        if is_whole && fetch.is_none() {
            // Bodies have padding, and may be compressed.
            statistics.total_byte_size = bytes.map_or(Precision::Absent, Precision::Inexact);
        } else {
            statistics.calculate_total_byte_size(output);
        }
        statistics
    }
}

fn counted(number: Option<u64>) -> Option<usize> {
    number.and_then(|number| usize::try_from(number).ok())
}

/// Unknown if one of them is.
fn sum(mut numbers: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    numbers.try_fold(0_usize, |sum, number| sum.checked_add(number?))
}
