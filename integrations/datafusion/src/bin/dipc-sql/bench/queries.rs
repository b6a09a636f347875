//! Queries of TPC-H as a whole.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;

use super::median;
use super::workers::Workers;
use crate::query::statements;
use crate::session::{self, Compression, open};
use crate::tpch;

/// The way with which the others are compared.
const PEER: &str = "grpc";

/// Options of `dipc-sql bench queries`.
#[derive(clap::Args)]
pub struct Args {
    /// The scale factor: 1 is about six million rows of lineitem
    #[arg(long, value_name = "SCALE", value_parser = tpch::parse_scale, default_value = "1")]
    tpch: f64,

    /// Where the tables are written as Parquet, once
    #[arg(long, value_name = "FOLDER", default_value = "tpch")]
    tpch_dir: PathBuf,

    /// Ways to compare with grpc, with a comma between two
    #[arg(
        long,
        value_name = "SCHEME",
        value_delimiter = ',',
        default_value = "shm,tcp"
    )]
    way: Vec<String>,

    /// Queries, by number, with a comma between two (default: all 22)
    #[arg(long, value_name = "N", value_delimiter = ',')]
    query: Vec<usize>,

    /// How many times each query runs by each way; the median counts
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: usize,

    /// Workers, and partitions of each task
    #[arg(long, value_name = "N", default_value = "4")]
    workers: usize,

    /// Compresses what travels over grpc [default: lz4]
    #[arg(long, value_name = "CODEC")]
    grpc_compression: Option<Compression>,
}

/// The workers of one way, and the session that uses them.
struct Side {
    way: String,
    workers: Workers,
    context: SessionContext,
    seconds: Vec<f64>,
    processor: Vec<f64>,
}

impl Side {
    async fn new(way: &str, args: &Args) -> Result<Self> {
        let workers = Workers::start(args.workers, way).await?;
        let options = session::Args {
            workers: workers.urls(),
            tpch: Some(args.tpch),
            tpch_dir: args.tpch_dir.clone(),
            partitions: Some(args.workers),
            // All tables are spread.
            scan_bytes: Some(1),
            way: vec![way.to_owned()],
            grpc_compression: args.grpc_compression,
            ..Default::default()
        };
        Ok(Self {
            way: way.to_owned(),
            context: open(&options).await?,
            workers,
            seconds: Vec::new(),
            processor: Vec::new(),
        })
    }

    /// Runs a query, and gives its result as a text.
    async fn measure(&mut self, text: &str) -> Result<String> {
        let before = self.workers.processor_time()?;
        let begun = Instant::now();
        let mut result = String::new();
        for statement in statements(text) {
            let batches = self.context.sql(&statement).await?.collect().await?;
            result.push_str(&pretty_format_batches(&batches)?.to_string());
        }
        self.seconds.push(begun.elapsed().as_secs_f64());
        self.processor.push(self.workers.processor_time()? - before);
        Ok(result)
    }

    /// The medians of the query's time and of its processor time.
    fn figures(&mut self) -> (f64, f64) {
        let seconds = median(std::mem::take(&mut self.seconds));
        (seconds, median(std::mem::take(&mut self.processor)))
    }
}

/// Measures, and prints a line for each query.
pub async fn run(args: Args) -> Result<()> {
    let mut sides = vec![Side::new(PEER, &args).await?];
    for way in args.way.iter().filter(|way| *way != PEER) {
        sides.push(Side::new(way, &args).await?);
    }
    let all: Vec<usize> = (1..=tpch::QUERIES.len()).collect();
    let numbers = if args.query.is_empty() {
        &all
    } else {
        &args.query
    };
    heading(&sides);
    for number in numbers {
        let text = number.checked_sub(1).and_then(|at| tpch::QUERIES.get(at));
        let text = text.with_context(|| format!("there is no query {number} of TPC-H"))?;
        let expected = sides[0].measure(text).await?;
        for side in &mut sides {
            // The first run reads files and makes connections.
            let result = side.measure(text).await;
            let result = result.with_context(|| format!("query {number} by {}", side.way))?;
            ensure!(result == expected, "query {number} differs by {}", side.way);
            side.figures();
        }
        for round in 0..args.rounds {
            let (count, backward) = (sides.len(), round % 2 == 1);
            for at in 0..count {
                let at = if backward { count - 1 - at } else { at };
                sides[at].measure(text).await?;
            }
        }
        line(*number, &mut sides);
    }
    Ok(())
}

fn heading(sides: &[Side]) {
    let mut names = String::from("| query | grpc s | grpc cpu s |");
    let mut rule = String::from("|---:|---:|---:|");
    for side in sides.iter().skip(1) {
        let way = &side.way;
        names.push_str(&format!(" {way} s | ratio | {way} cpu s | ratio |"));
        rule.push_str("---:|---:|---:|---:|");
    }
    println!("{names}\n{rule}");
}

fn line(number: usize, sides: &mut [Side]) {
    let figures: Vec<_> = sides.iter_mut().map(Side::figures).collect();
    let (seconds, processor) = figures[0];
    let mut line = format!("| {number} | {seconds:.3} | {processor:.2} |");
    for (ours, our_processor) in &figures[1..] {
        let (time, work) = (ours / seconds, our_processor / processor);
        line.push_str(&format!(
            " {ours:.3} | {time:.2} | {our_processor:.2} | {work:.2} |"
        ));
    }
    println!("{line}");
}
