//! The one error type of the crate, and its status numbers for the C boundary.
//!
//! The text of an error names the cause and, if possible, the remedy, for people. The status is for
//! programs: a number never gets a second meaning.

use std::ffi::CStr;
use std::fmt;
use std::time::Duration;

/// `std::result::Result` with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal, $errno:ident;)*) => {
        /// The kind of failure, as a number that never changes its meaning (`dipc_status` in C).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name = $code,)*
        }

        impl Status {
            /// Every status, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number, as it crosses the C boundary and the wire.
            pub const fn code(self) -> i32 {
                self as i32
            }

            /// The status with this number; `None` for an unknown number.
            pub const fn from_code(code: i32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name of the constant in `dipc.h`.
            pub const fn symbol(self) -> &'static str {
                match self {
                    $(Self::$name => $symbol,)*
                }
            }

            /// [`symbol`](Self::symbol) as a string of C.
            pub(crate) const fn c_symbol(self) -> &'static CStr {
                let text = match self {
                    $(Self::$name => concat!($symbol, "\0"),)*
                };
                match CStr::from_bytes_with_nul(text.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }

            /// The `errno` value for this status. The callbacks of Arrow's streams can return an
            /// `errno` only.
            pub const fn errno(self) -> i32 {
                match self {
                    $(Self::$name => libc::$errno,)*
                }
            }
        }
    };
}

statuses! {
    /// A pointer that must not be NULL was NULL; nothing changed.
    NullArgument = -1, "DIPC_ERR_NULL_ARGUMENT", EINVAL;
    /// An argument is outside the range of the function; nothing changed.
    InvalidArgument = -2, "DIPC_ERR_INVALID_ARGUMENT", EINVAL;
    /// A URI is malformed, or lacks a required part.
    InvalidUri = -3, "DIPC_ERR_INVALID_URI", EINVAL;
    /// This build, machine or peer does not support the request.
    Unsupported = -4, "DIPC_ERR_UNSUPPORTED", ENOTSUP;
    /// The server has no such ticket.
    NotFound = -5, "DIPC_ERR_NOT_FOUND", ENOENT;
    /// The server already serves the ticket.
    AlreadyExists = -6, "DIPC_ERR_ALREADY_EXISTS", EEXIST;
    /// Another live server listens at the address.
    AddressInUse = -7, "DIPC_ERR_ADDRESS_IN_USE", EADDRINUSE;
    /// No server listens at the address, or the network does not reach the address.
    Unreachable = -8, "DIPC_ERR_UNREACHABLE", ECONNREFUSED;
    /// The peer, or the operating system, denies access to this user.
    Permission = -9, "DIPC_ERR_PERMISSION", EACCES;
    /// The peer broke a rule of the protocol.
    Protocol = -10, "DIPC_ERR_PROTOCOL", EPROTO;
    /// The peer is gone: its process ended, or the connection broke.
    Disconnected = -11, "DIPC_ERR_DISCONNECTED", ECONNRESET;
    /// This side or the peer cancelled the stream.
    Cancelled = -12, "DIPC_ERR_CANCELLED", ECANCELED;
    /// Connecting, or waiting for the peer, took longer than the option allows.
    Timeout = -13, "DIPC_ERR_TIMEOUT", ETIMEDOUT;
    /// The server already serves the most streams that its options allow; try again later.
    Busy = -14, "DIPC_ERR_BUSY", EBUSY;
    /// Memory for bodies or regions ran out, or the limit of an option was reached.
    OutOfMemory = -15, "DIPC_ERR_OUT_OF_MEMORY", ENOMEM;
    /// File descriptors, threads or another resource of the process ran out.
    OutOfResources = -16, "DIPC_ERR_OUT_OF_RESOURCES", EMFILE;
    /// The operating system reported an error without a status of its own.
    Io = -17, "DIPC_ERR_IO", EIO;
    /// An Arrow array or schema, from the caller or from the peer, is not valid.
    InvalidData = -18, "DIPC_ERR_INVALID_DATA", EINVAL;
    /// The provider of the ticket failed; the text comes from the provider.
    Provider = -19, "DIPC_ERR_PROVIDER", EIO;
    /// The server or client was stopped.
    Stopped = -20, "DIPC_ERR_STOPPED", ESHUTDOWN;
    /// The handle was made before a `fork`, and this process is the child.
    Forked = -21, "DIPC_ERR_FORKED", ECHILD;
    /// A bug in libdipc: the call panicked. The handle can only be freed.
    Panic = -22, "DIPC_ERR_PANIC", EIO;
    /// An earlier call on the handle panicked. The handle can only be freed.
    Poisoned = -23, "DIPC_ERR_POISONED", EIO;
    /// The caller's buffer is too small; the function wrote the required length.
    BufferTooSmall = -24, "DIPC_ERR_BUFFER_TOO_SMALL", ERANGE;
}

impl Status {
    /// True if a peer can send this status. The other statuses concern the caller's own pointers,
    /// handles and process.
    #[doc(hidden)]
    pub fn is_for_peers(self) -> bool {
        !matches!(
            self,
            Self::NullArgument | Self::Forked | Self::Panic | Self::Poisoned | Self::BufferTooSmall
        )
    }
}

/// The cause of a failure: a status for programs, a text for people.
///
/// Cloneable, because one failure of a connection ends several calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: Box<str>,
    /// The `errno` of the failed system call, if any.
    os_error: Option<i32>,
    /// The error before [`Error::context`] extended its text.
    cause: Option<std::sync::Arc<Error>>,
    /// The name of the protocol rule that a peer broke. The text for users omits the name.
    rule: Option<&'static str>,
    /// What the client can do instead, if a server has refused its request.
    advice: Option<std::sync::Arc<Advice>>,
}

/// What a server that refuses a request advises its client to do. Clients get it in the headers of
/// the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// URIs of servers that the client may ask instead, best first.
    pub elsewhere: Vec<String>,
    /// How long the client should wait before it asks again.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error with `status` and a text that names the cause and, if possible, the remedy. Control
    /// characters become spaces, so that the words of a peer or host cannot write lines or terminal
    /// commands into a log.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.contains(char::is_control) {
            text = text.replace(char::is_control, " ");
        }
        Self {
            status,
            text: text.into_boxed_str(),
            os_error: None,
            cause: None,
            rule: None,
            advice: None,
        }
    }

    /// The failure of a system call. `doing` names the attempt, as in "cannot listen".
    #[doc(hidden)]
    pub fn os(doing: impl fmt::Display, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let status = match errno {
            Errno::ACCESS | Errno::PERM => Status::Permission,
            Errno::ADDRINUSE => Status::AddressInUse,
            Errno::CONNREFUSED | Errno::NOENT | Errno::HOSTUNREACH | Errno::NETUNREACH => {
                Status::Unreachable
            }
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Status::Disconnected,
            Errno::MFILE | Errno::NFILE | Errno::AGAIN => Status::OutOfResources,
            Errno::NOMEM | Errno::NOSPC | Errno::DQUOT | Errno::NOBUFS => Status::OutOfMemory,
            Errno::TIMEDOUT => Status::Timeout,
            _ => Status::Io,
        };
        match errno {
            Errno::MFILE | Errno::NFILE => {
                const NONE_LEFT: &str =
                    "no file descriptor is left, raise the limit of open files (ulimit -n)";
                Self::os_as(status, format_args!("{doing}: {NONE_LEFT}"), errno)
            }
            _ => Self::os_as(status, doing, errno),
        }
    }

    /// [`Error::os`] with a `status` that differs from the usual status of `errno`.
    #[doc(hidden)]
    pub fn os_as(status: Status, doing: impl fmt::Display, errno: rustix::io::Errno) -> Self {
        let source = std::io::Error::from(errno);
        Self {
            status,
            text: format!("{doing}: {source}").into_boxed_str(),
            os_error: Some(errno.raw_os_error()),
            cause: None,
            rule: None,
            advice: None,
        }
    }

    /// [`Error::os`] for errors that come from the standard library.
    #[doc(hidden)]
    pub fn io(doing: impl fmt::Display, source: &std::io::Error) -> Self {
        match rustix::io::Errno::from_io_error(source) {
            Some(errno) => Self::os(doing, errno),
            None => Self::new(Status::Io, format!("{doing}: {source}")),
        }
    }

    /// The same error with `doing` and a colon before its text, unless the text already begins with
    /// `doing`.
    #[must_use]
    pub fn context(self, doing: impl fmt::Display) -> Self {
        let mut brief = BoundedText {
            text: String::new(),
            left: MOST_CONTEXT,
        };
        if fmt::write(&mut brief, format_args!("{doing}")).is_err() {
            brief.text.push_str("...");
        }
        let text = match self.text.starts_with(&brief.text) {
            true => self.text.clone(),
            false => format!("{}: {}", brief.text, self.text).into_boxed_str(),
        };
        Self {
            status: self.status,
            text,
            os_error: self.os_error,
            rule: self.rule,
            advice: self.advice.clone(),
            cause: Some(std::sync::Arc::new(self)),
        }
    }

    /// The error before [`context`](Self::context). Not an [`std::error::Error::source`]: this
    /// error's text contains the cause's text, so a reporter would print the cause twice.
    pub fn cause(&self) -> Option<&Self> {
        self.cause.as_deref()
    }

    /// The kind of failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The text: one line, without a newline.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The error of a peer that broke `rule`, for example `D6`.
    #[doc(hidden)]
    pub fn of_rule(rule: &'static str, text: impl Into<String>) -> Self {
        Self {
            rule: Some(rule),
            ..Self::new(Status::Protocol, text)
        }
    }

    /// The protocol rule that a peer broke, if known.
    #[doc(hidden)]
    pub fn rule(&self) -> Option<&'static str> {
        self.rule
    }

    /// The same error with what the client can do instead.
    #[must_use]
    pub fn with_advice(self, advice: Option<Advice>) -> Self {
        Self {
            advice: advice.map(std::sync::Arc::new),
            ..self
        }
    }

    /// What a client can do instead, as the server that refused its request advises.
    pub fn advice(&self) -> Option<&Advice> {
        self.advice.as_deref()
    }

    /// The `errno` of the failed system call, if any.
    pub fn os_error(&self) -> Option<i32> {
        self.os_error
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $status:ident;)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(text: impl Into<String>) -> Self {
                Self::new(Status::$status, text)
            })*
        }
    };
}

constructors! {
    /// An argument is outside the range of the function.
    invalid_argument => InvalidArgument;
    /// An Arrow array or schema is not valid.
    invalid_data => InvalidData;
    /// The peer broke a rule of the protocol.
    protocol => Protocol;
    /// This build, machine or peer does not support the request.
    unsupported => Unsupported;
    /// The peer is gone.
    disconnected => Disconnected;
    /// The stream was cancelled.
    cancelled => Cancelled;
    /// Waiting took longer than the option allows.
    timeout => Timeout;
    /// Memory ran out, or the limit of an option was reached.
    out_of_memory => OutOfMemory;
}

/// Most bytes that one [`Error::context`] adds. A peer chooses the names of its fields, and each
/// level of nesting adds a name.
const MOST_CONTEXT: usize = 512;

/// Text of a bounded length; the rest is dropped.
struct BoundedText {
    text: String,
    left: usize,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.left);
        let (fits, rest) = text.split_at(end);
        self.text.push_str(fits);
        self.left -= end;
        match rest {
            "" => Ok(()),
            _ => Err(fmt::Error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// The text of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `context`: no text is repeated, and the cause stays available.
    #[test]
    fn a_context_is_said_once() {
        let inner = Error::os("cannot listen at shm:@a", rustix::io::Errno::ADDRINUSE);
        let outer = inner.clone().context("cannot listen at shm:@a");
        assert_eq!(outer.text(), inner.text());
        assert_eq!(outer.cause().unwrap().text(), inner.text());
        let outer = outer.context("here");
        assert_eq!(outer.text(), format!("here: {}", inner.text()));
    }

    /// Promise of `dipc.h`: the numbers are negative and distinct, and lead back to the status.
    #[test]
    fn statuses_are_distinct_negative_numbers() {
        for (index, status) in Status::ALL.iter().enumerate() {
            assert!(status.code() < 0);
            assert!(status.errno() > 0);
            assert_eq!(Status::from_code(status.code()), Some(*status));
            assert!(
                Status::ALL[..index]
                    .iter()
                    .all(|other| other.code() != status.code())
            );
        }
        assert_eq!(Status::from_code(0), None);
    }

    /// Promise of `dipc.h`: the text is one line, whatever the peer sends.
    #[test]
    fn texts_are_one_line() {
        let error = Error::protocol("the server says: all\nis\x1b[31mwell\r").context("here");
        assert_eq!(error.text(), "here: the server says: all is [31mwell ");
    }

    /// A system error keeps its number and names the attempt.
    #[test]
    fn os_errors_say_what_was_attempted() {
        let error = Error::os("cannot listen", rustix::io::Errno::ADDRINUSE);
        assert_eq!(error.status(), Status::AddressInUse);
        assert!(error.text().starts_with("cannot listen: "));
        assert_eq!(error.os_error(), Some(libc::EADDRINUSE));
        let error = Error::os("cannot listen", rustix::io::Errno::MFILE);
        assert_eq!(error.status(), Status::OutOfResources);
        assert!(error.text().contains("ulimit -n"), "{error}");
    }
}
