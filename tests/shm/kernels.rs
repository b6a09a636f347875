//! Kernels that lack what newer ones have.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

use crate::child::{assert_in_child, in_child};
use crate::name;

/// cachestat(2), which Linux has from 6.5 on.
const CACHESTAT: i64 = 451;

/// Promise of docs/wire.md: before Linux 6.5 a client takes the memory that a server lends.
#[test]
fn memory_is_lent_where_cachestat_is_missing() {
    in_child("kernels::child_lacks_cachestat");
}

#[test]
#[ignore = "run by memory_is_lent_where_cachestat_is_missing"]
fn child_lacks_cachestat() {
    assert_in_child();
    let filter = SeccompFilter::new(
        BTreeMap::from([(CACHESTAT, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(u32::try_from(libc::ENOSYS).unwrap()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();

    let values = Int64Array::from_iter_values(0..1 << 20);
    let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as ArrayRef)]).unwrap();
    let server = dipc::Server::new().unwrap();
    server
        .publish("numbers", &batch.schema(), [batch.clone()])
        .unwrap();
    let uri = server.listen(&format!("shm:@{}", name())).unwrap();
    let client = dipc::Client::new().unwrap();
    let mut reader = client.get(&uri, "numbers").unwrap();
    assert_eq!(reader.next().unwrap().unwrap(), batch);
    let stats = reader.stats();
    assert!(stats.bytes_lent >= 8 << 20, "{stats:?}");
}
