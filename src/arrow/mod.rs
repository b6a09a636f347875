//! Arrow arrays: encoding into an IPC header and a list of buffers, and decoding.

pub mod abi;
mod annotated;
pub mod async_consumer;
pub mod async_stream;
pub(crate) mod batches;
pub mod columns;
mod copy;
pub mod decode;
pub mod description;
pub mod encode;
pub mod format;
mod null_views;
mod owned;
pub mod select;
mod shared;
pub mod stream;
pub mod transfer;

pub use annotated::{annotate, annotation};
pub use batches::{
    BatchReader, batch_from_c, batch_to_c, export_batches, schema_from_c, schema_to_c,
};
pub use copy::copy_schema;
pub use encode::{Compression, EncodeOptions, EncodedMessage, EncodedMessages, Encoder};
pub(crate) use null_views::clear_null_views;
pub use owned::{
    CStruct, Owned, OwnedArray, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream,
};
pub(crate) use shared::{share, view};
