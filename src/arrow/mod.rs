//! Arrow in and out: from the C structs to an IPC header and a list of buffers, and back.

pub mod abi;
mod batches;
mod owned;

pub use batches::{BatchReader, batch_from_c, batch_to_c, schema_from_c, schema_to_c};
pub use owned::{
    CStruct, Owned, OwnedArray, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream,
};
