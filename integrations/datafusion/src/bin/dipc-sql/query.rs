//! `dipc-sql query`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::SessionContext;
use datafusion_distributed::{
    DistributedExec, DistributedMetricsFormat, display_plan_ascii,
    rewrite_distributed_plan_with_metrics,
};

use crate::session::{self, open};
use crate::stages;

/// Options of `dipc-sql query`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: session::Args,

    /// A query; several are run one after the other
    #[arg(value_name = "SQL")]
    queries: Vec<String>,

    /// Runs the queries of a file, with a semicolon between two, after the others
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,

    /// Prints the plan with its metrics, and what each stage has sent by which way
    #[arg(long)]
    explain: bool,
}

/// Runs the queries.
pub async fn run(args: Args) -> Result<()> {
    let mut queries = args.queries.clone();
    for file in &args.file {
        let text = std::fs::read_to_string(file);
        queries.push(text.with_context(|| format!("cannot read {}", file.display()))?);
    }
    if queries.is_empty() {
        bail!("there is no query: give one, or --file");
    }
    let context = open(&args.session).await?;
    for statement in queries.iter().flat_map(|text| statements(text)) {
        run_one(&context, statement, args.explain).await?;
    }
    Ok(())
}

/// The statements of a text, without comments of whole lines.
pub fn statements(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').map(str::trim).filter(|it| !it.is_empty());
    statements.map(str::to_owned).collect()
}

async fn run_one(context: &SessionContext, statement: String, explains: bool) -> Result<()> {
    let frame = context.sql(&statement).await?;
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await?;
    if !plan.schema().fields().is_empty() {
        println!("{}", pretty_format_batches(&batches)?);
    }
    if !explains {
        return Ok(());
    }
    if plan.downcast_ref::<DistributedExec>().is_none() {
        println!("{}", displayable(&*plan).indent(false));
        return Ok(());
    }
    let format = DistributedMetricsFormat::Aggregated;
    let plan = rewrite_distributed_plan_with_metrics(plan, format).await?;
    println!("{}", display_plan_ascii(&*plan, true));
    println!("{}", stages::report(&plan));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `--file`: statements end with a semicolon, and comments are left out.
    #[test]
    fn files_hold_several_statements() {
        let text = "-- a; b\nSELECT 1;\n\n  -- c\nSELECT\n2\n;;\n";
        assert_eq!(statements(text), ["SELECT 1", "SELECT\n2"]);
        assert!(statements("-- nothing").is_empty());
    }
}
