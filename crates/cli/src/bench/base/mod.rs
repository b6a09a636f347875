//! What every process of a measurement needs; nothing here knows an operation.

pub mod case;
pub mod certificate;
pub mod choices;
pub mod gpu;
pub mod message;
pub mod streams;
pub mod table;
pub mod timing;
pub mod values;
