//! Turns connections: a transport, a clock and a state machine, and the threads that turn them.
//! `docs/architecture.md` has the whole picture.
//!
//! - [`turning`]: one connection behind its lock, and the token of its owner.
//! - [`end`], [`fetch`]: one end of a connection, and a stream that comes in over it.
//! - [`produce`]: streams on their way out. [`fetch`] has those on their way in.
//! - [`io`]: the I/O thread, one for each server and each client. It never calls the host.
//! - [`polling`], [`signal`], [`bell`]: descriptors for hosts that sleep in an event loop of their own.
//! - [`waiting`]: how long a thread looks, holds back and sleeps.
//! - [`stream_loop`]: a thread that calls the host for many streams.
//! - [`callbacks`]: the thread that releases the host's arrays.
//! - [`acceptor`]: a listening address.
//! - [`figures`]: what streams have carried, and how long it took.
//!
//! A connection has one lock, held for a read or a write that does not block and never while the
//! host is called or a thread sleeps. No lock of another connection is taken under it.

pub mod acceptor;
pub mod bell;
pub mod callbacks;
mod client_watch;
pub mod clock;
pub mod end;
pub mod fetch;
pub mod figures;
pub mod host_fd;
pub mod io;
mod packed;
pub mod polling;
pub mod produce;
mod refusing;
mod returns;
pub mod signal;
pub mod stream_loop;
pub mod telling;
pub mod turning;
pub mod waiting;
pub mod wording;
