//! GPUs for the layers above. CUDA is the only kind.

pub(crate) use crate::device::cuda::array_memory::ArrayMemory;
pub(crate) use crate::device::cuda::copy_list::CopyList;
pub(crate) use crate::device::cuda::copy_stream::CopyStream;
pub use crate::device::cuda::gather::Reads;
pub use crate::device::cuda::pointer::Pointer;
pub use crate::device::cuda::room::{GpuAllocator, RoomMemory};
pub use crate::device::cuda::shift::{Shifted, Shifts};
pub use crate::device::cuda::{
    Device as Gpu, DeviceMemory as GpuMemory, Driver as GpuDriver, Event as GpuEvent, PinnedMemory,
    Purpose, Stream as GpuStream, later,
};
