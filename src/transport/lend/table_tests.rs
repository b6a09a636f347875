//! Tests of the table of a peer's regions.

use super::*;
use crate::device::region::Region;
use crate::error::Status;
use crate::transport::lend::address::address;

fn announce(table: &mut RegionTable, id: u16, region: &Region) -> Result<()> {
    let handle = (region.len() as u64).to_le_bytes();
    table.map(id, &handle, Some(region.fd().try_clone().unwrap()))
}

fn refused<T>(result: Result<T>, text: &str) {
    let error = result.err().expect("must be refused");
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
}

/// Rule E3: an id names one region until REGION_GONE, and is not 0.
#[test]
fn an_id_names_one_region() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let mut table = RegionTable::default();
    announce(&mut table, 7, &region).unwrap();
    refused(announce(&mut table, 7, &region), "twice");
    refused(announce(&mut table, 0, &region), "id 0");
    assert_eq!(table.unmap(7).unwrap(), Unmapped::Now);
    refused(table.unmap(7), "never announced");
    announce(&mut table, 7, &region).unwrap();
}

/// "Our transports", shm: the handle is 8 bytes, and a descriptor comes with it.
#[test]
fn a_region_comes_with_its_length_and_a_descriptor() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let mut table = RegionTable::default();
    refused(table.map(1, &8192u64.to_le_bytes(), None), "no descriptor");
    refused(
        table.map(1, &[1, 2, 3], Some(region.fd().try_clone().unwrap())),
        "3 bytes",
    );
    refused(
        table.resolve(
            0,
            0,
            vec![Span {
                address: address(1, 0),
                length: 1,
            }],
        ),
        "not announced",
    );
}

/// Rules F3 and A8: spans are inside an announced region, whatever numbers a peer sends.
#[test]
fn addresses_outside_a_region_are_refused() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let mut table = RegionTable::default();
    announce(&mut table, 1, &region).unwrap();
    let span = |id, offset, length| Span {
        address: address(id, offset),
        length,
    };
    refused(table.resolve(0, 0, vec![span(1, 8000, 200)]), "reach past");
    refused(table.resolve(0, 0, vec![span(1, 8192, 1)]), "reach past");
    refused(
        table.resolve(0, 0, vec![span(1, OFFSET, u64::MAX)]),
        "reach past",
    );
    refused(table.resolve(0, 0, vec![span(2, 0, 1)]), "region 2");
    refused(
        table.resolve(
            0,
            0,
            vec![Span {
                address: 0,
                length: 1,
            }],
        ),
        "region 0",
    );
    let found = table
        .resolve(
            0,
            0,
            vec![
                span(1, 0, 8192),
                Span {
                    address: 0,
                    length: 0,
                },
            ],
        )
        .unwrap();
    assert_eq!(found.buffers[0].len, 8192);
    assert!(found.buffers[1].data.is_null());
}
const OFFSET: u64 = crate::transport::lend::address::OFFSET_BITS;

/// REGION_GONE does not affect arrays: memory that was resolved stays mapped until its owner is
/// dropped.
#[test]
fn what_was_resolved_stays_mapped() {
    let regions: Vec<_> = (0..2)
        .map(|_| Region::create(4096, "dipc-test").unwrap())
        .collect();
    let mut table = RegionTable::default();
    for (region, id) in regions.iter().zip(1..) {
        // SAFETY: the region is this test's own and nobody else reads it yet.
        unsafe {
            region
                .base()
                .as_ptr()
                .write_bytes(u8::try_from(id).unwrap(), 4096)
        };
        announce(&mut table, id, region).unwrap();
    }
    let spans: Vec<_> = (1..3)
        .map(|id| Span {
            address: address(id, 0),
            length: 4096,
        })
        .collect();
    let found = table.resolve(0, 0, spans).unwrap();
    assert_eq!(table.unmap(1).unwrap(), Unmapped::Now);
    drop(table);
    drop(regions);
    for (buffer, expected) in found.buffers.iter().zip(1u8..) {
        // SAFETY: `found.owner` is alive and nobody writes any more.
        let bytes = unsafe { buffer.as_slice() };
        assert!(bytes.iter().all(|byte| *byte == expected));
    }
}

/// A server's bound: all connections of its peers together map at most so many regions there. A
/// region counts while an array points into it.
#[test]
fn regions_of_all_connections_are_bounded() {
    let region = Region::create(8192, "dipc-test").unwrap();
    let mappings = Arc::new(MappingBudget::new(3));
    let mut tables = [0, 1].map(|user| RegionTable::of_peer(user, &mappings));
    announce(&mut tables[0], 1, &region).unwrap();
    announce(&mut tables[0], 2, &region).unwrap();
    announce(&mut tables[1], 1, &region).unwrap();
    let error = announce(&mut tables[1], 2, &region).expect_err("must be refused");
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
    let span = Span {
        address: address(1, 0),
        length: 64,
    };
    let array = tables[0].resolve(0, 0, vec![span]).unwrap();
    let _ = tables[0].clear();
    announce(&mut tables[1], 2, &region).unwrap();
    announce(&mut tables[1], 3, &region).expect_err("an array points into the first region");
    drop(array);
    announce(&mut tables[1], 3, &region).unwrap();
}
