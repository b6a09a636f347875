//! `dipc ls` and `dipc describe`: the tables of a server, without fetching them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use arrow::datatypes::Schema;
use dipc::{Cancel, Client, Endpoint, GetOptions};
use indicatif::HumanCount;
use serde::Serialize;

use crate::display::{escape, width};
use crate::flight::{self, Listed, Listing, Times};
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

    /// Accept servers of every user, not only of your own
    #[arg(long)]
    any_user: bool,

    #[command(flatten)]
    trust: crate::trust::ClientTrust,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    settings: Vec<(String, String)>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Asking {
    /// A token that the first signal cancels.
    fn cancel() -> Result<Cancel> {
        let cancel = Cancel::new()?;
        let first = cancel.clone();
        signals::watch(move || first.cancel(), signals::give_up)?;
        Ok(cancel)
    }

    fn start_flight(&self, uri: &str) -> Result<Listing> {
        let times = Times {
            connect: self.timeout,
            stall: Some(self.timeout),
            deadline: None,
        };
        Ok(Listing::of(uri, times, &self.trust, &Self::cancel()?)?)
    }

    fn start(&self) -> Result<(Client, GetOptions)> {
        let client = self.trust.client(&self.settings)?.any_user(self.any_user);
        let options = GetOptions::new()
            .connect_timeout(self.timeout)
            .stall_timeout(self.timeout)
            .headers(self.trust.headers()?)
            .send_secrets(self.trust.send_secrets)
            .cancel(&Self::cancel()?);
        Ok((client.build()?, options))
    }
}

/// A ticket, or a part of a table.
#[derive(Serialize)]
struct Row {
    ticket: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uris: Vec<String>,
    rows: Option<u64>,
    bytes: Option<u64>,
}

impl From<&Endpoint> for Row {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            ticket: String::from_utf8_lossy(endpoint.ticket()).into_owned(),
            uris: endpoint.uris().to_vec(),
            rows: endpoint.total_rows(),
            bytes: endpoint.total_bytes(),
        }
    }
}

impl From<&(String, Vec<String>)> for Row {
    fn from((ticket, uris): &(String, Vec<String>)) -> Self {
        Self {
            ticket: ticket.clone(),
            uris: uris.clone(),
            rows: None,
            bytes: None,
        }
    }
}

#[derive(Serialize)]
struct Column {
    name: String,
    r#type: String,
    nullable: bool,
}

#[derive(Serialize)]
struct Table {
    ticket: String,
    rows: Option<u64>,
    bytes: Option<u64>,
    batches: Option<u64>,
    columns: Option<Vec<Column>>,
    endpoints: Vec<Row>,
    /// Whether the order of the endpoints is that of the table.
    is_ordered: bool,
}

/// Runs `dipc ls`.
pub fn list(args: &ListArgs) -> Result<ExitCode> {
    let rows: Vec<Row> = if flight::is_flight(&args.uri) {
        let listed = args.asking.start_flight(&args.uri)?.list(&args.prefix)?;
        let row = |listed: Listed| Row {
            ticket: listed.name,
            uris: Vec::new(),
            rows: listed.rows,
            bytes: listed.bytes,
        };
        listed.into_iter().map(row).collect()
    } else {
        let (client, options) = args.asking.start()?;
        let listed = client.list_with(&args.uri, &args.prefix, &options)?;
        listed.iter().map(Row::from).collect()
    };
    if args.asking.json {
        output::print_json(&rows)?;
    } else {
        output::print(&table_of(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `dipc describe`.
pub fn describe(args: &DescribeArgs) -> Result<ExitCode> {
    let table = if flight::is_flight(&args.uri) {
        let listing = args.asking.start_flight(&args.uri)?;
        let described = listing.describe(&args.ticket, args.command)?;
        Table {
            ticket: args.ticket.clone(),
            rows: described.rows,
            bytes: described.bytes,
            batches: None,
            columns: described.schema.as_deref().map(columns_of),
            endpoints: described.endpoints.iter().map(Row::from).collect(),
            is_ordered: described.is_ordered,
        }
    } else {
        if args.command {
            let text = "--command is for Flight servers: dipc describe grpc://HOST:PORT COMMAND";
            return Err(UsageError(text.to_owned()).into());
        }
        let (client, options) = args.asking.start()?;
        let described = client.describe_with(&args.uri, &args.ticket, &options)?;
        Table {
            ticket: args.ticket.clone(),
            rows: described.total_rows(),
            bytes: described.total_bytes(),
            batches: described.total_batches(),
            columns: described.table_schema()?.as_deref().map(columns_of),
            endpoints: described.endpoints().iter().map(Row::from).collect(),
            is_ordered: described.is_ordered(),
        }
    };
    if args.asking.json {
        output::print_json(&table)?;
    } else {
        output::print(&text_of(&table))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn columns_of(schema: &Schema) -> Vec<Column> {
    let fields = schema.fields().iter();
    let column = fields.map(|field| Column {
        name: field.name().clone(),
        r#type: field.data_type().to_string(),
        nullable: field.is_nullable(),
    });
    column.collect()
}

/// Rows with aligned columns, under a heading.
fn table_of(rows: &[Row]) -> String {
    let count = |rows: Option<u64>| rows.map_or("?".to_owned(), |it| HumanCount(it).to_string());
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_owned(), bytes_text);
    let ticket = |row: &Row| escape(&row.ticket).into_owned();
    let mut cells = vec![["ticket", "rows", "bytes", ""].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let uris = escape(&row.uris.join(" ")).into_owned();
        [ticket(row), count(row.rows), bytes(row.bytes), uris]
    }));
    let width = |column: usize| width(cells.iter().map(|row| row[column].as_str()));
    let (first, second, third) = (width(0), width(1), width(2));
    let lines = cells.iter().map(|[ticket, rows, bytes, uris]| {
        let line = format!("{ticket:first$}  {rows:>second$}  {bytes:>third$}  {uris}");
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn text_of(table: &Table) -> String {
    let counted = |count: Option<u64>, one, many| match count {
        Some(count) => counted(count, one, many),
        None => format!("an unknown number of {many}"),
    };
    let mut text = format!(
        "{}: {} in {}, {}",
        escape(&table.ticket),
        counted(table.rows, "row", "rows"),
        counted(table.batches, "batch", "batches"),
        (table.bytes).map_or("an unknown number of bytes".to_owned(), bytes_text),
    );
    match &table.columns {
        None => text.push_str("\nthe columns are not known before the table is fetched"),
        Some(columns) => {
            let names: Vec<_> = columns.iter().map(|it| escape(&it.name)).collect();
            let width = width(names.iter().map(|name| &**name));
            for (column, name) in columns.iter().zip(&names) {
                let null = if column.nullable { "" } else { ", not null" };
                let kind = escape(&column.r#type);
                // To write to a string does not fail.
                let _ = write!(text, "\n  {name:width$}  {kind}{null}");
            }
        }
    }
    let is_itself = |row: &Row| row.uris.is_empty() && row.ticket == table.ticket;
    if !matches!(table.endpoints.as_slice(), [only] if is_itself(only)) {
        text.push_str(match table.is_ordered {
            true => "\nin parts, in this order:\n",
            false => "\nin parts:\n",
        });
        text.push_str(&table_of(&table.endpoints));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `ls` and `describe`: a ticket or a column's name of any length is shown, and the
    /// columns of the others stay where they are.
    #[test]
    fn long_names_are_shown() {
        let row = |ticket: &str| Row {
            ticket: ticket.to_owned(),
            uris: Vec::new(),
            rows: Some(3),
            bytes: None,
        };
        let long = "t".repeat(1 << 17);
        let listed = table_of(&[row("short"), row(&long)]);
        assert!(listed.contains(&long));
        let short = listed.lines().find(|line| line.starts_with("short"));
        assert!(short.unwrap().len() < 200, "{short:?}");

        let column = Column {
            name: long.clone(),
            r#type: "Int32".to_owned(),
            nullable: true,
        };
        let told = text_of(&Table {
            ticket: long.clone(),
            rows: None,
            bytes: None,
            batches: None,
            columns: Some(vec![column]),
            endpoints: vec![row(&long)],
            is_ordered: false,
        });
        assert!(told.contains(&format!("\n  {long}  Int32")));
    }
}
