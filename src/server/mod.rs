//! A server: its tickets, its connections, and the streams between them.

mod answers;
mod asked;
mod authorizing;
mod connections;
mod core;
mod describe;
mod draining;
mod figures;
mod forwarding;
mod handle;
mod listening;
mod options;
mod peers;
mod providing;
mod pulls;
mod pushing;
mod refusing;
mod relay;
mod request;
mod selecting;
mod serving;
mod source;
mod streams;
mod take_options;
mod taking;
mod threads;
mod tickets;

pub use answers::AsyncAnswer;
pub use authorizing::{Authorizer, SharedAuthorizer};
pub use figures::{ServerStats, process_stats};
pub use handle::Server;
pub use options::ServerOptions;
pub use request::Request;
pub use source::SentTable;
pub use take_options::TakeOptions;
pub use tickets::Provider;

pub use crate::driver::figures::{
    BUCKETS, HANDLER, HistogramSums, LABEL_BYTES, LIST, MOST_LABELS, OTHER, STATUSES, StreamSums,
    VERBS, upper_bound,
};
