//! Tests of the lending pool.

use std::time::Duration;

use super::*;
use crate::arena;
use crate::arena::{Arena, ArenaOptions};
use crate::device::DeviceKind;
use crate::transport::LendingOptions;
use crate::transport::MemoryBudget;
use crate::transport::PeerRegions as _;
use crate::transport::lend::{ByDescriptor, MOST_REGIONS, RegionTable, split_address};

const KIB: usize = 1 << 10;

fn options() -> LendingOptions {
    LendingOptions {
        region_bytes: 64 << 10,
        region_idle: Duration::ZERO,
        lent_limit: 1 << 20,
        ..LendingOptions::default()
    }
}

fn pool() -> Arc<RegionPool> {
    pool_with(&options())
}

fn pool_with(options: &LendingOptions) -> Arc<RegionPool> {
    RegionPool::new(options, Box::new(ByDescriptor::default()), None)
}

fn lend(pool: &Arc<RegionPool>, buffers: &[BufferRef]) -> Lease {
    match Arc::clone(pool)
        .place(buffers, None, BodyPolicy::Auto)
        .unwrap()
    {
        Placement::Lent(lease) => lease,
        Placement::Packed => panic!("not lent"),
    }
}

fn packed(pool: &Arc<RegionPool>, buffers: &[BufferRef]) -> bool {
    matches!(
        Arc::clone(pool)
            .place(buffers, None, BodyPolicy::Auto)
            .unwrap(),
        Placement::Packed
    )
}

fn learn(table: &mut RegionTable, pool: &Arc<RegionPool>) {
    for notice in &pool.take_news() {
        let fd = notice.fd.as_ref().unwrap().try_clone().unwrap();
        table.map(notice.id, &notice.handle, Some(fd)).unwrap();
    }
}

fn read(table: &mut RegionTable, spans: &[Span]) -> Vec<Vec<u8>> {
    let found = table.resolve(0, 0, spans.to_vec()).unwrap();
    // SAFETY: `found.owner` is alive, and these tests write nothing that is lent.
    found
        .buffers
        .iter()
        .map(|buffer| unsafe { buffer.as_slice() }.to_vec())
        .collect()
}

/// Design, "Nothing is copied that need not be": buffers outside arenas are copied once, into one
/// block, and the peer is told of the region once.
#[test]
fn copies_go_into_one_region() {
    let (pool, mut table) = (pool(), RegionTable::default());
    let bytes: Vec<u8> = (0..6000u16).map(|n| n.to_le_bytes()[0]).collect();
    let buffers = [
        BufferRef::of(&bytes),
        BufferRef::EMPTY,
        BufferRef::of(&bytes[1..100]),
    ];
    let lease = lend(&pool, &buffers);
    assert_eq!((lease.copied, lease.borrowed), (6099, 0));
    assert_eq!(
        lease.spans[1],
        Span {
            address: 0,
            length: 0
        }
    ); // Rule A1
    assert!(lease.spans.iter().all(|span| span.address % 64 == 0));
    learn(&mut table, &pool);
    assert_eq!(
        read(&mut table, &lease.spans),
        [bytes.clone(), vec![], bytes[1..100].to_vec()]
    );
    drop(lend(&pool, &buffers));
    assert!(pool.take_news().is_empty());
}

/// Blocks are used again only after the lease is dropped.
#[test]
fn a_block_is_used_again_only_after_its_return() {
    let pool = pool();
    let bytes = vec![1; 30 * KIB];
    let buffers = [BufferRef::of(&bytes)];
    let first = lend(&pool, &buffers);
    let second = lend(&pool, &buffers);
    let third = lend(&pool, &buffers);
    let (one, two, three) = (first.spans[0], second.spans[0], third.spans[0]);
    assert_eq!(
        one.address >> 48,
        two.address >> 48,
        "two fit in one region"
    );
    assert_ne!(one.address >> 48, three.address >> 48, "the third does not");
    assert!(one.address.abs_diff(two.address) >= one.length);
    drop(first);
    assert_eq!(lend(&pool, &buffers).spans[0].address, one.address);
}

/// Beyond the limit of lent memory, and beyond the budget of the server, bodies travel as bytes.
#[test]
fn past_a_limit_bodies_travel_as_bytes() {
    let bytes = vec![1; 600 * KIB];
    let buffers = [BufferRef::of(&bytes)];
    let pool = pool();
    let lease = lend(&pool, &buffers);
    assert!(packed(&pool, &buffers), "lent_limit is 1 MiB");
    drop(lease);
    drop(lend(&pool, &buffers));

    let budget = Arc::new(MemoryBudget::new(700 << 10));
    let limited = LendingOptions {
        budget: Arc::clone(&budget),
        lent_limit: u64::MAX,
        region_bytes: 64 << 20,
        ..options()
    };
    // The budget has no room for a whole region, but for one of the body's own size.
    let (one, two) = (pool_with(&limited), pool_with(&limited));
    let lease = lend(&one, &buffers);
    assert_eq!(budget.used(), 600 << 10);
    assert!(packed(&two, &buffers));
    let peers = one.take_news();
    drop(lease);
    assert!(packed(&two, &buffers), "the region stays in the first pool");
    let (gone, _) = one.retire_idle();
    // Rule E3: it says so, and may have it all the same.
    gone.iter().for_each(|id| one.region_forgotten(*id));
    assert!(packed(&two, &buffers), "the peer still has it");
    drop(peers);
    drop(lend(&two, &buffers));
    let peers = two.take_news();
    two.abandon();
    assert_eq!(budget.used(), 600 << 10, "and after the connection, too");
    drop(peers);
    assert_eq!(budget.used(), 0);
}

/// `MemoryBudget::share_of`: another user gets at most half of it, however many connections it has.
#[test]
fn a_user_has_half_of_the_budget() {
    let budget = Arc::new(MemoryBudget::new(2 << 20));
    let of = |uid| {
        pool_with(&LendingOptions {
            budget: budget.share_of(uid),
            lent_limit: u64::MAX,
            ..options()
        })
    };
    let bytes = vec![1; 600 * KIB];
    let buffers = [BufferRef::of(&bytes)];
    let pools = [of(1), of(1), of(2), of(2)];
    let of_peer = |at: usize| {
        drop(lend(&pools[at], &buffers));
        pools[at].take_news()
    };
    let peers = [0, 2].map(of_peer);
    assert!(packed(&pools[1], &buffers) && packed(&pools[3], &buffers));
    assert_eq!(budget.used(), 1200 << 10);
    pools.iter().for_each(|pool| pool.abandon());
    drop(pools);
    assert!(
        packed(&of(1), &buffers),
        "its processes still have the memory"
    );
    drop(peers);
    drop(lend(&of(1), &buffers));
    assert_eq!(budget.used(), 0);
}

/// Small bodies travel as bytes, wherever they lie.
#[test]
fn small_bodies_travel_as_bytes() {
    let pool = pool();
    let bytes = vec![1; 4097];
    assert!(packed(&pool, &[]));
    assert!(packed(&pool, &[BufferRef::EMPTY]));
    assert!(packed(&pool, &[BufferRef::of(&bytes[..4096])]));
    drop(lend(&pool, &[BufferRef::of(&bytes)]));
}

/// Rule E3: an idle region is retired, and its id used again only once the peer has forgotten it.
#[test]
fn ids_wait_for_the_peer() {
    let pool = pool_with(&LendingOptions {
        region_idle: Duration::from_millis(20),
        ..options()
    });
    let bytes = vec![1; 30 * KIB];
    let buffers = [BufferRef::of(&bytes)];
    let lease = lend(&pool, &buffers);
    assert_eq!(pool.take_news().len(), 1);
    assert_eq!(pool.retire_idle(), (vec![], None));
    drop(lease);
    let (gone, next) = pool.retire_idle();
    assert!(gone.is_empty() && next.is_some_and(|next| next <= Duration::from_millis(20)));
    std::thread::sleep(Duration::from_millis(25));
    assert_eq!(pool.retire_idle(), (vec![1], None));
    drop(lend(&pool, &buffers));
    assert_eq!(pool.take_news()[0].id, 2);
    pool.region_forgotten(1);
    pool.region_forgotten(1);
    pool.region_forgotten(9);
    let held = lend(&pool, &buffers);
    let other = vec![1; 60 * KIB];
    drop(lend(&pool, &[BufferRef::of(&other)]));
    assert_eq!(pool.take_news()[0].id, 1);
    drop(held);
}

/// If there are no ids left, bodies travel as bytes, and nothing stays taken.
#[test]
fn out_of_ids_bodies_travel_as_bytes() {
    let pool = pool();
    pool.regions.lock().ids.last = MOST_REGIONS - 1;
    let bytes = vec![1; 60 * KIB];
    let buffers = [BufferRef::of(&bytes)];
    let lease = lend(&pool, &buffers);
    assert_eq!(split_address(lease.spans[0].address), (MOST_REGIONS, 0));
    assert!(packed(&pool, &buffers));
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let block = arena.alloc(8 * KIB).unwrap();
    let lent = BufferRef {
        data: block.as_ptr(),
        len: 8 * KIB,
    };
    assert!(packed(&pool, &[lent]));
    // Half a lease is none: the copy's block comes back when the arena's region gets no id.
    drop(lease);
    assert!(packed(&pool, &[buffers[0], lent]));
    assert_eq!(pool.regions.lock().lent, 0);
    // SAFETY: nobody uses the block any more.
    unsafe { arena.dealloc(block) }.unwrap();
}

/// Design, "Arena": a buffer in an arena is lent where it lies, and its region is retired after the
/// arena has given it up.
#[test]
fn arena_memory_is_lent_without_a_copy() {
    let (pool, mut table) = (pool(), RegionTable::default());
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let block = arena.alloc(8 * KIB).unwrap();
    // SAFETY: the block has 8 KiB and is this test's alone.
    unsafe { block.as_ptr().write_bytes(9, 8 * KIB) };
    let whole = BufferRef {
        data: block.as_ptr(),
        len: 8 * KIB,
    };
    let part = BufferRef {
        data: block.as_ptr().wrapping_add(10),
        len: 100,
    };
    let other = vec![3; 200];
    let lease = lend(&pool, &[whole, part, BufferRef::of(&other)]);
    assert_eq!((lease.copied, lease.borrowed), (200, 8292));
    assert_eq!(lease.spans[1].address, lease.spans[0].address + 10);
    learn(&mut table, &pool);
    assert_eq!(
        read(&mut table, &lease.spans),
        [vec![9; 8 * KIB], vec![9; 100], other.clone()]
    );
    // The limit on copies does not count it.
    assert_eq!(pool.regions.lock().lent, 256);
    let id = split_address(lease.spans[0].address).0;
    drop(lease);
    let (gone, next) = pool.retire_idle();
    assert!(!gone.contains(&id) && next.is_some());
    // SAFETY: nobody uses the block any more.
    unsafe { arena.dealloc(block) }.unwrap();
    drop(arena);
    assert_eq!(pool.retire_idle(), (vec![id], None));
}

/// Rule F4: after a cut, memory that the peer may have mapped is never written again: the pool's
/// regions are given up, and arena regions with leases out give out no more blocks.
#[test]
fn abandoned_memory_is_never_used_again() {
    let (pool, mut table) = (pool(), RegionTable::default());
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let block = arena.alloc(8 * KIB).unwrap();
    // SAFETY: the block has 8 KiB and is this test's alone.
    unsafe { block.as_ptr().write_bytes(9, 8 * KIB) };
    let bytes = vec![1; 30 * KIB];
    let lent = BufferRef {
        data: block.as_ptr(),
        len: 8 * KIB,
    };
    let lease = lend(&pool, &[lent, BufferRef::of(&bytes)]);
    learn(&mut table, &pool);
    let region = arena::find(block.as_ptr(), 1)
        .map(|(region, _)| region)
        .unwrap();
    pool.abandon();
    assert!(region.is_tainted());
    assert!(packed(&pool, &[lent, BufferRef::of(&bytes)]));
    let spans = lease.spans.clone();
    drop(lease);
    drop(pool);
    // SAFETY: nobody on this side uses the block any more.
    unsafe { arena.dealloc(block) }.unwrap();
    drop(region);
    let again = arena.alloc(8 * KIB).unwrap();
    // SAFETY: as above.
    unsafe { again.as_ptr().write_bytes(7, 8 * KIB) };
    assert_eq!(read(&mut table, &spans), [vec![9; 8 * KIB], bytes]);
    // SAFETY: nobody uses the block any more.
    unsafe { arena.dealloc(again) }.unwrap();
}

/// Rule F4: a cut with nothing lent leaves the arena as it is.
#[test]
fn a_clean_end_leaves_the_arena_alone() {
    let pool = pool();
    let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
    let block = arena.alloc(8 * KIB).unwrap();
    let lease = lend(
        &pool,
        &[BufferRef {
            data: block.as_ptr(),
            len: 8 * KIB,
        }],
    );
    drop(lease);
    pool.abandon();
    let region = arena::find(block.as_ptr(), 1)
        .map(|(region, _)| region)
        .unwrap();
    assert!(!region.is_tainted());
    // SAFETY: nobody uses the block any more.
    unsafe { arena.dealloc(block) }.unwrap();
}

/// Leases come back on any thread, while others are taken.
#[test]
fn leases_come_back_on_any_thread() {
    let pool = pool();
    let bytes = vec![1; 10 * KIB];
    let (sender, receiver) = std::sync::mpsc::channel::<Lease>();
    std::thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..500 {
            if let Placement::Lent(lease) = Arc::clone(&pool)
                .place(&[BufferRef::of(&bytes)], None, BodyPolicy::Auto)
                .unwrap()
            {
                sender.send(lease).unwrap();
            }
        }
        drop(sender);
    });
    assert!(pool.regions.lock().is_idle());
}

/// Regions for copies take no more memory than a tenth beyond what is lent at once, or one small
/// region, and `LendingOptions::region_bytes` is the most that one of them has.
#[test]
fn regions_grow_with_what_is_lent() {
    for (body, largest) in [
        (8 << 10, 64 << 20),
        (900 << 10, 64 << 20),
        (4 << 20, 64 << 20),
        (1 << 20, 3 << 20),
    ] {
        let mut pooled = 0;
        let mut regions = Vec::new();
        let mut used = 0;
        while used < 256 << 20 {
            if used + body > pooled {
                let made = region_bytes(pooled, body, largest);
                assert_eq!(made % body, 0, "whole bodies");
                assert!(made <= largest);
                regions.push(made);
                pooled += made;
            }
            used += body;
            let slack = (used / 10).max(LEAST_REGION_BYTES) + body;
            assert!(pooled <= used + slack, "{pooled} for {used}");
        }
        assert!(regions[0] >= body && regions[0] <= FIRST_REGION_BYTES.max(body) + body);
        let most = (256 << 20) / body.max(3 << 20);
        assert!(regions.len() as u64 <= most + 8, "{}", regions.len());
    }
}

/// A pool makes a region only when those that it has are full.
#[test]
fn regions_are_made_as_they_are_needed() {
    let budget = Arc::new(MemoryBudget::new(u64::MAX));
    let pool = pool_with(&LendingOptions {
        budget: Arc::clone(&budget),
        region_bytes: 4 << 20,
        lent_limit: 1 << 30,
        ..options()
    });
    let bytes = vec![1; 900 * KIB];
    let mut leases = Vec::new();
    let mut used = Vec::new();
    for _ in 0..8 {
        leases.push(lend(&pool, &[BufferRef::of(&bytes)]));
        used.push(budget.used() / (900 << 10));
    }
    assert_eq!(used, [2, 2, 5, 5, 5, 8, 8, 8]);
}
