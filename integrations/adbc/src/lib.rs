//! An ADBC driver for tables of libdipc: whatever speaks ADBC 1.1 reads and sends them, in the
//! language it is written in.
//!
//! The shared library `libadbc_driver_dipc.so` is loaded by a driver manager. Its entry points are
//! `AdbcDriverDipcInit` and `AdbcDriverInit`. Between processes of one machine a result set lies in
//! the server's memory, and crosses to the host by Arrow's C stream interface without a copy.
//!
//! In Python, with `pip install adbc-driver-manager pyarrow` and a server that was started by
//! `dipc serve --listen shm:@tpch --tpch lineitem --scale 0.1`:
//!
//! ```python
//! import adbc_driver_manager.dbapi as adbc
//!
//! DRIVER = "/usr/local/lib/libadbc_driver_dipc.so"
//! with adbc.connect(DRIVER, uri="shm:@tpch", autocommit=True) as connection:
//!     with connection.cursor() as cursor:
//!         cursor.execute("lineitem")
//!         print(cursor.fetch_arrow_table().num_rows)
//! ```
//!
//! polars reads from the same connection by `polars.read_database("lineitem", connection)`, and
//! DuckDB reads the result set by `duckdb.arrow(cursor.fetch_record_batch())`.
//!
//! # What a statement is
//!
//! | ADBC | libdipc |
//! |---|---|
//! | query (SQL text), or Substrait plan (bytes) | ticket or descriptor, as it is |
//! | `ExecuteQuery` | get; with `dipc.parts`, of all parts at once |
//! | `ExecuteSchema`, `GetTableSchema` | describe; without a description, the start of a get |
//! | `ExecutePartitions` | describe: a partition for each endpoint, with ticket and URIs |
//! | `ReadPartition` | get of the endpoint; any process can read it |
//! | `adbc.ingest.target_table`, bound data | put |
//! | `GetObjects` | list, and describe of each table; names that are not UTF-8 are left out |
//! | `Cancel` | ends the requests of the statement, or the connection's own |
//!
//! The driver knows no SQL: the server's host gives the text its meaning. A partition that comes
//! from elsewhere is not trusted: a server that is not the connection's own does not get the token,
//! unless `dipc.send_secrets` is set, and a ucx server is asked only with `dipc.trusted_network`.
//!
//! There are no transactions, catalogs, parameters or statistics. Such calls fail with
//! `NotImplemented` or, for commit and rollback, `InvalidState`. A query with bound data is
//! refused, too; the data is gone then, and the statement can be used again. A connection with
//! `adbc.connection.readonly` refuses puts, and cannot know what a query does at its server.
//!
//! # Options
//!
//! Values are texts, numbers or bytes; flags are `true` or `false`. Databases take all of them.
//! Connections and statements take those of requests too, which then go before the database's. An
//! unknown name fails with `NotImplemented`, as ADBC demands, and a value that cannot be used with
//! `InvalidArguments`: for options of requests at once, for those of databases when the database is
//! initialised. Files must be there by then.
//!
//! All times are in seconds, up to `1000000000`, or `inf`: no limit. So a statement can remove a
//! limit of its database. A time limit is at least `0.000001`: one of `0` would end what it is for.
//!
//! | Of databases | Value | Default |
//! |---|---|---|
//! | `uri` | address of the server: `shm:`, `tcp://`, `tls://` or `ucx://` | |
//! | `dipc.tls.ca` | authorities of the server's certificate, PEM file | the system's |
//! | `dipc.tls.certificate`, `dipc.tls.key` | this client's certificates and key, PEM | none |
//! | `dipc.tls.server_name` | name that the server's certificate must have | host of the URI |
//! | `dipc.any_user` | flag: servers of other users of this machine too | `false` |
//! | `dipc.idle_timeout` | how long an idle connection is kept; `0`: not at all | `60` |
//! | `dipc.max_idle` | most idle connections; may be `0` | `8` |
//! | `dipc.setting.NAME` | a setting of a transport, as `dipc.setting.ucx.TLS` | |
//!
//! | Of requests | Value | Default |
//! |---|---|---|
//! | `dipc.token` | token, sent as the header `authorization: Bearer TOKEN` | none |
//! | `dipc.header.KEY` | value of the header `KEY`; no `authorization` together with a token | none
//!   |
//! | `dipc.send_secrets` | flag: the token also where others can read it | `false` |
//! | `dipc.connect_timeout` | time limit from connecting to the first answer | `10` |
//! | `dipc.stall_timeout` | time limit of the server's silence | `inf` |
//! | `dipc.deadline` | time limit of a request with its result set | `inf` |
//! | `dipc.window.batches` | batches that may be on the way before they are read, from `1` | `16` |
//! | `dipc.window.bytes` | bytes that may be on the way before they are read, from `1` | 256 MiB |
//! | `dipc.message_limit` | most bytes of a message but its body, from `65536` | 16 GiB or less |
//! | `dipc.connections` | connections for one result set, `1` to `64` | `1` |
//! | `dipc.checksums` | flag: checksums over tcp and ucx | `false` |
//! | `dipc.validation` | `structure` or `full` | by the server's user |
//! | `dipc.spin` | how long a reader spins before it sleeps; `0`: not at all | `0` |
//! | `dipc.trusted_network` | flag: descriptions may lead to ucx | `false` |
//! | `dipc.parts` | flag: `ExecuteQuery` reads all parts of a description at once | `false` |
//! | `dipc.body` | bodies of a put: `auto`, `packed` or `lent` | `auto` |
//! | `dipc.compression` | of a put: `lz4` or `zstd` | none |
//! | `dipc.ingest.modes` | modes that the server follows, with commas | `create` |
//!
//! | Of statements | Value | Default |
//! |---|---|---|
//! | `dipc.columns` | names of columns, with commas; one with a comma in quotes, as in CSV | all |
//! | `dipc.filter` | which rows: an extended expression of Substrait, as bytes | all |
//! | `dipc.offset` | how many rows that pass are left out, first | `0` |
//! | `dipc.limit` | most rows that pass after those | all |
//!
//! These are for `ExecuteQuery`: the server sends only what is selected. If there are more columns
//! than a request can name (4,096, in 64 KiB with the filter), the server sends all columns, and
//! the driver selects. An empty value removes an option. The schema of `ExecuteSchema` has the
//! columns; `ExecutePartitions` is refused with them. A server that knows no selections, or a
//! function of the filter, fails the query with `NotImplemented`.
//!
//! # Ingestion
//!
//! A put has the header `adbc.ingest.mode` with `create`, `append`, `replace` or `create_append`.
//! Only the server's host can follow it, so a mode that is not in `dipc.ingest.modes` is refused
//! with `NotImplemented`. `dipc serve --accept` follows `create`, and with `--replace` also
//! `replace`. `create` fails with `AlreadyExists` if the server describes such a table already.
//!
//! # Errors
//!
//! An error has the text of libdipc's. Its details name libdipc's status (`dipc.status`) and, if
//! they are known, the `errno` (`dipc.errno`), servers to ask instead (`dipc.elsewhere`) and the
//! seconds to wait (`dipc.retry_after`). For an error in the middle of a result set,
//! `AdbcErrorFromArrayStream` gives the details; the stream itself has the text and an `errno` such
//! as `ECANCELED`.
//!
//! # Threads
//!
//! Any thread may call any object, one call at a time for each; the library makes the others wait.
//! `Cancel` waits for nothing. Result sets are independent of their statement and connection.

mod binding;
mod connection;
mod driver;
mod error;
mod exports;
mod info;
mod ingest;
mod last_error;
mod made;
mod objects;
mod partition;
mod results;
mod running;
mod selection;
mod session;
mod settings;
mod statement;
mod values;

pub use connection::Connection;
pub use driver::{Database, Driver};
pub use statement::Statement;
