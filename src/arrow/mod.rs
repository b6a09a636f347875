//! Arrow in and out: from the C structs to an IPC header and a list of buffers, and back.

pub mod abi;
pub mod decode;
mod owned;
pub mod stream;

pub use owned::{
    CStruct, Owned, OwnedArray, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream,
};
