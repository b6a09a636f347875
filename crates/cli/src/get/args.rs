//! The arguments of `dipc get`.

use std::time::Duration;

use dipc::{Selection, Target as Device};

use super::condition::Condition;
use crate::sink::Target;

/// Arguments of `dipc get`.
#[derive(clap::Args)]
pub struct Args {
    /// The server's URI (or two: metadata, then data) and the ticket of the table; or the URI of an
    /// Arrow Flight server (grpc://HOST:PORT, grpc+unix:///PATH) and the NAME of the table
    #[arg(value_names = ["URI", "[URI2] TICKET"], num_args = 1..=3, required = true)]
    pub from: Vec<String>,

    /// Ask a Flight server for the command TICKET, not for the path [TICKET]
    #[arg(long)]
    pub command: bool,

    /// Use ucx addresses of a Flight server, or of parts, too: their peers can read and write this
    /// process's memory
    #[arg(long)]
    pub trusted_network: bool,

    /// Print the first N rows as a table (0 to 1000000; 0: only the columns), times of a named zone
    /// in UTC; without --output, --verify and --checksum the rest is not fetched; not with --json
    #[arg(long, value_name = "N", conflicts_with = "json")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub head: Option<u32>,

    /// Write the table to FILE.arrow (Arrow file), .arrows (Arrow stream), .parquet or .csv. With -
    /// an Arrow stream goes to stdout, and the report to stderr
    #[arg(long, value_name = "FILE", value_parser = Target::parse)]
    pub output: Option<Target>,

    /// Fetch only these columns, in this order. Servers that send whole tables alone, as those of
    /// Flight do, still send all of them; what is shown, written, compared and hashed has these
    #[arg(long, value_name = "NAME,...")]
    pub columns: Option<String>,

    /// Fetch only rows for which CONDITION is true, an expression of SQL such as "price > 2.5 AND
    /// name LIKE 'a%'". The server evaluates it, before --offset and --limit
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "verify")]
    #[arg(allow_hyphen_values = true, value_parser = Condition::parse)]
    pub condition: Option<Condition>,

    /// Skip the first N rows of the table; the server does not send them
    #[arg(long, value_name = "N", default_value = "0", conflicts_with_all = ["parts", "verify"])]
    pub offset: u64,

    /// Fetch at most N rows; the server does not send the others
    #[arg(long, value_name = "N", conflicts_with_all = ["parts", "verify"])]
    pub limit: Option<u64>,

    /// Fetch the parts of the table, several at once: the endpoints that `dipc describe` shows,
    /// which may be on other servers. Rows come in any order, unless the server says that it
    /// matters
    #[arg(long)]
    pub parts: bool,

    /// Compare the table value by value with FILE or tpch:TABLE:SCALE; exit with status 1 if they
    /// differ
    #[arg(long, value_name = "FILE")]
    pub verify: Option<String>,

    /// Print a hash of the content; batch boundaries do not change it
    #[arg(long)]
    pub checksum: bool,

    /// Where to put the table: host, cuda:N (a GPU; `dipc info` lists them) or as-sent (the
    /// server's device if this process reaches its memory, otherwise the host). Rows are always
    /// examined on the host
    #[arg(long, value_name = "WHERE", default_value = "host")]
    pub device: Device,

    /// How long the server may take to accept and answer, and how long it may be silent later; at
    /// least 1us (without this option 10s to accept and answer, and no limit later)
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    pub timeout: Option<Duration>,

    /// How long the whole stream may take. The command asks a busy server again within this time
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    pub deadline: Option<Duration>,

    #[command(flatten)]
    pub trust: crate::trust::ClientTrust,

    /// Most memory that one message may take beside its body (unpacked, copied, or as dictionaries
    /// of the stream), such as 512M; a larger message is an error. At least 64K; without this
    /// option 512M, or 16G for a server of the same user over shm. Also limits a batch of the
    /// Parquet file of --verify
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::message)]
    pub max_message: Option<u64>,

    /// Connections that carry the stream, if the transport can use several (tcp)
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,

    /// How long to spin for data before sleeping (0: not at all); spinning uses a whole core
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    pub spin: Duration,

    /// Check each message by a checksum where a network could change it unseen (tcp and ucx)
    #[arg(long)]
    pub message_checksums: bool,

    /// Print JSON; not with --head
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Whether the first rows are all that is wanted of the table.
    pub fn wants_head_alone(&self) -> bool {
        let wants_all = self.output.is_some() || self.verify.is_some() || self.checksum;
        self.head.is_some() && !wants_all
    }

    /// The part of the table to ask for, among the rows that pass `filter`. Names of unknown columns
    /// are no error here, because the name of a column may have a comma. The work on the rows finds
    /// such a column.
    pub fn selection(&self, filter: Option<Vec<u8>>) -> dipc::Result<Selection> {
        let mut selection = Selection::new();
        if let Some(filter) = filter {
            selection.set_filter(filter)?;
        }
        selection.set_rows(self.offset, self.limit);
        if let Some(names) = &self.columns {
            let _ = selection.set_columns(names.split(','));
        }
        Ok(selection)
    }
}
