//! Streams on their way out: from a provider or a host that pushes ([`Production`]), or of a
//! published table ([`Publication`]).

mod asking;
mod body;
mod ending;
mod filtering;
mod on_gpu;
mod options;
mod outlet;
mod polled;
mod production;
mod publication;
mod selecting;
mod stream;
mod table;

pub(crate) use body::gather;
pub use options::{Counting, ProduceOptions};
pub use production::Production;
pub use publication::Publication;
pub use stream::OutStream;
pub use table::{Published, TableParts};

#[cfg(test)]
mod tests;
