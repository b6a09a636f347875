//! A server: its tickets, its connections, and the streams between them.

mod answers;
mod asked;
mod asked_for;
mod attachment;
mod authorizing;
mod beginning;
mod client_stream;
mod connections;
mod core;
mod deciding;
mod describe;
mod dispatch;
mod draining;
mod errors;
mod figures;
mod forwarding;
mod handle;
mod host;
mod listening;
mod options;
mod peers;
mod providing;
mod pulls;
mod pushing;
mod relay;
mod request;
mod serving;
mod streams;
mod threads;
mod tickets;

pub use attachment::SentTable;
pub use client_stream::TakeOptions;
pub use figures::{ServerStats, process_stats};
pub use handle::ServerHandle;
pub use host::{Authorizer, HostProvider, SharedAuthorizer};
pub use options::ServerOptions;
pub use request::{AsyncAnswer, ServerRequest};

pub use crate::driver::figures::{
    BUCKETS, HANDLER, HistogramSums, LABEL_BYTES, LIST, MOST_LABELS, OTHER, STATUSES, StreamSums,
    VERBS, upper_bound,
};
