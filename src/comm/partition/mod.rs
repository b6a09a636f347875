//! Which rank each row of a record batch goes to, and the batch cut into one batch for each rank.

mod fixed;
pub mod hash;
