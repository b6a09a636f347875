//! A server: its tickets, its connections, and the streams between them.

mod admitting;
mod answers;
mod asked;
mod asked_for;
mod attachment;
mod authorizer;
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
mod forwarded;
mod forwarding;
mod handle;
mod listening;
mod options;
mod peers;
mod provider;
mod providing;
mod published;
mod pull_stream;
mod pulls;
mod pushing;
mod relay;
mod request;
mod selected;
mod serving;
mod streams;
mod take_options;
mod taken;
mod taking;
mod threads;
mod tickets;
mod work;

pub use attachment::SentTable;
pub use authorizer::{Authorizer, SharedAuthorizer};
pub use figures::{ServerStats, process_stats};
pub use handle::ServerHandle;
pub use options::ServerOptions;
pub use provider::HostProvider;
pub use request::{AsyncAnswer, ServerRequest};
pub use take_options::TakeOptions;

pub use crate::driver::figures::{
    BUCKETS, HANDLER, HistogramSums, LABEL_BYTES, LIST, MOST_LABELS, OTHER, STATUSES, StreamSums,
    VERBS, upper_bound,
};
