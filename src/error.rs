//! The one error type of the crate, and the status numbers that it turns into at the C boundary.
//!
//! Every error names its cause and, where there is one, the remedy: the text is what somebody
//! reads at night. Statuses are for programs; a number, once given out, is never used again.

use std::fmt;

/// What `Result` means in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal, $errno:ident;)*) => {
        /// The kind of failure, as a number that never changes its meaning (`dipc_status` in C).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
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

            /// The status with this number, if there is one.
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

            /// The `errno` value that stands for this status in the callbacks of Arrow's streams,
            /// which can return nothing else.
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
    /// An argument is outside what the function takes; nothing changed.
    InvalidArgument = -2, "DIPC_ERR_INVALID_ARGUMENT", EINVAL;
    /// A URI cannot be read, or lacks a part that it must have.
    InvalidUri = -3, "DIPC_ERR_INVALID_URI", EINVAL;
    /// This build, machine or peer cannot do what was asked.
    Unsupported = -4, "DIPC_ERR_UNSUPPORTED", ENOTSUP;
    /// The server has no such ticket.
    NotFound = -5, "DIPC_ERR_NOT_FOUND", ENOENT;
    /// The ticket is served already.
    AlreadyExists = -6, "DIPC_ERR_ALREADY_EXISTS", EEXIST;
    /// Another live server listens at the address.
    AddressInUse = -7, "DIPC_ERR_ADDRESS_IN_USE", EADDRINUSE;
    /// Nobody listens at the address, or it cannot be reached.
    Unreachable = -8, "DIPC_ERR_UNREACHABLE", ECONNREFUSED;
    /// The peer, or the operating system, does not admit this user.
    Permission = -9, "DIPC_ERR_PERMISSION", EACCES;
    /// The peer broke a rule of the protocol.
    Protocol = -10, "DIPC_ERR_PROTOCOL", EPROTO;
    /// The peer went away: its process ended or the connection was cut.
    Disconnected = -11, "DIPC_ERR_DISCONNECTED", ECONNRESET;
    /// The stream was cancelled, by this side or the other.
    Cancelled = -12, "DIPC_ERR_CANCELLED", ECANCELED;
    /// Connecting, or waiting for the peer, took longer than the option allows.
    Timeout = -13, "DIPC_ERR_TIMEOUT", ETIMEDOUT;
    /// The server serves as many streams as its options allow; try again later.
    Busy = -14, "DIPC_ERR_BUSY", EBUSY;
    /// Memory for bodies or regions ran out, or an option's limit on it was reached.
    OutOfMemory = -15, "DIPC_ERR_OUT_OF_MEMORY", ENOMEM;
    /// File descriptors, threads or another resource of the process ran out.
    OutOfResources = -16, "DIPC_ERR_OUT_OF_RESOURCES", EMFILE;
    /// The operating system reported an error that has no status of its own.
    Io = -17, "DIPC_ERR_IO", EIO;
    /// An Arrow array or schema, the caller's or the peer's, is not valid.
    InvalidData = -18, "DIPC_ERR_INVALID_DATA", EINVAL;
    /// The provider of the ticket failed; the text is the provider's.
    Provider = -19, "DIPC_ERR_PROVIDER", EIO;
    /// The server or client was stopped.
    Stopped = -20, "DIPC_ERR_STOPPED", ESHUTDOWN;
    /// The handle was made before a `fork` and this is the child.
    Forked = -21, "DIPC_ERR_FORKED", ECHILD;
    /// A bug in libdipc: the call panicked and the handle can only be freed.
    Panic = -22, "DIPC_ERR_PANIC", EIO;
    /// An earlier call on the handle panicked; it can only be freed.
    Poisoned = -23, "DIPC_ERR_POISONED", EIO;
    /// The caller's buffer is too small; the length needed was written.
    BufferTooSmall = -24, "DIPC_ERR_BUFFER_TOO_SMALL", ERANGE;
}

impl Status {
    /// Whether a peer can mean it. The others say something of the caller's own pointers, handles
    /// and process.
    pub fn is_for_peers(self) -> bool {
        !matches!(
            self,
            Self::NullArgument | Self::Forked | Self::Panic | Self::Poisoned | Self::BufferTooSmall
        )
    }
}

/// Why something failed: a status for programs, a text for people.
///
/// Cloneable, because one failure of a connection ends several calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    status: Status,
    text: Box<str>,
    /// `errno` of the system call that failed, where one did.
    os_error: Option<i32>,
    /// The error that this one says more about.
    cause: Option<std::sync::Arc<Error>>,
    /// The rule of the protocol that a peer broke, by its name, which says nothing to users.
    rule: Option<&'static str>,
}

impl Error {
    /// An error with `status` and a text that names the cause and, where there is one, the remedy.
    /// It becomes one line: parts of it may be a peer's or a host's words, which are not to write
    /// lines or terminal commands of their own into a log.
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
        }
    }

    /// The failure of a system call: `doing` says what was attempted, as in "cannot listen".
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

    /// [`Error::os`] where `errno` means another status than it mostly does.
    pub fn os_as(status: Status, doing: impl fmt::Display, errno: rustix::io::Errno) -> Self {
        let source = std::io::Error::from(errno);
        Self {
            status,
            text: format!("{doing}: {source}").into_boxed_str(),
            os_error: Some(errno.raw_os_error()),
            cause: None,
            rule: None,
        }
    }

    /// [`Error::os`] for errors that come from the standard library.
    pub fn io(doing: impl fmt::Display, source: &std::io::Error) -> Self {
        match rustix::io::Errno::from_io_error(source) {
            Some(errno) => Self::os(doing, errno),
            None => Self::new(Status::Io, format!("{doing}: {source}")),
        }
    }

    /// The same error with what was being done put before its text, where that does not begin with
    /// it.
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
            cause: Some(std::sync::Arc::new(self)),
        }
    }

    /// The error as it was before [`context`](Self::context) was put before it. Its text is a
    /// part of this one's, so it is not an [`std::error::Error::source`], which would repeat it.
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

    /// A peer broke `rule`, as `D6`.
    pub fn of_rule(rule: &'static str, text: impl Into<String>) -> Self {
        Self {
            rule: Some(rule),
            ..Self::new(Status::Protocol, text)
        }
    }

    /// The rule of the protocol that a peer broke, where it is known.
    pub fn rule(&self) -> Option<&'static str> {
        self.rule
    }

    /// `errno` of the system call that failed, where one did.
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
    /// An argument is outside what the function takes.
    invalid_argument => InvalidArgument;
    /// An Arrow array or schema is not valid.
    invalid_data => InvalidData;
    /// The peer broke a rule of the protocol.
    protocol => Protocol;
    /// This build, machine or peer cannot do what was asked.
    unsupported => Unsupported;
    /// The peer went away.
    disconnected => Disconnected;
    /// The stream was cancelled.
    cancelled => Cancelled;
    /// Waiting took longer than the option allows.
    timeout => Timeout;
    /// Memory, or an option's limit on it, ran out.
    out_of_memory => OutOfMemory;
}

/// Most bytes that one [`Error::context`] adds: a peer chooses the names of its fields, and each
/// level of nesting adds one.
const MOST_CONTEXT: usize = 512;

/// Text that ends where there is no room left.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `context`: nothing is said twice, and the cause is there all the same.
    #[test]
    fn a_context_is_said_once() {
        let inner = Error::os("cannot listen at shm:@a", rustix::io::Errno::ADDRINUSE);
        let outer = inner.clone().context("cannot listen at shm:@a");
        assert_eq!(outer.text(), inner.text());
        assert_eq!(outer.cause().unwrap().text(), inner.text());
        let outer = outer.context("here");
        assert_eq!(outer.text(), format!("here: {}", inner.text()));
    }

    /// Promise of `dipc.h`: numbers are negative, distinct, and lead back to their status.
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

    /// Promise of `dipc.h`: the text is one line, whoever's words it holds.
    #[test]
    fn texts_are_one_line() {
        let error = Error::protocol("the server says: all\nis\x1b[31mwell\r").context("here");
        assert_eq!(error.text(), "here: the server says: all is [31mwell ");
    }

    /// A system error keeps its number and says what was attempted.
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
