//! Which rank each row of a record batch goes to, and the batch cut into one batch for each rank.

pub mod cut;
mod fixed;
mod gather;
pub mod hash;
