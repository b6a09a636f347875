//! The regions that a peer has announced on one connection.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::region::MappedRegion;
use crate::error::{Error, Result};
use crate::proto::Span;
use crate::transport::Resolved;
use crate::transport::lend::split_address;

/// Regions by id.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: HashMap<u16, Arc<MappedRegion>>,
}

/// A region that a list has named before.
struct Known<'a> {
    id: u16,
    region: &'a Arc<MappedRegion>,
}

impl RegionTable {
    /// Maps a region: see [`Connection::map_region`](crate::transport::Connection::map_region).
    pub fn map(&mut self, id: u16, handle: &[u8], fd: Option<OwnedFd>) -> Result<()> {
        if id == 0 {
            return Err(Error::protocol(
                "the peer announced a region with the id 0 (rule E3)",
            ));
        }
        if self.regions.contains_key(&id) {
            return Err(Error::protocol(format!(
                "the peer announced region {id} twice (rule E3: an id is free again only after \
                 REGION_GONE)"
            )));
        }
        let len = handle.try_into().map(u64::from_le_bytes).map_err(|_| {
            Error::protocol(format!(
                "the handle of region {id} has {} bytes, not the 8 of its length",
                handle.len()
            ))
        })?;
        let fd = fd.ok_or_else(|| {
            Error::protocol(format!(
                "no descriptor came with the REGION message of region {id}"
            ))
        })?;
        let region = MappedRegion::map(fd, len)
            .map_err(|error| error.context(format_args!("region {id}")))?;
        self.regions.insert(id, Arc::new(region));
        Ok(())
    }

    /// Forgets a region; arrays that point into it keep it mapped.
    pub fn unmap(&mut self, id: u16) -> Result<()> {
        self.regions.remove(&id).map(drop).ok_or_else(|| {
            Error::protocol(format!(
                "the peer retired region {id}, which it never announced"
            ))
        })
    }

    /// Finds the memory of an address list.
    pub fn resolve(&self, spans: &[Span]) -> Result<Resolved> {
        // One region is the rule: no allocation for it.
        let mut first: Option<Known<'_>> = None;
        let mut others: Vec<Known<'_>> = Vec::new();
        let mut buffers = Vec::with_capacity(spans.len());
        for span in spans {
            if span.length == 0 {
                buffers.push(BufferRef::EMPTY);
                continue;
            }
            let (id, offset) = split_address(span.address);
            let mut known = first.iter().chain(&others);
            let region = if let Some(known) = known.find(|known| known.id == id) {
                known.region
            } else {
                let region = self.regions.get(&id).ok_or_else(|| {
                    Error::protocol(format!(
                        "address {:#x} is in region {id}, which the peer has not announced",
                        span.address
                    ))
                })?;
                let known = Known { id, region };
                if first.is_none() {
                    first = Some(known);
                } else {
                    others.push(known);
                }
                region
            };
            let buffer = region.slice(offset, span.length).ok_or_else(|| {
                Error::protocol(format!(
                    "{} bytes at address {:#x} reach past region {id}, which has {} bytes",
                    span.length,
                    span.address,
                    region.len()
                ))
            })?;
            buffers.push(buffer);
        }
        let owner: Arc<dyn Any + Send + Sync> = match first {
            Some(first) if others.is_empty() => Arc::clone(first.region) as _,
            Some(first) => {
                let known = std::iter::once(&first).chain(&others);
                Arc::new(
                    known
                        .map(|known| Arc::clone(known.region))
                        .collect::<Vec<_>>(),
                )
            }
            None => Arc::new(()),
        };
        Ok(Resolved {
            buffers,
            owner,
            shared: true,
            pulled: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::region::Region;
    use crate::error::Status;
    use crate::transport::lend::address;

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
        table.unmap(7).unwrap();
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
            table.resolve(&[Span {
                address: address(1, 0),
                length: 1,
            }]),
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
        refused(table.resolve(&[span(1, 8000, 200)]), "reach past");
        refused(table.resolve(&[span(1, 8192, 1)]), "reach past");
        refused(table.resolve(&[span(1, OFFSET, u64::MAX)]), "reach past");
        refused(table.resolve(&[span(2, 0, 1)]), "region 2");
        refused(
            table.resolve(&[Span {
                address: 0,
                length: 1,
            }]),
            "region 0",
        );
        let found = table
            .resolve(&[
                span(1, 0, 8192),
                Span {
                    address: 0,
                    length: 0,
                },
            ])
            .unwrap();
        assert_eq!(found.buffers[0].len, 8192);
        assert!(found.buffers[1].data.is_null());
    }
    const OFFSET: u64 = super::super::OFFSET_BITS;

    /// REGION_GONE leaves arrays alone: what was resolved stays mapped until its owner is dropped.
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
        let found = table.resolve(&spans).unwrap();
        table.unmap(1).unwrap();
        drop(table);
        drop(regions);
        for (buffer, expected) in found.buffers.iter().zip(1u8..) {
            // SAFETY: `found.owner` is alive and nobody writes any more.
            let bytes = unsafe { buffer.as_slice() };
            assert!(bytes.iter().all(|byte| *byte == expected));
        }
    }
}
