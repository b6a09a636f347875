//! `dipc-sql bench`: the engine's own channel and libdipc in turns, on workers of this machine.

mod queries;
mod shuffle;
mod workers;

use anyhow::Result;
use clap::Subcommand;

/// Options of `dipc-sql bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Whole queries of TPC-H on four workers: time, and processor time of all processes
    Queries(queries::Args),
    /// Partitions that lie in workers' memory: bytes a second
    Shuffle(shuffle::Args),
}

/// Measures, and prints a table of Markdown.
pub async fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Queries(args) => queries::run(args).await,
        Command::Shuffle(args) => shuffle::run(args).await,
    }
}

/// The median; of an even number of values, the lower of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len().saturating_sub(1) / 2;
    figures.get(middle).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `median`: an outlier does not move it.
    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 100.0, 1.0]), 3.0);
        assert_eq!(median(vec![4.0, 2.0]), 2.0);
        assert!(median(vec![]).is_nan());
    }
}
