//! The speed of memory: copies, and sums of numbers.

use std::mem::{align_of, size_of};
use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use arrow::array::{Int64Array, RecordBatch, RecordBatchIterator};
use arrow::buffer::ScalarBuffer;
use arrow::ffi::FFI_ArrowArray;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use dipc::{ArrowArray, ArrowDeviceArray, DeviceArray};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::getpid;

use crate::bench::base::case::{Case, Shape, Values as Kind};
use crate::bench::base::message::Parent;
use crate::bench::base::timing::measure;
use crate::bench::base::values::{Values, sum};

/// The position of a walk through memory, in pieces.
struct Walk {
    memory: usize,
    size: usize,
    next: usize,
}

impl Walk {
    /// A walk through as much memory as the distinct batches may take, or through one piece.
    fn new(case: &Case, size: usize) -> Result<Self> {
        let memory = usize::try_from(case.ring_bytes)?.max(size);
        Ok(Self {
            // A multiple of the size of a number.
            memory: memory.next_multiple_of(8),
            size,
            next: 0,
        })
    }

    fn step(&mut self) -> Range<usize> {
        if self.next + self.size > self.memory {
            self.next = 0;
        }
        let start = self.next;
        self.next += self.size;
        start..start + self.size
    }
}

/// `memcpy` from this process's memory into a memfd. Both were touched before.
pub fn memcpy(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let memory = walk.memory;
    let source = vec![1_u8; memory];
    let file = memfd_create("dipc-bench", MemfdFlags::CLOEXEC).context("no file in memory")?;
    ftruncate(&file, memory as u64)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the system chooses, of a file that only this
    // process has and never shortens. It stays until the process ends.
    let mapped = unsafe { mmap(ptr::null_mut(), memory, access, MapFlags::SHARED, &file, 0) };
    let mapped = mapped.context("cannot map a file in memory")?.cast::<u8>();
    // SAFETY: the mapping has `memory` bytes, which hold zeros, and nobody else knows of it.
    let target = unsafe { slice::from_raw_parts_mut(mapped, memory) };
    target.copy_from_slice(&source);
    measure(case, parent, || {
        let piece = walk.step();
        target[piece.clone()].copy_from_slice(&source[piece]);
        std::hint::black_box(&mut *target);
        Ok(())
    })
}

/// `process_vm_readv` within this process, into one buffer. Both were touched before. The copy is
/// the same as between processes, which the system may forbid.
pub fn process_vm_readv(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let mut source = vec![1_u8; walk.memory];
    let mut target = vec![0_u8; size];
    let own = getpid().as_raw_nonzero().get();
    measure(case, parent, || {
        let (mut done, piece) = (0, walk.step());
        while done < size {
            let to = iovec(&mut target[done..]);
            let from = iovec(&mut source[piece.start + done..piece.end]);
            // SAFETY: both describe memory of this process that is there and that nobody else uses
            // meanwhile. Plain bytes are written.
            let copied =
                unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
            // A large message is sent in parts.
            done += usize::try_from(copied).map_err(|_| std::io::Error::last_os_error())?;
        }
        Ok(())
    })
}

fn iovec(memory: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: memory.len(),
    }
}

/// Adds up memory of this process.
pub fn sums(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let numbers = vec![1_u64; walk.memory / 8];
    measure(case, parent, || {
        let piece = walk.step();
        let total = sum(&numbers[piece.start / 8..piece.end / 8]);
        std::hint::black_box(total);
        Ok(())
    })
}

/// Adds up batches that come through another library's C stream, without a move between processes.
/// Each batch is exported, read like a batch of libdipc, and released.
pub fn stream_sums(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let shape = Shape {
        columns: 1,
        values: Kind::Int64,
    };
    let schema = Arc::new(shape.schema());
    let numbers = ScalarBuffer::from(vec![1_i64; walk.memory / 8]);
    let batch = |piece: Range<usize>| {
        let values = numbers.slice(piece.start / 8, piece.len() / 8);
        RecordBatch::try_new(
            Arc::clone(&schema),
            vec![Arc::new(Int64Array::new(values, None))],
        )
    };
    let pieces = (0..walk.memory / size.max(8)).map(|_| walk.step());
    let batches = pieces.map(batch).collect::<Result<Vec<_>, _>>()?;
    let endless = batches.into_iter().cycle().map(Ok);
    let reader = RecordBatchIterator::new(endless, Arc::clone(&schema));
    let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
    let next = stream.get_next().context("the stream is released")?;
    let values = Values::of(&schema, shape)?;
    measure(case, parent, || {
        let mut array = ArrowDeviceArray::empty();
        let place = (&raw mut array.array).cast::<FFI_ArrowArray>();
        // SAFETY: the stream is live, and `place` is writable: both types are the struct of the C
        // data interface, and have one layout (compared below).
        let status = unsafe { next(&raw mut stream, place) };
        ensure!(
            status == 0 && array.array.release.is_some(),
            "the stream ended"
        );
        // SAFETY: the stream has given the array, which follows the interface, lies on the host, as
        // `empty` says, and has the columns of the stream's schema. Nobody else has it.
        let array = unsafe { DeviceArray::from_c(array, Arc::clone(&schema)) };
        // SAFETY: the array is of the stream that `values` was made of.
        let total = unsafe { values.sum(&array) }?;
        std::hint::black_box(total);
        Ok(())
    })
}

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<ArrowArray>());
