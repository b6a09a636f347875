//! Tests of arenas.

use super::*;
use crate::arena::memory::ArenaRegion as _;
use crate::error::Status;

fn arena(region_bytes: u64, max_bytes: u64) -> Arena {
    Arena::new(
        DeviceKind::CPU,
        ArenaOptions {
            region_bytes,
            max_bytes,
        },
    )
    .unwrap()
}

/// Deallocates a block that nobody uses.
fn free(arena: &Arena, block: NonNull<u8>) -> Result<()> {
    // SAFETY: these tests hold no reference to a block.
    unsafe { arena.dealloc(block) }
}

/// Promise of `dipc_arena`: blocks are aligned, writable, found by address, and distinct.
#[test]
fn blocks_are_aligned_and_found() {
    let arena = arena(1 << 16, u64::MAX);
    let blocks: Vec<_> = [0, 1, 64, 5000, 1 << 16, 300_000]
        .into_iter()
        .map(|len| (arena.alloc(len).unwrap(), len))
        .collect();
    for (index, (block, len)) in blocks.iter().enumerate() {
        assert_eq!(block.as_ptr() as usize % 64, 0);
        // SAFETY: the block has `len` bytes and only this test knows it.
        unsafe {
            block
                .as_ptr()
                .write_bytes(u8::try_from(index).unwrap(), *len)
        };
        let (region, offset) = find(block.as_ptr(), *len).unwrap();
        let address = region.base().as_ptr() as usize + usize::try_from(offset).unwrap();
        assert_eq!(address, block.as_ptr() as usize);
        assert!(find(region.base().as_ptr(), region.len() + 1).is_none());
    }
    for (index, (block, len)) in blocks.iter().enumerate() {
        // SAFETY: as above; the bytes were written.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), *len) };
        assert!(bytes.iter().all(|byte| usize::from(*byte) == index));
    }
    assert!(arena.used_bytes() >= 64 + 64 + 64 + 5000 + (1 << 16) + 300_000);
    for (block, _) in blocks {
        free(&arena, block).unwrap();
    }
    assert_eq!(arena.used_bytes(), 0);
    assert!(find(std::ptr::from_ref(&arena).cast(), 1).is_none());
}

/// Deallocating an unknown block is an error that changes nothing.
#[test]
fn an_unknown_block_is_an_error() {
    let (one, other) = (arena(4096, u64::MAX), arena(4096, u64::MAX));
    let block = one.alloc(128).unwrap();
    let inside = NonNull::new(block.as_ptr().wrapping_add(64)).unwrap();
    let mut outside = 0u8;
    for (arena, wrong) in [
        (&one, inside),
        (&other, block),
        (&one, NonNull::from(&mut outside)),
    ] {
        assert_eq!(
            free(arena, wrong).unwrap_err().status(),
            Status::InvalidArgument
        );
    }
    assert_eq!(one.used_bytes(), 128);
    free(&one, block).unwrap();
    assert_eq!(
        free(&one, block).unwrap_err().status(),
        Status::InvalidArgument
    );
}

/// `max_bytes` bounds the regions. If a standard region does not fit, a smaller region is made.
#[test]
fn max_bytes_bounds_the_regions() {
    let arena = arena(1 << 20, 3 << 19);
    let first = arena.alloc(1 << 20).unwrap();
    let second = arena.alloc(1 << 19).unwrap();
    let error = arena.alloc(1).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.text().contains("max_bytes"), "{error}");
    assert_eq!(arena.mapped_bytes(), 3 << 19);
    // Empty regions are removed to make room for a larger region.
    free(&arena, second).unwrap();
    free(&arena, first).unwrap();
    let whole = arena.alloc(3 << 19).unwrap();
    assert_eq!(arena.mapped_bytes(), 3 << 19);
    free(&arena, whole).unwrap();
    assert_eq!(
        arena.alloc(usize::MAX).unwrap_err().status(),
        Status::OutOfMemory
    );
}

/// One empty region stays for reuse; the others are unmapped.
#[test]
fn one_empty_region_is_kept() {
    let arena = arena(4096, u64::MAX);
    let blocks: Vec<_> = (0..4).map(|_| arena.alloc(4096).unwrap()).collect();
    assert_eq!(arena.mapped_bytes(), 4 * 4096);
    for block in &blocks {
        free(&arena, *block).unwrap();
    }
    assert_eq!(arena.mapped_bytes(), 4096);
    assert_eq!(arena.alloc(10).unwrap(), blocks[3]);
}

/// Promise of the arena: the memory outlives the handle until the last block is deallocated.
#[test]
fn memory_outlives_the_handle() {
    let arena = arena(4096, u64::MAX);
    let first = arena.alloc(100).unwrap();
    let second = arena.alloc(100).unwrap();
    drop(arena);
    // SAFETY: the block is in use and has 100 bytes.
    unsafe { first.as_ptr().write_bytes(1, 100) };
    let region = find(first.as_ptr(), 100)
        .map(|(region, _)| Arc::downgrade(&region))
        .unwrap();
    // SAFETY: nobody uses the blocks any more.
    unsafe { dealloc(first) }.unwrap();
    assert!(region.upgrade().is_some());
    // SAFETY: as above.
    unsafe { dealloc(second) }.unwrap();
    assert!(region.upgrade().is_none(), "the region stayed mapped");
    // SAFETY: `dealloc` does not access an unknown address.
    assert!(unsafe { dealloc(second) }.is_err());
}

/// Rule F4: a tainted region gives out no more blocks and goes with its last block.
#[test]
fn a_tainted_region_leaves_the_arena() {
    let arena = arena(4096, u64::MAX);
    let block = arena.alloc(64).unwrap();
    let (region, _) = find(block.as_ptr(), 64).unwrap();
    region.taint();
    let other = arena.alloc(64).unwrap();
    assert!(
        region.offset_of(other.as_ptr(), 64).is_none(),
        "a tainted region gave out a block"
    );
    let watch = Arc::downgrade(&region);
    drop(region);
    free(&arena, block).unwrap();
    assert!(watch.upgrade().is_none(), "the tainted region stayed");
    assert_eq!(arena.mapped_bytes(), 4096);
    free(&arena, other).unwrap();
}

/// Any thread may call every method.
#[test]
fn threads_share_an_arena() {
    let arena = arena(1 << 16, u64::MAX);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let arena = arena.clone();
            scope.spawn(move || {
                let mut blocks = Vec::new();
                for round in 0..200usize {
                    let len = 1 + round * 37 % 3000;
                    let block = arena.alloc(len).unwrap();
                    // SAFETY: the block has `len` bytes and only this thread knows it.
                    unsafe { block.as_ptr().write_bytes(thread, len) };
                    blocks.push((block, len));
                    if round % 3 == 0 {
                        let (block, len) = blocks.swap_remove(round % blocks.len());
                        // SAFETY: written above, by this thread.
                        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), len) };
                        assert!(bytes.iter().all(|byte| *byte == thread));
                        free(&arena, block).unwrap();
                    }
                }
                for (block, _) in blocks {
                    free(&arena, block).unwrap();
                }
            });
        }
    });
    assert_eq!(arena.used_bytes(), 0);
    assert_eq!(arena.mapped_bytes(), 1 << 16);
}

/// An arena on memory that this build cannot lend is refused with the device type.
#[test]
fn other_devices_are_unsupported() {
    let error = Arena::new(DeviceKind::CUDA_MANAGED, ArenaOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.text().contains("13"), "{error}");
    let options = ArenaOptions {
        region_bytes: 0,
        ..ArenaOptions::default()
    };
    let error = Arena::new(DeviceKind::CPU, options).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

/// After `fork` the calls of the child return an error. They neither wait for a lock that a thread
/// of the parent holds nor change anything.
#[test]
fn a_forked_child_is_refused() {
    let arena = arena(4096, u64::MAX);
    let block = arena.alloc(64).unwrap();
    let ArenaKind::Host(handle) = &arena.handle else {
        panic!("an arena on the host");
    };
    let shared = Arc::clone(&handle.shared);
    let _held = shared.state.lock();
    // SAFETY: the calls of the child take no lock (the lock held here would never be released
    // there), and the child leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |status: Option<Status>| status == Some(Status::Forked);
        let alloc = forked(arena.alloc(1).err().map(|error| error.status()));
        let dealloc = forked(free(&arena, block).err().map(|error| error.status()));
        let used = arena.used_bytes() == 0 && arena.mapped_bytes() == 0;
        drop(arena);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if alloc && dealloc && used { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `child` is this process's own child and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// `arena::dealloc` of a parent's block fails too, although the call names no arena. The child can
/// use its own arenas, whatever locks were held at the fork.
#[test]
fn a_forked_child_waits_for_no_registry() {
    let theirs = arena(4096, u64::MAX);
    let block = theirs.alloc(64).unwrap();
    let _held = (Region::registry().hold(), CudaRegion::registry().hold());
    // SAFETY: the child takes no lock that is held here, and leaves by `_exit` or by its alarm.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends a child that waits for ever.
        unsafe { libc::alarm(10) };
        // SAFETY: nobody in the child uses the block.
        let refused = unsafe { dealloc(block) }.err().map(|error| error.status());
        let ours = arena(4096, u64::MAX);
        let block = ours.alloc(64).unwrap();
        // SAFETY: nobody uses the block.
        let freed = unsafe { dealloc(block) }.is_ok();
        let right = refused == Some(Status::Forked) && freed;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `child` is this process's own child and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// `ArenaOptions::max_bytes` counts a removed region until no peer has it.
#[test]
fn what_peers_keep_counts() {
    let options = ArenaOptions {
        region_bytes: 1 << 20,
        max_bytes: 1 << 20,
    };
    let arena = Arena::new(DeviceKind::CPU, options).unwrap();
    let block = arena.alloc(1 << 20).unwrap();
    let (region, _) = find(block.as_ptr(), 1).unwrap();
    let peers = region.give(None).try_clone().unwrap();
    region.taint();
    drop(region);
    // SAFETY: nobody uses the block any more.
    unsafe { arena.dealloc(block) }.unwrap();
    assert_eq!(arena.mapped_bytes(), 1 << 20);
    let error = arena.alloc(1).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
    drop(peers);
    let block = arena.alloc(1 << 20).unwrap();
    // SAFETY: as above.
    unsafe { arena.dealloc(block) }.unwrap();
}
