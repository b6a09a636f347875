//! The arguments of `dipc serve`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use dipc::Target;

use crate::accept::Ending;
use crate::access::AccessArgs;
use crate::source::{Reading, tpch};
use crate::trust::ServerTls;

/// Arguments of `dipc serve`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen: shm:@NAME (abstract), shm:/PATH, tcp://HOST:PORT, tls://HOST:PORT (with
    /// --tls-cert and --tls-key) or ucx://HOST:PORT (port 0: any); may be given several times.
    /// Sockets of a service manager (LISTEN_FDS) are served too
    #[arg(long, value_name = "URI")]
    pub listen: Vec<String>,

    /// Answer Arrow Flight clients here: they get the addresses of --listen, or the tables by DoGet
    /// (port 0: any)
    #[arg(long, value_name = "HOST:PORT")]
    pub flight: Option<String>,

    /// Give the server's figures by HTTP at http://HOST:PORT/metrics, for Prometheus and `dipc top`
    /// (port 0: any). Beyond this machine only with --allow-remote: nothing is encrypted
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,

    /// Parquet, Arrow file or Arrow stream files; the ticket of each is NAME, or the file's name
    /// without its ending. Of a directory, each file in it that ends in .parquet, .arrow, .arrows
    /// or .feather. A quoted pattern ('data/**/*.parquet') stands for the files that match it
    #[arg(value_name = "[NAME=]FILE")]
    pub files: Vec<OsString>,

    /// Serve the tables of this directory, and take tables that clients put (`dipc put`) into it. A
    /// table is served as soon as it is whole
    #[arg(long, value_name = "DIR", conflicts_with = "arena")]
    pub accept: Option<PathBuf>,

    /// The format of taken tables whose names do not end in .arrow (Arrow file), .arrows (Arrow
    /// stream) or .parquet
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "arrow",
        requires = "accept"
    )]
    pub accept_as: Ending,

    /// Let clients replace tables of the directory of --accept
    #[arg(long, requires = "accept")]
    pub replace: bool,

    /// Serve a generated TPC-H table; may be given several times
    #[arg(long, value_name = "TABLE")]
    pub tpch: Vec<tpch::Table>,

    /// Scale factor of the TPC-H tables: 1 is about six million rows of lineitem
    #[arg(long, value_name = "F", default_value = "1", value_parser = tpch::parse_scale)]
    pub scale: f64,

    /// Read every table into lendable memory before serving; lent bodies are then not copied. The
    /// tables must fit. Small bodies, and bodies for other machines, are still sent
    #[arg(long)]
    pub arena: bool,

    /// Device to serve the tables from: host, or cuda:N, a GPU (`dipc info` lists them). Tables are
    /// copied to a GPU before serving, and must fit; with --arena into lendable memory of the GPU
    #[arg(long, value_name = "WHERE", default_value = "host")]
    pub device: Target,

    /// Most rows of a batch; a batch of a Parquet file has fewer if it would exceed --max-message
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    pub batch_rows: Option<NonZeroUsize>,

    /// Most streams served at once. An eighth, 64 at most, is only for your own processes, by shm
    #[arg(long, value_name = "N", default_value = "64", value_parser = crate::parse::count)]
    pub max_streams: NonZeroUsize,

    /// Most streams for which tables are read at once, including streams whose clients have gone
    /// [default: 64 more than --max-streams]
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    pub max_providers: Option<NonZeroUsize>,

    /// Most connections of all clients, and as many of Flight's [default: as many as take half of
    /// the limit on open files, of which one over shm takes two; for Flight an eighth]
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    pub max_connections: Option<NonZeroUsize>,

    /// Most memory for lent copies, such as 512M (0: no lending, bodies are sent as bytes); with
    /// --arena as much again for all tables together
    #[arg(long, value_name = "BYTES", default_value = "16G", value_parser = crate::parse::bytes)]
    pub max_memory: u64,

    /// Most memory that one message of an Arrow file may take beside its body (unpacked, copied, or
    /// as dictionaries of the file), or a batch of a Parquet file beside its bytes in the file; a
    /// table that needs more is refused [default: 512M; at least 64K]
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::message)]
    pub max_message: Option<u64>,

    /// Admit clients of every user, not only of your own
    #[arg(long)]
    pub any_user: bool,

    #[command(flatten)]
    pub tls: ServerTls,

    #[command(flatten)]
    pub access: AccessArgs,

    /// Let other machines connect without encryption: by tcp and Flight and for metrics, or for
    /// what is named
    #[arg(
        long,
        value_name = "WHAT,...",
        value_enum,
        value_delimiter = ',',
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "tcp,flight,metrics"
    )]
    pub allow_remote: Vec<Remote>,

    /// Trust every process that can connect; ucx needs this, because its peers can read and write
    /// this process's memory
    #[arg(long)]
    pub trusted_network: bool,

    /// How bodies travel: lent if that is faster, always as bytes, or lent whenever possible. Over
    /// ucx only the last one lends, by RDMA, which has run on no adapter yet
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub body: Body,

    /// Print two more URIs for each address, for clients that fetch metadata and bodies from two.
    /// With --flight, Flight clients get those of ucx addresses first
    #[arg(long)]
    pub roles: bool,

    /// How long to spin for requests before sleeping (0: not at all); spinning uses a whole core
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    pub spin: Duration,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    pub settings: Vec<(String, String)>,

    /// How long running streams may continue after the first SIGINT or SIGTERM (0: they end at
    /// once, as with a second signal)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::parse::duration)]
    pub drain: Duration,

    /// A server to which clients that ask meanwhile are sent; may be given several times, best
    /// first
    #[arg(long, value_name = "URI")]
    pub redirect: Vec<String>,

    /// Print JSON, one object on each line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Body {
    Auto,
    Packed,
    Lent,
}

/// What `--allow-remote` allows.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Remote {
    Tcp,
    Flight,
    Metrics,
}

impl Args {
    /// Options for reading the sources.
    pub fn reading(&self) -> Reading {
        Reading {
            batch_rows: self.batch_rows.map(NonZeroUsize::get),
            message_limit: self.max_message,
        }
    }
}
