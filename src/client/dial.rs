//! Where a client goes for a stream, with what connection, and how long that may take.

use std::sync::Arc;
use std::time::Duration;

use super::pool::{ConnectionKey, ConnectionKind};
use super::sharing::not_opened;
use super::uris::KnownUri;
use super::{GetOptions, PutOptions};
use crate::driver::clock;
use crate::error::{Error, Result, Status};
use crate::proto::{AnswerLimit, Timestamp};
use crate::transport::ConnectOptions;

/// The URI for metadata, and the URI for bodies if it is another one.
///
/// # Errors
///
/// `InvalidArgument`.
pub(super) fn sides(uris: &[KnownUri]) -> Result<(&KnownUri, Option<&KnownUri>)> {
    match uris {
        [metadata] => Ok((metadata, None)),
        [metadata, data] => Ok((metadata, Some(data))),
        _ => Err(Error::invalid_argument("a stream has one URI, or two")),
    }
}

/// The key under which the connection of a stream is kept.
///
/// # Errors
///
/// As [`sides`].
pub(super) fn key_of(uris: &[KnownUri], options: &GetOptions) -> Result<Option<ConnectionKey>> {
    let (metadata, data) = sides(uris)?;
    let key = || (Arc::clone(&metadata.name), kind_of(options));
    Ok(data.is_none().then(key))
}

/// Whether streams to the server at this URI, with so many sockets each, may share connections.
pub(super) fn may_share(uri: &KnownUri, sockets: u16) -> bool {
    sockets == 1 && uri.uri.extension && !uri.uri.is_bare
}

/// What is left of a deadline is rounded to a multiple of this.
const ROUND: Duration = Duration::from_millis(10);

/// The options of a new connection.
pub(super) struct DialOptions {
    connect_timeout: Duration,
    /// The deadline of the whole stream, and the time when it passes.
    deadline: Option<(Duration, Timestamp)>,
    pub(super) unexpected_bytes: u64,
    pub(super) kind: ConnectionKind,
}

fn kind_of(options: &GetOptions) -> ConnectionKind {
    ConnectionKind {
        sockets: options.connections,
        checksums: options.checksums,
    }
}

impl DialOptions {
    /// `due`: when the deadline of the options ends.
    pub(super) fn of_get(options: &GetOptions, due: Option<Timestamp>) -> Self {
        Self {
            connect_timeout: options.connect_timeout,
            deadline: options.deadline.zip(due),
            unexpected_bytes: options.window.bytes,
            kind: kind_of(options),
        }
    }

    /// `answers`: in an exchange, the window in bytes of the stream that the server sends.
    pub(super) fn of_put(
        options: &PutOptions,
        due: Option<Timestamp>,
        answers: Option<u64>,
    ) -> Self {
        Self {
            connect_timeout: options.connect_timeout,
            deadline: options.deadline.zip(due),
            unexpected_bytes: answers.unwrap_or(0),
            kind: ConnectionKind {
                sockets: options.connections,
                checksums: options.checksums,
            },
        }
    }

    pub(super) fn connect(&self) -> ConnectOptions {
        // Rounded up, for texts.
        let rounded = |time: Duration| {
            let steps = time.as_nanos().div_ceil(ROUND.as_nanos());
            ROUND.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
        };
        let left = self.deadline.map(|(_, due)| rounded(clock::until(due)));
        ConnectOptions {
            timeout: self.connect_timeout.min(left.unwrap_or(Duration::MAX)),
            connections: self.kind.sockets,
            checksums: self.kind.checksums,
        }
    }

    /// The time limit of the server's answer to a request that set out at `start`.
    pub(super) fn answer(&self, start: Timestamp) -> AnswerLimit {
        AnswerLimit {
            by: start.saturating_add(self.connect_timeout),
            timeout: self.connect_timeout,
        }
    }

    /// Fails if the deadline has passed while the stream waited for another stream's connection.
    pub(super) fn ensure_time(&self) -> Result<()> {
        match self.deadline {
            Some((_, due)) if clock::now() >= due => Err(self.explain(not_opened())),
            _ => Ok(()),
        }
    }

    /// If the deadline has set the limit, the text of the time-out names the deadline.
    pub(super) fn explain(&self, error: Error) -> Error {
        let is_late = |&(_, due): &(Duration, Timestamp)| clock::now() >= due;
        match (error.status(), self.deadline.filter(is_late)) {
            (Status::Timeout, Some((deadline, _))) => error.context(format_args!(
                "the stream has not begun within its deadline of {deadline:?}"
            )),
            _ => error,
        }
    }
}
