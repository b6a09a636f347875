//! The kernels of `kernels.cu`. The driver compiles them for a device at their first use.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{CUfunction, CUmodule};

use crate::device::cuda::context::Device;
use crate::device::cuda::stream::Stream;
use crate::error::{Error, Result};

/// The kernels as PTX, with the final NUL that the driver requires.
const IMAGE: &str = concat!(include_str!("kernels.ptx"), "\0");
/// Threads in a block.
const THREADS: u32 = 256;
/// Most blocks for one bitmap.
const MOST_BLOCKS: usize = 256;
/// Most rows of a grid.
const MOST_TASKS: usize = 65_535;

/// A small read, with the kernel's layout.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallRead {
    pub(super) source: u64,
    pub(super) target: u64,
    pub(super) len: u64,
}

/// A range of bits in a bitmap, with the kernels' layout.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct BitTask {
    pub(super) source: u64,
    pub(super) target: u64,
    /// The number of the first bit in the byte at `source`, less than 8.
    pub(super) first: u64,
    pub(super) len: u64,
}

/// The kernels of one device. They stay loaded for the life of its context.
#[derive(Debug)]
pub struct Kernels {
    /// Held, because the functions belong to the module.
    _module: CUmodule,
    gather: CUfunction,
    shift_bits: CUfunction,
    count_bits: CUfunction,
}

// SAFETY: the driver's functions take these handles on any thread.
unsafe impl Send for Kernels {}
// SAFETY: several threads may call the driver's functions with these handles, which nobody writes,
// at once.
unsafe impl Sync for Kernels {}

impl Kernels {
    fn of(device: &Device) -> Result<&Self> {
        device.kernels.get_or_try_init(|| {
            let driver = device.driver;
            let mut module = std::ptr::null_mut();
            let image: *const c_void = IMAGE.as_ptr().cast();
            // SAFETY: `module` is writable, `image` is PTX with a final NUL, and the device's
            // context is current.
            let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image) };
            loaded.map_err(|failure| Error::from(failure).context("loading libdipc's kernels"))?;
            let find = |name: &CStr| -> Result<CUfunction> {
                let mut function = std::ptr::null_mut();
                // SAFETY: `function` is writable, the module was loaded above, and `name` is a C
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
                // SAFETY: the module was loaded above, and none of its functions is kept.
                let outcome = unsafe { driver.cuModuleUnload(module) };
                super::stream::log_drop_error(outcome, "a CUDA module");
            })
        })
    }
}

impl Stream {
    /// Copies all `count` reads at `reads`.
    ///
    /// # Safety
    ///
    /// `reads` is the address of `count` [`SmallRead`]s that the device can read. Until the work is
    /// done, the device can read the source and write the target of each.
    pub(super) unsafe fn gather(&self, reads: u64, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let _current = self.device().enter()?;
        let kernels = Kernels::of(self.device())?;
        let blocks = u32::try_from(count.div_ceil(THREADS as usize))
            .map_err(|_| Error::out_of_memory("too many small reads at a time"))?;
        // SAFETY: the kernel takes these two parameters; the caller promises the memory.
        unsafe { self.launch(kernels.gather, (blocks, 1), [reads, count as u64]) }
    }

    /// For each of the `count` tasks at `tasks`, writes the bits to its target, from bit 0 on, and
    /// fills the last byte with 0. `longest` is the largest number of bits of a task.
    ///
    /// # Safety
    ///
    /// `tasks` is the address of `count` [`BitTask`]s that the device can read. Until the work is
    /// done, the device can read the source and write the target of each.
    pub(super) unsafe fn shift_bits(&self, tasks: u64, count: usize, longest: usize) -> Result<()> {
        // SAFETY: the caller promises the tasks, which this kernel takes.
        unsafe { self.bits(|kernels| kernels.shift_bits, tasks, count, longest) }
    }

    /// For each task, adds the number of 1 bits to the 8-byte number at its target.
    ///
    /// # Safety
    ///
    /// As [`shift_bits`](Self::shift_bits); the targets are on the device and aligned to 8.
    pub(super) unsafe fn count_bits(&self, tasks: u64, count: usize, longest: usize) -> Result<()> {
        // SAFETY: the caller promises the tasks, which this kernel takes.
        unsafe { self.bits(|kernels| kernels.count_bits, tasks, count, longest) }
    }

    /// # Safety
    ///
    /// As [`shift_bits`](Self::shift_bits). The function that `which` gives takes tasks.
    unsafe fn bits(
        &self,
        which: fn(&Kernels) -> CUfunction,
        tasks: u64,
        count: usize,
        longest: usize,
    ) -> Result<()> {
        let _current = self.device().enter()?;
        let function = which(Kernels::of(self.device())?);
        let columns = longest.div_ceil(8 * THREADS as usize).clamp(1, MOST_BLOCKS);
        let columns = u32::try_from(columns).unwrap_or(1);
        let mut done = 0;
        while done < count {
            let rows = (count - done).min(MOST_TASKS);
            let at = tasks + (done * size_of::<BitTask>()) as u64;
            let height = u32::try_from(rows).unwrap_or(1);
            // SAFETY: the caller promises the function and `count` tasks, which include these
            // `rows`.
            unsafe { self.launch(function, (columns, height), [at, 0]) }?;
            done += rows;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `function` is a kernel of this device. Its parameters are the first values of `parameters`,
    /// and memory that they point to is valid for it. The device's context is current.
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
        // SAFETY: the pointers lead to the parameters; the caller promises the rest.
        let launched = unsafe {
            self.device().driver.cuLaunchKernel(
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
