//! The Dissociated IPC protocol as state machines: no unsafe code, clock, I/O or threads.
#![forbid(unsafe_code)]

mod body;
mod header;
mod tag;
mod uri;

pub use body::Span;
pub use header::{BodySpan, HeaderKind};
pub use tag::Tags;
pub use uri::{Role, Uri};
