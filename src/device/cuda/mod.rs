//! CUDA: memory of NVIDIA GPUs, through the driver API, which is loaded at run time.
//!
//! Ownership. A [`Device`] holds the primary context of a GPU for the life of the process. Streams,
//! events and memory hold their `Device`. The code that enqueues work holds the memory of the work
//! until an event reports its end. Only [`gather`] and [`shift`] own the memory of their work and
//! wait for it.
//!
//! Files. `context` and the files of streams, events and memory import each other: a `Device` keeps
//! loaded kernels, and freed memory for later use, and each of these holds its `Device`.
//!
//! Threads. Each function may run on any thread: it makes the context current ([`Device::enter`])
//! and restores the previous context. In a child of `fork` the functions fail.
//!
//! Death of a peer. Memory that was imported as a file descriptor stays valid, since the driver
//! counts its users over all processes. Memory of a legacy handle must not be used any
//! more. Memory that was exported as a descriptor is freed as any other memory. Its pages live
//! until the last mapping of any process ends, and the driver reuses them only then.
//!
//! No code waits for a whole device: each purpose has a stream, with events between streams. A
//! separate thread makes the calls in which the driver may wait ([`later`]).
//!
//! The host program may reset the device (`cudaDeviceReset`). The next entry into the device
//! detects the reset. All resources of the device are then dropped without a call, and the next
//! [`Device::get`] opens the device anew.

pub(crate) mod array_memory;
pub mod body;
pub mod context;
pub(crate) mod copy_list;
pub(crate) mod copy_stream;
mod driver;
pub mod event;
pub mod export;
mod failure;
mod functions;
pub mod gather;
pub mod import;
mod kernels;
pub mod later;
pub mod memory;
mod once;
pub mod pinned;
pub mod pointer;
mod recycle;
pub mod region;
pub mod room;
pub mod shift;
pub mod stream;

pub use body::GpuBody;
pub use context::{Current, Description, Device, describe_all, uuids};
pub use driver::Driver;
pub use event::{Event, SyncEvent};
pub use failure::Failure;
pub use memory::{DeviceMemory, Purpose};
pub use pinned::{Access, PinnedMemory, Registered};
pub use region::CudaRegion;
pub use stream::Stream;
