//! Tests of regions: promises of the owner, and requirements of the receiver.

use std::io::{Read, Seek, SeekFrom, Write};

use rustix::fs::MemfdFlags;

use super::*;

fn memfd(len: u64, fill: bool, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("dipc-test", flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    if fill {
        allocate(&fd, len).unwrap();
    }
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn refused(fd: OwnedFd, len: u64, text: &str) {
    let error = MappedRegion::map(fd, len).unwrap_err();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
}

/// All pages of a region are allocated, so that no access is a SIGBUS, and the receiver reads all
/// bytes.
#[test]
fn a_region_has_all_of_its_pages() {
    let len = (6 << 20) + 4096;
    let region = Region::create(len as u64, "dipc-test").unwrap();
    assert_eq!(region.len(), len);
    let stat = rustix::fs::fstat(region.fd()).unwrap();
    assert!(u64::try_from(stat.st_blocks).unwrap() * 512 >= len as u64);
    for (at, value) in (0..len).step_by(4096).zip((0..=250u8).cycle()) {
        let byte = region.base().as_ptr().wrapping_add(at);
        // SAFETY: the byte lies in the region, which nobody else uses.
        unsafe { byte.write(value) };
    }
    let fd = region.fd().try_clone().unwrap();
    let mapped = MappedRegion::map(fd, len as u64).unwrap();
    let seen = mapped.slice(0, len as u64).unwrap();
    // SAFETY: `mapped` is alive, and nobody writes any more.
    let seen = unsafe { seen.as_slice() };
    let mut pages = seen.iter().step_by(4096).zip((0..=250u8).cycle());
    assert!(pages.all(|(found, written)| *found == written));
}

/// The connections of a process share the mapping of a region, which goes with the last of them.
#[test]
fn a_region_is_mapped_once() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let map = |region: &Region| {
        let fd = region.fd().try_clone().unwrap();
        MappedRegion::map(fd, region.len() as u64).unwrap()
    };
    let mapped = map(&region);
    assert_eq!(map(&region).base(), mapped.base());
    let other = Region::create(8192, "dipc-test").unwrap();
    assert_ne!(map(&other).base(), mapped.base());
    let weak = Arc::downgrade(&mapped.mapping);
    drop(mapped);
    assert!(weak.upgrade().is_none());
}

/// Transport shm: the receiver reads the owner's bytes through its own mapping. Nobody can write,
/// resize or punch holes through the owner's descriptor.
#[test]
fn a_region_is_read_by_the_other_side_and_cannot_be_changed_through_its_descriptor() {
    let region = Region::create(100_000, "dipc-test").unwrap();
    assert_eq!(region.len() % rustix::param::page_size(), 0);
    let offset = region.alloc(5).unwrap();
    let target = region
        .base()
        .as_ptr()
        .wrapping_add(usize::try_from(offset).unwrap());
    // SAFETY: `target` is the start of a block of 64 bytes that only this test uses.
    unsafe { std::ptr::copy_nonoverlapping(b"hello".as_ptr(), target, 5) };

    let fd = region.fd().try_clone().unwrap();
    let mapped = MappedRegion::map(fd, region.len() as u64).unwrap();
    let seen = mapped.slice(offset, 5).unwrap();
    // SAFETY: `mapped` is alive, and nobody writes any more.
    assert_eq!(unsafe { seen.as_slice() }, b"hello");
    assert!(mapped.slice(region.len() as u64 - 4, 5).is_none());
    assert!(mapped.slice(u64::MAX, 1).is_none());

    let mut file = std::fs::File::from(region.fd().try_clone().unwrap());
    file.seek(SeekFrom::Start(offset)).unwrap();
    let mut bytes = [0; 5];
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    assert!(file.write(b"x").is_err());
    assert!(file.set_len(0).is_err());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(&file, hole, 0, 4096).is_err());
    let sealed = rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE);
    assert!(sealed.is_err(), "nobody adds or removes seals");
}

/// Rule A8: a region without all seals is refused, and the text names the missing seals.
#[test]
fn a_region_without_seals_is_refused() {
    refused(
        memfd(8192, true, SealFlags::empty()),
        8192,
        "SHRINK, GROW, FUTURE_WRITE",
    );
    refused(
        memfd(8192, true, SealFlags::SHRINK | SealFlags::GROW),
        8192,
        "FUTURE_WRITE",
    );
    refused(
        memfd(8192, true, SealFlags::GROW | SealFlags::FUTURE_WRITE),
        8192,
        "SHRINK",
    );
    let written = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    MappedRegion::map(memfd(8192, true, written), 8192).unwrap();
}

/// A sparse region could exhaust the reader's memory, so it is refused.
#[test]
fn a_sparse_region_is_refused() {
    refused(memfd(1 << 20, false, SEALS), 1 << 20, "sparse");
}

/// A size other than the announced size, or 0, is refused.
#[test]
fn a_region_of_another_size_is_refused() {
    refused(
        memfd(8192, true, SEALS),
        4096,
        "4096 bytes and sent one of 8192",
    );
    refused(memfd(8192, true, SEALS), 1 << 40, "sent one of 8192");
    refused(memfd(0, false, SEALS), 0, "sent one of 0");
}

/// A file other than a memfd is refused.
#[test]
fn what_is_not_a_memfd_is_refused() {
    let (read, _write) = std::io::pipe().unwrap();
    refused(read.into(), 4096, "not a file in memory");
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    refused(file.into(), 4096, "seal");
}

/// Rule F4: a tainted region gives out no more blocks, not even freed ones.
#[test]
fn a_tainted_region_gives_out_nothing_more() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let first = region.alloc(64).unwrap();
    let second = region.alloc(64).unwrap();
    region.taint();
    assert_eq!(region.alloc(64), None);
    assert_eq!(
        region.free(first),
        Some(Freed {
            len: 64,
            emptied: false
        })
    );
    assert_eq!(region.alloc(64), None);
    assert_eq!(
        region.free(second),
        Some(Freed {
            len: 64,
            emptied: true
        })
    );
    assert_eq!(region.free(second), None);
    assert!(region.is_tainted());
}

/// A region too large for the machine is an error before any page is touched.
#[test]
fn a_region_larger_than_the_machine_is_an_error() {
    let error = Region::create(1 << 46, "dipc-test").unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
    for len in [0, MAX_REGION_BYTES + 1, u64::MAX] {
        let error = Region::create(len, "dipc-test").unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    }
}

/// Rule A8: blocks past the end of the file do not hide a hole. An allocated page that was never
/// touched is no hole.
#[test]
fn a_hole_is_found_wherever_blocks_are() {
    const LEN: u64 = 1 << 20;
    let past_the_end = |fd: &OwnedFd| {
        rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, LEN, 2 * LEN).unwrap();
    };
    let all = |fd: &OwnedFd| allocate(fd, LEN).unwrap();
    let punch = |fd: &OwnedFd| {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(fd, hole, 8192, 4096).unwrap();
    };
    let make = |steps: &[&dyn Fn(&OwnedFd)]| {
        let fd = memfd(LEN, false, SealFlags::empty());
        steps.iter().for_each(|step| step(&fd));
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        fd
    };
    refused(make(&[&past_the_end]), LEN, "nothing at byte 0");
    refused(make(&[&all, &punch]), LEN, "sparse");
    refused(make(&[&all, &past_the_end, &punch]), LEN, "sparse");
    for whole in [make(&[&all]), make(&[&all, &past_the_end])] {
        let changed = whole.try_clone().unwrap();
        let mapped = MappedRegion::map(whole, LEN).unwrap();
        // After mapping, nobody can make a hole.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&changed, hole, 0, 4096).is_err());
        assert!(rustix::fs::fallocate(&changed, FallocateFlags::KEEP_SIZE, LEN, LEN).is_err());
        rustix::fs::ftruncate(&changed, LEN).unwrap();
        let seen = mapped.slice(0, LEN).unwrap();
        // SAFETY: `mapped` is alive and nobody writes.
        assert!(unsafe { seen.as_slice() }.iter().all(|byte| *byte == 0));
    }
}

/// A file of hugetlbfs does not report its holes, so it is refused.
#[test]
fn a_file_of_huge_pages_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(fd) = rustix::fs::memfd_create("dipc-test", flags) else {
        println!("skipped: no such files here");
        return;
    };
    rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
    refused(fd, 2 << 20, "another kind");
}
