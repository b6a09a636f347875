//! What it saves to filter at the server, compared with getting the whole table and filtering it at
//! the client. Both use the same table, condition and kernels.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use dipc::{Arena, Client, Filter, FilterBuilder, FilterExpression, GetOptions, Server};

use crate::bench::base::case::{Case, Memory};
use crate::bench::base::message::{Filtered, Filtering, Outcome, Parent, Ready, Usage};
use crate::bench::base::streams::{TABLE, new_client};
use crate::listening::listen;
use crate::report::as_float;

/// Values of the column that the condition compares: from 0 on, equally frequent.
const VALUES: u64 = 1 << 20;

/// A listening server with the table.
pub fn start(case: &Case) -> Result<(Server, Ready)> {
    let server = case.server()?;
    let arena = match case.memory {
        Memory::Arena => Some(Arena::host()?),
        Memory::Heap => None,
    };
    let batches = (0..case.distinct()).map(|number| {
        let batch = batch(case, number)?;
        Ok(match &arena {
            Some(arena) => arena.copy_batch(&batch)?,
            None => batch,
        })
    });
    let batches = batches.collect::<Result<Vec<_>>>()?;
    server.publish(TABLE, &Arc::new(case.shape().schema()), batches)?;
    let uri = listen(&server, &case.address())?;
    let (sums, flight) = (Vec::new(), None);
    Ok((server, Ready { uri, sums, flight }))
}

/// A batch whose first column is random, within [`VALUES`]; the others have other numbers.
fn batch(case: &Case, number: u64) -> Result<RecordBatch> {
    let first = number * case.rows;
    let column = |column: u64| -> ArrayRef {
        let rows = first..first + case.rows;
        Arc::new(match column {
            0 => Int64Array::from_iter_values(rows.map(|row| (mixed(row) % VALUES).cast_signed())),
            other => Int64Array::from_iter_values(rows.map(|row| (row + other).cast_signed())),
        })
    };
    let columns = (0..u64::from(case.columns)).map(column).collect();
    Ok(RecordBatch::try_new(
        Arc::new(case.shape().schema()),
        columns,
    )?)
}

/// A number without a pattern (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Gets the table in both ways in turn, until the time of the case is over.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let ways = Ways::new(case, ready)?;
    // This makes connections and mappings, and checks that both ways have the same result.
    let (whole, filtered) = (ways.at_client()?, ways.at_server()?);
    ensure!(
        whole.passed == filtered.passed && whole.passed > 0,
        "{} rows have passed at the client, and {} at the server",
        whole.passed,
        filtered.passed
    );
    if !parent.ready()? {
        return Ok(());
    }
    let before = Usage::now()?;
    let start = Instant::now();
    let (mut at_client, mut at_server) = (Filtering::default(), Filtering::default());
    while at_server.gets == 0 || start.elapsed() < case.seconds {
        at_client.add(&ways.at_client()?);
        // The other way moves less in the same time.
        let share = Instant::now();
        let time = Duration::from_secs_f64(at_client.seconds / as_float(at_client.gets));
        while at_server.gets < at_client.gets || share.elapsed() < time {
            at_server.add(&ways.at_server()?);
        }
    }
    let used = before.until_now()?;
    parent.say(Outcome {
        seconds: start.elapsed().as_secs_f64(),
        fetches: at_client.gets + at_server.gets,
        filtered: Some(Filtered {
            at_client,
            at_server,
        }),
        ..used
    })
}

/// The two ways to the rows that pass.
struct Ways<'a> {
    client: Client,
    uri: &'a str,
    filter: Filter,
    whole: GetOptions,
    filtered: GetOptions,
    rows: u64,
}

impl<'a> Ways<'a> {
    fn new(case: &Case, ready: &'a Ready) -> Result<Self> {
        let schema = Arc::new(case.shape().schema());
        let message = message(case, &schema)?;
        let filter = Filter::parse(&message, &schema)?;
        let whole = case.get_options();
        let filtered = whole.clone().filter(message)?;
        Ok(Self {
            client: new_client(case)?,
            uri: &ready.uri,
            filter,
            whole,
            filtered,
            rows: case.distinct() * case.rows,
        })
    }

    /// Gets the whole table, and filters it here.
    fn at_client(&self) -> Result<Filtering> {
        self.get(&self.whole, |batch| {
            Ok(self.filter.apply(batch)?.num_rows())
        })
    }

    /// Gets the rows that pass.
    fn at_server(&self) -> Result<Filtering> {
        self.get(&self.filtered, |batch| Ok(batch.num_rows()))
    }

    fn get(
        &self,
        options: &GetOptions,
        passed: impl Fn(&RecordBatch) -> Result<usize>,
    ) -> Result<Filtering> {
        let start = Instant::now();
        let mut stream = self.client.get_with(self.uri, TABLE, options)?;
        let mut all = 0;
        while let Some(batch) = stream.next_batch()? {
            all += passed(&batch)? as u64;
        }
        let stats = stream.stats();
        Ok(Filtering {
            gets: 1,
            seconds: start.elapsed().as_secs_f64(),
            rows: self.rows,
            passed: all,
            bytes: stats.bytes_lent + stats.bytes_received,
        })
    }
}

/// The filter `c0 < limit`, which the case's share of the rows passes.
fn message(case: &Case, schema: &SchemaRef) -> Result<Vec<u8>> {
    let mut builder = FilterBuilder::new(schema);
    let (column, _) = builder.column(&["c0".to_owned()])?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share of the values is not greater than their number"
    )]
    let limit = (case.passing / 100.0 * as_float(VALUES)) as i64;
    let limit = FilterExpression::literal(&Int64Array::from(vec![limit]))?;
    let root = builder.call("lt", vec![column, limit]);
    Ok(builder.finish(root))
}
