//! Arenas in GPU memory.

use std::ptr::NonNull;

use arrow::record_batch::RecordBatchIterator;
use dipc::arena::{self, Arena, ArenaOptions, find_on_gpu};
use dipc::arrow::stream::{DeviceStreamReader, export_device_stream, to_device};
use dipc::arrow::transfer::move_into;
use dipc::arrow::transfer::to_host;
use dipc::arrow::{BatchReader, export_batches};
use dipc::device::DeviceKind;
use dipc::device::cuda::import::ImportedMemory;
use dipc::device::cuda::{CudaRegion, Device};
use dipc::error::Status;

use crate::decoding::{assert_at, assert_clean, buffers};
use crate::headers::wide;
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("arena-blocks", blocks_are_lent),
    ("arena-bounds", regions_are_bounded),
    ("arena-unsupported", arenas_are_refused),
    ("arena-regions", regions_of_a_gpu),
    ("arena-tables", tables_lie_in_an_arena),
];

const UNIT: u64 = 2 << 20;

fn arena(region_bytes: u64, max_bytes: u64) -> Arena {
    let options = ArenaOptions {
        region_bytes,
        max_bytes,
    };
    Arena::on(DeviceKind::CUDA, 0, options).unwrap()
}

fn address(block: NonNull<u8>) -> u64 {
    block.as_ptr() as u64
}

/// Copies at once, like a host with its own context.
fn copy(device: &Device, target: u64, source: u64, len: usize) {
    let _current = device.enter().unwrap();
    assert_eq!(fake::memory_copy(target, source, len), 0);
}

fn read(device: &Device, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    copy(device, bytes.as_mut_ptr() as u64, address, len);
    bytes
}

/// Gives back a block that nobody uses.
fn free(arena: &Arena, block: NonNull<u8>) -> dipc::error::Result<()> {
    // SAFETY: these tests run no work on any block.
    unsafe { arena.dealloc(block) }
}

/// Promise of `dipc_arena_new`: blocks of a GPU's arena are found by their address without a driver
/// call, lie in exportable memory, and outlive the arena.
#[test]
fn blocks_of_a_gpu_are_found_without_the_driver() {
    run("arena-blocks", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn blocks_are_lent() {
    let device = Device::get(1).unwrap();
    let before = fake::Live::now();
    let arena = Arena::on(DeviceKind::CUDA, 1, ArenaOptions::default()).unwrap();
    assert_eq!((arena.device(), arena.device_id()), (DeviceKind::CUDA, 1));
    let blocks = [0, 1, 64, 5000, 3 << 20].map(|len| (arena.alloc(len).unwrap(), len));
    // The memory belongs to the device: the driver can write at the block's address.
    let (block, _) = blocks[3];
    const TEXT: &[u8] = b"lent from an arena";
    copy(&device, address(block), TEXT.as_ptr() as u64, TEXT.len());
    let calls: i64 = fake::counts().iter().map(|(_, count)| count).sum();
    for (block, len) in blocks {
        assert!(address(block).is_multiple_of(64));
        let (region, offset) = find_on_gpu(address(block), len).unwrap();
        assert_eq!(region.base() + offset, address(block));
        assert_eq!(region.device().ordinal(), 1);
        assert!(region.is_block(offset));
        // A lookup for the host does not find it.
        assert!(arena::find(block.as_ptr(), len).is_none());
        assert!(find_on_gpu(region.base(), region.len() + 1).is_none());
    }
    assert!(find_on_gpu(std::ptr::from_ref(&calls) as u64, 1).is_none());
    let after: i64 = fake::counts().iter().map(|(_, count)| count).sum();
    assert_eq!(calls, after, "the driver was asked");

    let (region, offset) = find_on_gpu(address(block), 1).unwrap();
    let fd = region.memory().export().unwrap();
    let mapping = ImportedMemory::map(&device, &fd, region.len()).unwrap();
    assert_eq!(read(&device, mapping.address() + offset, TEXT.len()), TEXT);
    drop((mapping, region));

    assert_eq!(arena.mapped_bytes(), 64 << 20);
    assert_eq!(
        arena.buffer_from(b"host").unwrap_err().status(),
        Status::Unsupported
    );
    // The memory outlives the handle; NULL for the arena finds it.
    drop(arena);
    assert_eq!(read(&device, address(block), 4), b"lent");
    for (block, _) in blocks {
        // SAFETY: no work on the block is under way.
        unsafe { arena::dealloc(block) }.unwrap();
    }
    // SAFETY: an unknown address is not touched.
    let again = unsafe { arena::dealloc(block) }.unwrap_err();
    assert_eq!(again.status(), Status::InvalidArgument);
    device.trim().unwrap();
    assert_eq!(fake::Live::now(), before);
}

/// Promise of `move_into`: a table that is moved into an arena lies there, is equal, and its memory
/// comes back with the arrays; a full arena is an error of the stream.
#[test]
fn tables_are_moved_into_an_arena() {
    run("arena-tables", &[]);
}

fn tables_lie_in_an_arena() {
    let arena = arena(1 << 20, 8 << 20);
    let batch = wide();
    let reader = |batches: usize| {
        let items = (0..batches).map(|_| Ok(batch.clone())).collect::<Vec<_>>();
        let items = RecordBatchIterator::new(items, batch.schema());
        Box::new(DeviceStreamReader::new(export_batches(Box::new(items))))
    };
    let mut moved = move_into(reader(2), arena.room().unwrap()).unwrap();
    assert_eq!(moved.device_type(), DeviceKind::CUDA.0);
    let mut arrays = Vec::new();
    while let Some(array) = moved.next().unwrap() {
        assert_at(&array, Some(0), "in an arena");
        let mut found = 0;
        buffers(&array.raw().array, &mut |address| {
            assert!(find_on_gpu(address, 1).is_some());
            found += 1;
        });
        assert!(found > 50, "{found}");
        arrays.push(array);
    }
    drop(moved);
    assert_eq!(arrays.len(), 2);
    assert!(arena.used_bytes() > 100_000);
    drop(arrays);
    assert_eq!(arena.used_bytes(), 0);

    let moved = move_into(reader(3), arena.room().unwrap()).unwrap();
    let host = to_device(to_host(export_device_stream(moved)).unwrap());
    // SAFETY: the stream is libdipc's own, over valid batches.
    let read = unsafe { BatchReader::new(host) }.unwrap();
    let read: Vec<_> = read.map(|read| read.unwrap()).collect();
    assert_eq!(read, vec![batch.clone(); 3]);

    let held: Vec<_> = (0..4).map(|_| arena.alloc(2 << 20).unwrap()).collect();
    let mut moved = move_into(reader(1), arena.room().unwrap()).unwrap();
    let full = moved.next().unwrap_err();
    assert_eq!(full.status(), Status::OutOfMemory);
    assert!(full.text().contains("max_bytes"), "{full}");
    for block in held {
        free(&arena, block).unwrap();
    }
    let host = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    assert!(host.room().is_none());
    drop((moved, arena));
    assert_clean("an arena's tables");
}

/// Promise of `dipc_arena_options_set_max_bytes` and rule F4, as on the host: regions are limited,
/// one empty region is kept, and a region that a peer may see for ever goes with its last block.
#[test]
fn arenas_of_a_gpu_have_the_rules_of_the_hosts() {
    run("arena-bounds", &[("FAKE_CUDA_MEMORY", "67108864")]);
}

fn regions_are_bounded() {
    let device = Device::get(0).unwrap();
    let small = arena(1, 3 * UNIT);
    let blocks = [(); 3].map(|()| small.alloc(2 << 20).unwrap());
    let full = small.alloc(1).unwrap_err();
    assert_eq!(full.status(), Status::OutOfMemory);
    assert!(full.text().contains("max_bytes"), "{full}");
    assert_eq!(small.mapped_bytes(), 3 * UNIT);
    for block in blocks {
        free(&small, block).unwrap();
        assert_eq!(
            free(&small, block).unwrap_err().status(),
            Status::InvalidArgument
        );
    }
    assert_eq!(small.mapped_bytes(), UNIT);
    // The empty regions make room for one that fits, and that is within the limit.
    let whole = small.alloc(6 << 20).unwrap();
    assert_eq!(small.mapped_bytes(), 3 * UNIT);
    let other = arena(1, u64::MAX);
    assert_eq!(
        free(&other, whole).unwrap_err().status(),
        Status::InvalidArgument
    );
    free(&small, whole).unwrap();

    let block = other.alloc(64).unwrap();
    let (region, _) = find_on_gpu(address(block), 64).unwrap();
    region.taint();
    let next = other.alloc(64).unwrap();
    assert!(region.offset_of(address(next), 64).is_none(), "rule F4");
    drop(region);
    free(&other, block).unwrap();
    assert!(find_on_gpu(address(block), 64).is_none(), "rule F4");
    free(&other, next).unwrap();

    // More than the GPU's memory; afterwards all is as before.
    let mapped = other.mapped_bytes();
    let error = other.alloc(100 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.text().contains("on GPU 0"), "{error}");
    assert_eq!(other.mapped_bytes(), mapped);
    for call in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        device.trim().unwrap();
        fake::fail_call(call, 1, 999);
        let error = other.alloc(10 << 20).unwrap_err();
        assert!(error.text().contains(call), "{error}");
        assert_eq!(other.mapped_bytes(), mapped);
    }
    drop((small, other));
    device.trim().unwrap();
    assert_eq!(fake::used(0), 0);
}

/// An arena on a missing GPU, or on a GPU that cannot lend memory, fails when it is made.
#[test]
fn arenas_are_refused_where_there_is_no_lendable_memory() {
    run("arena-unsupported", &[("FAKE_CUDA_NO_VMM", "1")]);
    run("arena-unsupported", &[("FAKE_CUDA_DEVICES", "0")]);
}

fn arenas_are_refused() {
    let refuse = |id| {
        let options = ArenaOptions::default();
        Arena::on(DeviceKind::CUDA, id, options).unwrap_err()
    };
    let error = refuse(0);
    assert_eq!(error.status(), Status::Unsupported, "{error}");
    if std::env::var_os("FAKE_CUDA_NO_VMM").is_some() {
        assert!(error.text().contains("virtual memory"), "{error}");
        let error = refuse(7);
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.text().contains("there is no GPU 7"), "{error}");
    } else {
        assert!(error.text().contains("sees no GPU"), "{error}");
    }
}

/// The pool of a connection relies on this: no two regions, also of the host, have one identity,
/// and lengths are the requested ones.
#[test]
fn regions_of_a_gpu_are_told_apart() {
    run("arena-regions", &[]);
}

fn regions_of_a_gpu() {
    let device = Device::get(0).unwrap();
    let region = CudaRegion::create(&device, UNIT - 1).unwrap();
    let host = dipc::device::region::Region::create(4096, "test").unwrap();
    let other = CudaRegion::create(&device, 1).unwrap();
    let mut identities = [region.identity(), host.identity(), other.identity()];
    identities.sort_unstable();
    assert!(identities.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(region.len() as u64, UNIT);
    let first = region.alloc(1000).unwrap();
    let second = region.alloc(UNIT - 1024).unwrap();
    assert_eq!((first, second, region.alloc(1)), (0, 1024, None));
    assert_eq!(region.offset_of(region.base() + 7, 3), Some(7));
    assert_eq!(region.offset_of(region.base() + UNIT - 1, 2), None);
    assert_eq!(region.offset_of(region.base() - 1, 2), None);
    assert_eq!(region.offset_of(u64::MAX, usize::MAX), None);
    assert!(!region.free(first).unwrap().emptied);
    assert!(region.free(second).unwrap().emptied);
    assert_eq!(region.free(second), None);
    // Memory that was given up is reused only for its whole length, because lengths are counted.
    drop(region);
    let half = CudaRegion::create(&device, UNIT).unwrap();
    assert_eq!(half.len() as u64, UNIT);
    drop(CudaRegion::create(&device, 2 * UNIT).unwrap());
    assert_eq!(
        CudaRegion::create(&device, UNIT).unwrap().len() as u64,
        UNIT
    );
    let nothing = CudaRegion::create(&device, 0).unwrap_err();
    assert_eq!(nothing.status(), Status::InvalidArgument);
}
