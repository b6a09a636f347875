//! The only loop: a transport, a clock and a state machine, and the threads that turn them.
//!
//! Who does what:
//!
//! - **An I/O thread** ([`io::IoThread`], one per server and one per client) sleeps in epoll. At a
//!   server it accepts, and reads requests, credit and frees, and sends published tables whose bodies
//!   are lent where they lie, or small ([`produce::Replay`]): such a stream has no thread. At a client
//!   it watches connections that no consumer drives, and sends frees that nobody else has sent within
//!   10 ms (rule F5). It never calls the host.
//! - **A producing thread** ([`produce::Production`], one per provider stream or large
//!   published one, or the host's own in the pull form) pulls the provider, builds headers, copies bodies where that is needed, and
//!   writes to the connection itself. A provider's thread that is ahead of the consumer also reads the
//!   connection, in place of the I/O thread (`served/reading.rs`). Between two streams it waits for the next request on the
//!   connection of the last one, and reads it.
//! - **The consumer's thread** ([`fetch::Fetch`]) reads its own stream in `get_next`: no hand-over
//!   stands between it and the socket.
//! - **The callback thread** ([`callbacks::Callbacks`], one per server) releases the producer's
//!   arrays when the peer has returned them, since a release is the host's code. What a provider's thread reads
//!   or sends for itself it also releases itself.
//!
//! Locks: a connection has one ([`serve::ServerLink`], [`fetch::ClientLink`]), held for the time of a
//! non-blocking read or write and never while the host is called, memory is copied or a thread
//! sleeps. No lock of another connection is taken under it.
//!
//! When the peer dies, its connection's end is read (or its pidfd fires) by the thread that watches
//! it at that moment: everything it held comes back, the stream's waiters are woken, and only that
//! stream ends.

pub mod acceptor;
pub mod callbacks;
pub mod clock;
pub mod fetch;
pub mod io;
pub mod produce;
mod refusing;
pub mod serve;
mod spare;
pub mod telling;
pub mod turning;
pub mod waiting;

/// What a stream leaves the next one is not kept where a header of its schema is longer: a hundred
/// columns or so.
const MOST_KEPT_HEADER_BYTES: usize = 16 << 10;
