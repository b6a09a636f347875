//! GPU memory with special rules: handles that a process opens once, and memory of other contexts.

use dipc::server::{ServerHandle, ServerOptions};

use crate::lending::{nothing_is_left, served};
use crate::lent_reader::{client, plain, table};
use crate::producer::{Lies, Producer, Served};
use crate::serving::{address, eventually};
use crate::{Case, run};

pub const CASES: &[Case] = &[
    ("lent-twice", one_client_has_it_twice),
    ("lent-context", contexts_of_their_own),
];

#[test]
fn memory_that_a_client_gets_on_two_connections_is_opened_there_once() {
    run("lent-twice", &[]);
}

/// The driver does not count opens of a legacy handle: memory that one connection closes must stay
/// open for another.
fn one_client_has_it_twice() {
    let producer = Producer::new(Lies::Legacy);
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&address("shm")).unwrap();
    let schema = dipc::arrow::schema_to_c(&table("p")[0].schema()).unwrap();
    let arrays = table("p").into_iter().map(|batch| producer.array(&batch));
    server
        .publish(b"p", schema, arrays.collect())
        .map_err(|(error, _)| error)
        .unwrap();
    let mut other = client(&uri, "twice");
    other.says("done");
    other.succeeds();
    eventually("returned", || server.stats().lent_outstanding == 0);
    assert_eq!(producer.released(), 0);
    server.withdraw(b"p").unwrap();
    eventually("released", || producer.released() == table("p").len());
    nothing_is_left(server, "twice");
}

#[test]
fn memory_of_another_context_is_copied_or_refused() {
    run("lent-context", &[]);
}

/// Copies reach memory of every context, kernels do not: such a kernel would end all work of the
/// process on the device.
fn contexts_of_their_own() {
    let (server, uri, producer) = served(Lies::OtherContext, ServerOptions::default());
    let plain_table = Served {
        producer: producer.clone(),
        batches: plain(),
    };
    server
        .serve(b"plain", Box::new(plain_table))
        .map_err(|(error, _)| error)
        .unwrap();
    let mut other = client(&uri, "faults");
    other.says("ready");
    // The lengths of its strings lie on the device.
    other.tell(&uri);
    let said = other.says("outcome ");
    assert!(said.contains("another context than the primary"), "{said}");
    let mut other = client(&uri, "plain");
    other.says("done");
    other.succeeds();
    eventually("released", || producer.released() == 1 + plain().len());
    let stats = server.stats();
    assert_eq!((stats.bytes_lent, stats.bytes_staged), (0, 0));
    assert!(stats.bytes_copied_on_device > 0);
    nothing_is_left(server, "another context");
}
