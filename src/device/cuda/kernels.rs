//! The kernels of `kernels/kernels.cu`, compiled by the driver for the device when first used.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::device::cuda::context::Device;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// The kernels as PTX, with the NUL that the driver wants at the end.
const IMAGE: &str = concat!(include_str!("kernels/kernels.ptx"), "\0");
/// Threads of a block.
const THREADS: u32 = 256;
/// Most blocks that share one bitmap.
const MOST_BLOCKS: usize = 256;
/// Most rows of a grid.
const MOST_TASKS: usize = 65_535;

/// A small read, as the kernel has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallRead {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) len: u64,
}

/// Some bits of a bitmap, as the kernels have them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct BitTask {
    pub(super) source: u64,
    pub(super) target: u64,
    /// Of the first bit in the byte at `source`, less than 8.
    pub(super) first: u64,
    pub(super) len: u64,
}

/// The kernels of one device. They stay loaded for the life of its context.
#[derive(Debug)]
pub struct Kernels {
    /// Held, not used: the functions are parts of it.
    _module: CUmodule,
    gather: CUfunction,
    shift_bits: CUfunction,
    count_bits: CUfunction,
}

// SAFETY: they are handles that the driver's functions take on any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; they are never written.
unsafe impl Sync for Kernels {}

impl Kernels {
    fn of(device: &Device) -> Result<&Self> {
        device.kernels.get_or_try_init(|| {
            let driver = device.driver();
            let mut module = std::ptr::null_mut();
            let image: *const c_void = IMAGE.as_ptr().cast();
            // SAFETY: `module` is writable, `image` PTX that ends with a NUL, and the device's
            // context is current.
            let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image) };
            loaded.map_err(|failure| Error::from(failure).context("loading libdipc's kernels"))?;
            let find = |name: &CStr| -> Result<CUfunction> {
                let mut function = std::ptr::null_mut();
                // SAFETY: `function` is writable, the module was loaded above, `name` is a C
                // string.
                unsafe { driver.cuModuleGetFunction(&raw mut function, module, name.as_ptr()) }?;
                Ok(function)
            };
            let found = || {
                Ok(Self {
                    _module: module,
                    gather: find(c"dipc_gather")?,
                    shift_bits: find(c"dipc_shift_bits")?,
                    count_bits: find(c"dipc_count_bits")?,
                })
            };
            found().inspect_err(|_: &Error| {
                // SAFETY: the module was loaded above, and no function of it is kept.
                let gone = unsafe { driver.cuModuleUnload(module) };
                super::stream::left(gone.map_err(Error::from), "a CUDA module");
            })
        })
    }
}

impl Stream {
    /// Copies every read of the `count` at `reads`.
    ///
    /// # Safety
    ///
    /// `reads` is the address of `count` [`SmallRead`]s that the device reads, each of which names
    /// memory that it reads and memory that it writes, until the stream has done it.
    pub(super) unsafe fn gather(&self, reads: u64, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let kernels = Kernels::of(self.device())?;
        let blocks = u32::try_from(count.div_ceil(THREADS as usize))
            .map_err(|_| Error::out_of_memory("too many small reads at a time"))?;
        // SAFETY: the kernel's parameters are these two; the caller promises the memory.
        unsafe { self.launch(kernels.gather, (blocks, 1), [reads, count as u64]) }
    }

    /// Writes the bits of each of the `count` tasks at `tasks` from bit 0 of its target on, the
    /// last byte filled up with 0. `longest` is how many bits the longest has.
    ///
    /// # Safety
    ///
    /// `tasks` is the address of `count` [`BitTask`]s that the device reads, each of which names
    /// memory that it reads and memory that it writes, until the stream has done it.
    pub(super) unsafe fn shift_bits(&self, tasks: u64, count: usize, longest: usize) -> Result<()> {
        let _current = self.device().enter()?;
        let function = Kernels::of(self.device())?.shift_bits;
        // SAFETY: the caller promises the tasks.
        unsafe { self.bits(function, tasks, count, longest) }
    }

    /// Adds how many bits of each task are 1 to the 8 bytes at its target.
    ///
    /// # Safety
    ///
    /// As [`shift_bits`](Self::shift_bits); targets are on the device and aligned to 8.
    pub(super) unsafe fn count_bits(&self, tasks: u64, count: usize, longest: usize) -> Result<()> {
        let _current = self.device().enter()?;
        let function = Kernels::of(self.device())?.count_bits;
        // SAFETY: the caller promises the tasks.
        unsafe { self.bits(function, tasks, count, longest) }
    }

    /// # Safety
    ///
    /// As [`shift_bits`](Self::shift_bits), and `function` takes tasks; its device's context is
    /// current.
    unsafe fn bits(
        &self,
        function: CUfunction,
        tasks: u64,
        count: usize,
        longest: usize,
    ) -> Result<()> {
        let columns = longest.div_ceil(8 * THREADS as usize).clamp(1, MOST_BLOCKS);
        let columns = u32::try_from(columns).unwrap_or(1);
        let mut done = 0;
        while done < count {
            let rows = (count - done).min(MOST_TASKS);
            let at = tasks + (done * size_of::<BitTask>()) as u64;
            let height = u32::try_from(rows).unwrap_or(1);
            // SAFETY: the caller promises `count` tasks, of which these are `rows`.
            unsafe { self.launch(function, (columns, height), [at, 0]) }?;
            done += rows;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `function` is a kernel of this device whose parameters are the first ones of `parameters`,
    /// and what they lead to is good for it; the device's context is current.
    unsafe fn launch(
        &self,
        function: CUfunction,
        (columns, rows): (u32, u32),
        mut parameters: [u64; 2],
    ) -> Result<()> {
        let [first, second] = &mut parameters;
        // The driver copies the values before it returns.
        let mut pointers: [*mut c_void; 2] = [
            std::ptr::from_mut(first).cast(),
            std::ptr::from_mut(second).cast(),
        ];
        // SAFETY: the pointers lead to the values of the parameters; the caller promises the rest.
        let launched = unsafe {
            self.device().driver().cuLaunchKernel(
                function,
                columns,
                rows,
                1,
                THREADS,
                1,
                1,
                0,
                self.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        Ok(launched?)
    }
}
