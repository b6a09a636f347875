//! Tickets as tables of DataFusion.
//!
//! | File | Part |
//! |---|---|
//! | `server` | where tables are, and what their servers say of them |
//! | `provider` | a table, for the planner |
//! | `filter` | conditions that the server evaluates, as its messages have them |
//! | `wanted` | the table itself, and the part of it that a scan gives |
//! | `scan`, `statistics` | its plan: partitions, and what is known of them |
//! | `reading` | one part's batches, on their way in |
//! | `insert` | batches on their way out |

mod filter;
mod insert;
mod provider;
mod reading;
mod scan;
mod server;
mod statistics;
mod wanted;

pub(crate) use filter::Filter;
pub use provider::DipcTableProvider;
pub use scan::DipcScanExec;
pub use server::DipcServer;
pub(crate) use wanted::{Table, Wanted};
