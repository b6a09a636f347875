//! `dipc ls` and `dipc describe`: the tables of a server, without fetching them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use arrow::datatypes::{FieldRef, Schema};
use dipc::{Client, Description, Endpoint, GetOptions};
use indicatif::HumanCount;
use serde_json::{Value, json};

use crate::display::{escape, width};
use crate::flight::{self, Listing, Times};
use crate::parse::UsageError;
use crate::report::{bytes_text, counted};
use crate::{output, signals};

/// Arguments of `dipc ls`.
#[derive(clap::Args)]
pub struct ListArgs {
    /// The server's URI, or that of an Arrow Flight server (grpc://HOST:PORT, grpc+unix:///PATH)
    uri: String,

    /// List only tickets that begin with PREFIX
    #[arg(default_value = "")]
    prefix: String,

    #[command(flatten)]
    asking: Asking,
}

/// Arguments of `dipc describe`.
#[derive(clap::Args)]
pub struct DescribeArgs {
    /// The server's URI, or that of an Arrow Flight server (grpc://HOST:PORT, grpc+unix:///PATH)
    uri: String,

    /// The ticket of the table; at a Flight server, its NAME
    ticket: String,

    /// Ask a Flight server for the command TICKET, not for the path [TICKET]
    #[arg(long)]
    command: bool,

    #[command(flatten)]
    asking: Asking,
}

/// How to ask a server.
#[derive(clap::Args)]
struct Asking {
    /// How long the server may take to accept, to answer, and between two messages; at least 1us
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::parse::timeout)]
    timeout: Duration,

    #[command(flatten)]
    trust: crate::trust::ClientTrust,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Asking {
    fn start_flight(&self, uri: &str) -> Result<Listing> {
        let times = Times {
            connect: self.timeout,
            stall: Some(self.timeout),
            deadline: None,
        };
        let cancel = signals::cancelling(None)?;
        Ok(Listing::of(uri, times, &self.trust, &cancel)?)
    }

    fn start(&self) -> Result<(Client, GetOptions)> {
        let options = GetOptions::new()
            .connect_timeout(self.timeout)
            .stall_timeout(self.timeout)
            .headers(self.trust.headers()?)
            .send_secrets(self.trust.send_secrets)
            .cancel(&signals::cancelling(None)?);
        Ok((self.trust.client()?, options))
    }
}

/// Runs `dipc ls`.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let listed = if flight::is_flight(&args.uri) {
        args.asking.start_flight(&args.uri)?.list(&args.prefix)?
    } else {
        let (client, options) = args.asking.start()?;
        client.list_with(&args.uri, &args.prefix, &options)?
    };
    if args.asking.json {
        output::print_json(&json_of(&listed))?;
    } else {
        output::print(&table_of(&listed))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `dipc describe`.
pub fn describe(args: &DescribeArgs) -> Result<ExitCode> {
    let described = if flight::is_flight(&args.uri) {
        let listing = args.asking.start_flight(&args.uri)?;
        listing.describe(&args.ticket, args.command)?
    } else {
        if args.command {
            let text = "--command is for Flight servers: dipc describe grpc://HOST:PORT COMMAND";
            return Err(UsageError(text.to_owned()).into());
        }
        let (client, options) = args.asking.start()?;
        client.describe_with(&args.uri, &args.ticket, &options)?
    };
    let schema = described.table_schema()?;
    if args.asking.json {
        let column = |field: &FieldRef| {
            json!({
                "name": field.name(),
                "type": field.data_type().to_string(),
                "nullable": field.is_nullable(),
            })
        };
        output::print_json(&json!({
            "ticket": args.ticket,
            "rows": described.total_rows(),
            "bytes": described.total_bytes(),
            "batches": described.total_batches(),
            "columns": schema.map(|it| it.fields().iter().map(column).collect::<Vec<_>>()),
            "endpoints": json_of(&described.endpoints()),
            "is_ordered": described.is_ordered(),
        }))?;
    } else {
        output::print(&text_of(&args.ticket, &described, schema.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tickets, or parts of a table.
fn json_of(endpoints: &[Endpoint]) -> Vec<Value> {
    let object = |endpoint: &Endpoint| {
        let mut object = json!({
            "ticket": ticket_of(endpoint),
            "rows": endpoint.total_rows(),
            "bytes": endpoint.total_bytes(),
        });
        if !endpoint.uris().is_empty() {
            object["uris"] = json!(endpoint.uris());
        }
        object
    };
    endpoints.iter().map(object).collect()
}

fn ticket_of(endpoint: &Endpoint) -> Cow<'_, str> {
    String::from_utf8_lossy(endpoint.ticket())
}

/// Rows with aligned columns, under a heading.
fn table_of(rows: &[Endpoint]) -> String {
    let count = |rows: Option<u64>| rows.map_or("?".to_owned(), |it| HumanCount(it).to_string());
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), bytes_text);
    let mut cells = vec![["ticket", "rows", "bytes", ""].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let text = |text: &str| escape(text).into_owned();
        let (ticket, uris) = (text(&ticket_of(row)), text(&row.uris().join(" ")));
        [
            ticket,
            count(row.total_rows()),
            bytes(row.total_bytes()),
            uris,
        ]
    }));
    let width = |column: usize| width(cells.iter().map(|row| row[column].as_str()));
    let (first, second, third) = (width(0), width(1), width(2));
    let lines = cells.iter().map(|[ticket, rows, bytes, uris]| {
        let line = format!("{ticket:first$}  {rows:>second$}  {bytes:>third$}  {uris}");
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn text_of(ticket: &str, table: &Description, schema: Option<&Schema>) -> String {
    let counted = |count: Option<u64>, one, many| match count {
        Some(count) => counted(count, one, many),
        None => format!("an unknown number of {many}"),
    };
    let mut text = format!(
        "{}: {} in {}, {}",
        escape(ticket),
        counted(table.total_rows(), "row", "rows"),
        counted(table.total_batches(), "batch", "batches"),
        (table.total_bytes()).map_or("an unknown number of bytes".to_owned(), bytes_text),
    );
    match schema {
        None => text.push_str("\nthe columns are not known before the table is fetched"),
        Some(schema) => {
            let columns = schema.fields();
            let names: Vec<_> = columns.iter().map(|it| escape(it.name())).collect();
            let width = width(names.iter().map(|name| &**name));
            for (column, name) in columns.iter().zip(&names) {
                let null = if column.is_nullable() {
                    ""
                } else {
                    ", not null"
                };
                let kind = column.data_type().to_string();
                let kind = escape(&kind);
                // To write to a string does not fail.
                let _ = write!(text, "\n  {name:width$}  {kind}{null}");
            }
        }
    }
    let endpoints = table.endpoints();
    let is_itself = |row: &Endpoint| row.uris().is_empty() && ticket_of(row) == ticket;
    if !matches!(endpoints.as_slice(), [only] if is_itself(only)) {
        text.push_str(match table.is_ordered() {
            true => "\nin parts, in this order:\n",
            false => "\nin parts:\n",
        });
        text.push_str(&table_of(&endpoints));
    }
    text
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    /// Promise of `ls` and `describe`: a ticket or a column's name of any length is shown, and the
    /// columns of the others stay where they are.
    #[test]
    fn long_names_are_shown() {
        let row = |ticket: &str| Endpoint::new(ticket).rows(3);
        let long = "t".repeat(1 << 17);
        let listed = table_of(&[row("short"), row(&long)]);
        assert!(listed.contains(&long));
        let short = listed.lines().find(|line| line.starts_with("short"));
        assert!(short.unwrap().len() < 200, "{short:?}");

        let schema = Schema::new(vec![Field::new(&long, DataType::Int32, true)]);
        let described = Description::new().endpoint(row(&long));
        let told = text_of(&long, &described, Some(&schema));
        assert!(told.contains(&format!("\n  {long}  Int32")));
    }
}
