//! Which rank each row of a record batch goes to, and the batch cut into one batch for each rank.

mod columns;
pub mod cut;
pub mod destination;
mod fixed;
mod gather;
pub mod hash;
mod partitioner;
pub mod range;

pub use partitioner::{Partitioner, Partitioning};
pub use range::{SortKey, Splitters};
