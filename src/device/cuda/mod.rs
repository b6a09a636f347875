//! CUDA: memory of NVIDIA's GPUs, through the driver's API, which is loaded at run time.
//!
//! Who owns what. A [`Device`] holds the primary context of a GPU for the life of the process.
//! Streams, events and memory hold their `Device`. Memory that work on a stream uses is held by
//! whoever enqueued the work until an event behind it says that it is done; nothing here waits for
//! it by itself, apart from [`gather`] and [`shift`], which own what they use.
//!
//! Which thread. Any: each function makes the context current for its own time
//! ([`Device::enter`]) and then puts back what was current. A child made by `fork` is refused.
//!
//! When a peer dies. Memory that was imported as a file descriptor stays, since the driver counts
//! its users over all processes; memory of a legacy handle, or of a pool, must not be touched any
//! more. Memory that was exported as a descriptor is freed here as any other. Its pages stay with
//! the last mapping in any process, and the driver gives them to nobody else until then.
//!
//! Nothing waits for a whole device: there is one stream for each purpose, and events between them.
//! What the driver may wait for by itself, when memory is given back, a thread of ours does
//! ([`later`]).
//!
//! A host may reset its device (`cudaDeviceReset`). That is noticed where the device is entered:
//! then everything of it is dropped without a call, and the next [`Device::get`] begins anew.

pub(crate) mod array_memory;
pub mod body;
pub mod context;
pub mod copy;
pub(crate) mod copy_list;
pub(crate) mod copy_stream;
mod driver;
pub mod event;
pub mod export;
mod functions;
pub mod gather;
pub mod import;
mod kernels;
pub mod later;
pub mod memory;
mod once;
pub mod pinned;
pub mod pointer;
pub mod pool;
mod recycle;
pub mod region;
pub mod room;
pub mod shift;
pub mod stream;

pub use body::GpuBody;
pub use context::{Current, Description, Device, describe_all, uuids};
pub use driver::{Driver, Failure};
pub use event::{Event, SyncEvent};
pub use memory::{DeviceMemory, Purpose};
pub use pinned::{Access, PinnedMemory, Registered};
pub use region::CudaRegion;
pub use stream::Stream;
