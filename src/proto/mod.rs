//! The Dissociated IPC protocol as state machines: no unsafe code, clock, I/O or threads.
#![forbid(unsafe_code)]

mod body;
mod tag;
mod uri;

pub use body::Span;
pub use tag::Tags;
pub use uri::{Role, Uri};
