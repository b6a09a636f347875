//! Options of requests, as builders.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use crate::arrow::Compression;
use crate::arrow::decode::Level;
use crate::cancel::Cancel;
use crate::client;
use crate::device::Target;
use crate::error::Result;
use crate::proto::{Credit, Headers, Selection};
use crate::transport::BodyPolicy;

/// Options of a get, a list or a describe.
///
/// ```
/// use std::time::Duration;
///
/// let options = dipc::GetOptions::new()
///     .deadline(Duration::from_secs(30))
///     .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")?
///     .connections(2);
/// # let _ = options;
/// # Ok::<(), dipc::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    pub(super) inner: client::GetOptions,
    pub(super) cancel: Option<Cancel>,
}

/// Options of a put, or of the client's stream of an exchange.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    pub(super) inner: client::PutOptions,
    pub(super) cancel: Option<Cancel>,
}

/// The setters that requests of both directions have.
macro_rules! common {
    ($options:ident) => {
        impl $options {
            /// The defaults.
            pub fn new() -> Self {
                Self::default()
            }

            /// Adds a header for the server's host.
            ///
            /// # Errors
            ///
            /// [`Status::InvalidArgument`](crate::Status::InvalidArgument): the key is empty, has
            /// an upper-case letter or a character that a header cannot have, or all headers
            /// together are too long.
            pub fn header(mut self, key: &str, value: impl Into<Vec<u8>>) -> Result<Self> {
                self.inner.headers.add(key, value)?;
                Ok(self)
            }
        }

        setters! { $options
            /// Time limit from connecting to the server's first answer. Default: 10 s. If the
            /// provider takes longer, the server answers that the request has arrived. After that
            /// only the deadline and the stall timeout end the wait.
            connect_timeout(limit: Duration) => inner.connect_timeout = limit;

            /// How long the server may be silent while this side waits for it. Default: for ever.
            stall_timeout(limit: Duration) => inner.stall_timeout = Some(limit);

            /// How long the whole stream may take, from the request on. The server's host sees it.
            /// Default: for ever.
            deadline(limit: Duration) => inner.deadline = Some(limit);

            /// The headers for the server's host. Replaces all earlier headers.
            headers(headers: Headers) => inner.headers = headers;

            /// Sends the header `authorization` also where others can read the connection.
            send_secrets(send: bool) => inner.send_secrets = send;

            /// Connections for the stream, if the transport can split bodies. Default: 1.
            connections(count: u16) => inner.connections = count;

            /// Gives each message a checksum over the transports where a network could change a
            /// message unseen: tcp and ucx. With checksums, bodies travel as bytes.
            checksums(checksums: bool) => inner.checksums = checksums;

            /// A token that ends the request and its stream.
            cancel(token: &Cancel) => cancel = Some(token.clone());
        }
    };
}

common!(GetOptions);
common!(PutOptions);

setters! { GetOptions
    /// How many batches, and how many bytes of bodies, the server may send before they are read.
    /// Default: 16 batches and 256 MiB.
    window(batches: u64, bytes: u64) => inner.window = Credit { batches, bytes };

    /// The columns and rows that are wanted. Replaces all earlier selections.
    selection(selection: Selection) => inner.selection = selection;

    /// Where the batches shall lie: [`Reader::next_array`](super::Reader::next_array) gives them
    /// there. Default: on the host.
    device(target: Target) => inner.device = target;

    /// How thoroughly the arrays are checked. Default: [`Level::Structure`] for a server of the
    /// same user, [`Level::Full`] for others. See [soundness](crate#soundness).
    validation(level: Level) => inner.level = Some(level);

    /// Most memory of this process that one message may take in addition to its body. Default: 16
    /// GiB from a server of the same user, 512 MiB from others.
    message_limit(bytes: u64) => inner.message_limit = Some(bytes);

    /// How long a waiting reader spins before it sleeps. Default: zero, which means at most 50
    /// microseconds, and only while spinning has lately found a message.
    spin(time: Duration) => inner.spin = time;

    /// Also follows descriptions to servers over ucx, which can read and write this process's
    /// memory.
    trusted_network(trusted: bool) => inner.trusted_network = trusted;
}

impl GetOptions {
    /// Asks for these columns only, in this order. Without any name the rows have no columns.
    /// Default: all columns.
    ///
    /// # Errors
    ///
    /// [`Status::InvalidArgument`](crate::Status::InvalidArgument): a name comes twice, there are
    /// more than 4096, or they are too long together. The get itself fails with the same status if
    /// the table lacks a column, or has several columns of one name.
    ///
    /// ```
    /// let options = dipc::GetOptions::new().columns(["day", "price"])?.rows(1_000..2_000);
    /// # let _ = options;
    /// # Ok::<(), dipc::Error>(())
    /// ```
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self> {
        self.inner.selection.set_columns(names)?;
        Ok(self)
    }

    /// Asks only for the rows that pass `message`, an extended expression of Substrait as bytes of
    /// protobuf, as `pyarrow`'s `Expression.to_substrait` and DataFusion write it. The server
    /// evaluates it, so that other rows are not sent. A range counts the rows that pass. Default:
    /// all rows.
    ///
    /// The get fails with `Unsupported` if filters do not support a function or a type; the text
    /// has its name.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no bytes, or more than 64 KiB.
    pub fn filter(mut self, message: impl Into<Vec<u8>>) -> Result<Self> {
        self.inner.selection.set_filter(message)?;
        Ok(self)
    }

    /// Asks only for these rows, counting from 0. If the table ends earlier, the stream has fewer
    /// rows. Default: all rows. [`get_parts`](super::Client::get_parts) refuses a range.
    #[must_use]
    pub fn rows(mut self, range: impl RangeBounds<u64>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => None,
        };
        let rows = end.map(|end| end.saturating_sub(first));
        self.inner.selection.set_rows(first, rows);
        self
    }
}

setters! { PutOptions
    /// How bodies travel. Default: lent if that is possible and faster.
    body(body: BodyPolicy) => inner.body = body;

    /// Compresses bodies, which then travel as bytes.
    compression(compression: Compression) => inner.compression = Some(compression);
}
