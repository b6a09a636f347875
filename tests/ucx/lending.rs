//! Streams whose bodies are lent: the client reads them from the server's memory.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::stream::ArrayReader;
use dipc::client::GetOptions;
use dipc::device::DeviceKind;
use dipc::error::Status;
use dipc::proto::{Role, Uri};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{BodyPolicy, LendingOptions, LinkOptions};

use crate::common::{
    FnProvider, batch, counting, export, export_schema, import, in_arena, read_all, schema,
    stream_of,
};
use crate::{
    Other, client, eventually, link_options, options, role, serve, takes_one, until_told, works,
};

pub fn server(options: ServerOptions) -> (ServerHandle, String) {
    let server = ServerHandle::new(options).unwrap();
    let uri = server.listen("ucx://127.0.0.1:0").unwrap();
    (server, uri)
}

pub fn lending(body: BodyPolicy) -> ServerOptions {
    ServerOptions { body, ..options() }
}

/// Publishes `count` batches of `rows` rows, in `arena`, as `t`; returns what they hold.
fn publish(server: &ServerHandle, arena: &Arena, count: i64, rows: usize) -> Vec<RecordBatch> {
    let batches: Vec<_> = (0..count)
        .map(|index| batch(index * rows as i64, rows))
        .collect();
    let exported = batches.iter().map(|batch| export(&in_arena(arena, batch)));
    let published = server.publish(b"t", export_schema(&schema()), exported.collect());
    published.map_err(|(error, _)| error).unwrap();
    batches
}

/// An arena whose regions are small, so that a table lies in several.
pub fn arena() -> Arena {
    let options = ArenaOptions {
        region_bytes: 1 << 20,
        ..ArenaOptions::default()
    };
    Arena::new(DeviceKind::CPU, options).unwrap()
}

/// Design, "Nothing is copied that need not be": a table in an arena is lent from where it lies,
/// out of several regions; the client reads it into memory of its own, so that the server has
/// everything back while the arrays are still held.
#[test]
fn a_table_in_an_arena_is_read_from_where_it_lies() {
    if !works() {
        return;
    }
    let (server, uri) = server(lending(BodyPolicy::Lent));
    let arena = arena();
    let expected = publish(&server, &arena, 20, 20_000);
    assert!(arena.mapped_bytes() > 3 << 20);
    let client = client();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    let received = read_all(&mut stream).unwrap();
    assert_eq!(received, expected);
    let (here, there) = (stream.stats(), server.stats());
    assert!(there.bytes_lent > 4 << 20, "{there:?}");
    assert_eq!((there.bytes_copied, there.bytes_sent), (0, 0));
    assert_eq!(here.bytes_received, there.bytes_lent);
    assert_eq!((here.bytes_lent, here.bytes_copied), (0, 0));
    eventually("everything is given back", || {
        server.stats().lent_outstanding == 0
    });
    server.withdraw(b"t").unwrap();
    eventually("the table is released", || arena.used_bytes() == 0);
    assert_eq!(received, expected);
}

/// "Our transports": what does not lie in an arena is sent, which copies it no more than lending
/// would.
#[test]
fn other_memory_is_sent() {
    if !works() {
        return;
    }
    let (server, uri) = server(lending(BodyPolicy::Auto));
    serve(&server, "t", counting(5, 20_000));
    let mut stream = client()
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut stream).unwrap().len(), 5);
    let stats = server.stats();
    assert_eq!(stats.bytes_lent, 0);
    // At most once: into one piece, where UCX has only tcp.
    assert!(stats.bytes_sent > 0 && stats.bytes_copied <= stats.bytes_sent);
}

/// A server that is told to lend always lends what lies anywhere, small bodies and those of several
/// streams at once included; each client reads its own.
#[test]
fn always_is_always() {
    if !works() {
        return;
    }
    for rows in [1, 100, 50_000] {
        let (server, uri) = server(lending(BodyPolicy::Lent));
        serve(&server, "t", counting(20, rows));
        let client = client();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut stream = client
                        .get(&[&uri], b"t", &GetOptions::default(), None)
                        .unwrap();
                    let expected: Vec<_> = (0..20)
                        .map(|index| batch(index * rows as i64, rows))
                        .collect();
                    assert_eq!(read_all(&mut stream).unwrap(), expected);
                });
            }
        });
        let stats = server.stats();
        assert_eq!(stats.bytes_sent, 0);
        assert!(stats.bytes_copied > 0);
        eventually("everything is given back", || {
            server.stats().lent_outstanding == 0
        });
    }
}

/// Bodies of both streams' roles are lent on the connection that carries bodies.
#[test]
fn a_data_connection_lends() {
    if !works() {
        return;
    }
    let (server, _) = server(lending(BodyPolicy::Lent));
    let arena = arena();
    let expected = publish(&server, &arena, 10, 20_000);
    let uris = [Role::Metadata, Role::Data].map(|role| server.location(role).unwrap());
    let uris = uris.each_ref().map(String::as_str);
    let mut stream = client()
        .get(&uris, b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut stream).unwrap(), expected);
    assert!(server.stats().bytes_lent > 0);
    assert_eq!(server.stats().bytes_sent, 0);
}

/// Rule E3: a region that is idle is retired, the client forgets it, and its number serves again.
#[test]
fn idle_regions_come_and_go() {
    if !works() {
        return;
    }
    let link = LinkOptions {
        lending: LendingOptions {
            region_idle: Duration::ZERO,
            region_bytes: 1 << 20,
            ..LendingOptions::default()
        },
        ..link_options()
    };
    let (server, uri) = server(ServerOptions {
        link,
        ..lending(BodyPolicy::Lent)
    });
    serve(&server, "t", counting(5, 20_000));
    let listening = server.stats().region_bytes;
    let client = client();
    for _ in 0..4 {
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let expected: Vec<_> = (0..5).map(|index| batch(index * 20_000, 20_000)).collect();
        assert_eq!(read_all(&mut stream).unwrap(), expected);
        drop(stream);
        eventually("the regions are forgotten", || {
            server.stats().region_bytes == listening
        });
    }
    assert_eq!(client.stats().connections_made, 1);
}

/// Rule F4: what a killed client had not taken comes back to the producer, whose process lives.
#[test]
fn a_killed_client_gives_everything_back() {
    if let Some(role) = role() {
        return takes_one(&role, &client());
    }
    if !works() {
        return;
    }
    let arena = arena();
    let (server, uri) = server(lending(BodyPolicy::Auto));
    let expected = publish(&server, &arena, 100, 20_000);
    for _ in 0..3 {
        let test = "lending::a_killed_client_gives_everything_back";
        let mut other = Other::start(test, "client", &uri);
        other.line("got=");
        assert_eq!(server.stats().connections, 1);
        other.kill();
        eventually("it is back", || {
            let stats = server.stats();
            stats.lent_outstanding == 0 && stats.connections == 0
        });
    }
    // The table is whole for the next one.
    let mut stream = client()
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut stream).unwrap(), expected);
    server.withdraw(b"t").unwrap();
    drop(stream);
    eventually("the table is released", || arena.used_bytes() == 0);
}

/// A server that is killed while its memory is being read ends the stream with a status, at several
/// moments of it; what was handed out before stays as it was.
#[test]
fn a_killed_server_is_noticed_while_its_memory_is_read() {
    const ROWS: usize = 100_000;
    if let Some(role) = role() {
        assert_eq!(role.name, "server");
        let (server, uri) = server(lending(BodyPolicy::Lent));
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let published = in_arena(&arena, &batch(0, ROWS));
        let provider = FnProvider(move |_: &dipc::server::ServerRequest| {
            let batch = published.clone();
            let batches = (0..1_i64 << 40).map(move |_| Ok(batch.clone()));
            Ok(stream_of(schema(), batches))
        });
        serve(&server, "t", Box::new(provider));
        println!("uri={uri}");
        return until_told();
    }
    if !works() {
        return;
    }
    let expected = batch(0, ROWS);
    for batches in [0, 1, 3, 20] {
        let test = "lending::a_killed_server_is_noticed_while_its_memory_is_read";
        let mut server = Other::start(test, "server", "-");
        let uri = server.line("uri=");
        let mut stream = client()
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        let schema = stream.schema().unwrap();
        let mut kept = Vec::new();
        for _ in 0..batches {
            kept.push(stream.next().unwrap().expect("a batch"));
        }
        server.kill();
        let error = loop {
            match stream.next() {
                Ok(batch) => kept.push(batch.expect("no end")),
                Err(error) => break error,
            }
        };
        assert_eq!(error.status(), Status::Disconnected, "{error}");
        drop(stream);
        for array in kept {
            assert_eq!(import(array, &schema), expected);
        }
    }
}

/// A stream that its consumer drops while it is being read gives everything back, and the next one
/// is whole.
#[test]
fn a_stream_dropped_early_gives_everything_back() {
    if !works() {
        return;
    }
    let arena = arena();
    let (server, uri) = server(lending(BodyPolicy::Lent));
    let expected = publish(&server, &arena, 40, 20_000);
    let client = client();
    for taken in [0, 1, 5] {
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        for _ in 0..taken {
            stream.next().unwrap().expect("a batch");
        }
        drop(stream);
        eventually("everything is given back", || {
            let stats = server.stats();
            stats.lent_outstanding == 0 && stats.streams_active == 0
        });
    }
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(read_all(&mut stream).unwrap(), expected);
}

/// The URI without our extension, as a baseline peer would read it.
fn baseline(uri: &str) -> String {
    let mut uri = Uri::parse(uri).unwrap();
    uri.extension = false;
    uri.to_string()
}

/// Rules U2, D4: a server that is told to lend always lends to baseline peers too, by plain
/// addresses and the key in the URI; other servers never do.
#[test]
fn a_baseline_peer_is_lent_to_where_the_server_lends_always() {
    if !works() {
        return;
    }
    for (body, lends) in [
        (BodyPolicy::Auto, false),
        (BodyPolicy::Lent, true),
        (BodyPolicy::Packed, false),
    ] {
        let (server, uri) = server(lending(body));
        let parsed = Uri::parse(&uri).unwrap();
        assert_eq!(parsed.remote_handle.is_some(), lends);
        // Rule U2: named whenever address lists may be sent.
        assert_eq!(parsed.tags.free_data.is_some(), lends);
        let arena = arena();
        let expected = publish(&server, &arena, 10, 20_000);
        let mut stream = client()
            .get(&[&baseline(&uri)], b"t", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap(), expected);
        let stats = server.stats();
        assert_eq!(stats.bytes_lent, 0);
        assert_eq!(stats.bytes_sent == 0, lends);
        // What is sent is copied at most once: into one piece, where UCX has only tcp.
        let (copied, sent) = (stats.bytes_copied, stats.bytes_sent);
        assert!(if lends { copied > 0 } else { copied <= sent });
        eventually("everything is given back", || {
            server.stats().lent_outstanding == 0
        });
    }
}

/// What does not fit into the memory for baseline peers is sent; a body that fits again is lent
/// again.
#[test]
fn a_baseline_peer_is_sent_what_does_not_fit() {
    if !works() {
        return;
    }
    let link = LinkOptions {
        lending: LendingOptions {
            region_bytes: 1 << 20,
            ..LendingOptions::default()
        },
        ..link_options()
    };
    let (server, uri) = server(ServerOptions {
        link,
        ..lending(BodyPolicy::Lent)
    });
    let sizes = [10, 200_000, 10];
    let provider = FnProvider(move |_: &dipc::server::ServerRequest| {
        Ok(stream_of(
            schema(),
            sizes.into_iter().map(|rows| Ok(batch(0, rows))),
        ))
    });
    serve(&server, "t", Box::new(provider));
    let mut stream = client()
        .get(&[&baseline(&uri)], b"t", &GetOptions::default(), None)
        .unwrap();
    assert_eq!(
        read_all(&mut stream).unwrap(),
        sizes.map(|rows| batch(0, rows))
    );
    let stats = server.stats();
    assert!(stats.bytes_sent > 1 << 20 && stats.bytes_copied > 0);
}

/// Rule F4 costs no memory for good: what baseline peers had that left in the middle is lent again
/// once their connections are closed.
#[test]
fn baseline_peers_that_are_cut_wear_nothing_out() {
    if !works() {
        return;
    }
    let link = LinkOptions {
        lending: LendingOptions {
            region_bytes: 1 << 20,
            ..LendingOptions::default()
        },
        ..link_options()
    };
    let (server, uri) = server(ServerOptions {
        link,
        ..lending(BodyPolicy::Lent)
    });
    serve(&server, "t", counting(1 << 40, 10_000));
    serve(&server, "few", counting(1, 10_000));
    for _ in 0..20 {
        let client = client();
        let mut stream = client
            .get(&[&baseline(&uri)], b"t", &GetOptions::default(), None)
            .unwrap();
        stream.next().unwrap().expect("a batch");
    }
    eventually("a body is lent again", || {
        let before = server.stats().bytes_sent;
        let mut stream = client()
            .get(&[&baseline(&uri)], b"few", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 1);
        server.stats().bytes_sent == before
    });
}

/// A bare address, of which a client cannot know how the server sends, works with each.
#[test]
fn a_bare_address_works_with_each_way_of_sending() {
    if !works() {
        return;
    }
    for body in [BodyPolicy::Auto, BodyPolicy::Packed, BodyPolicy::Lent] {
        let (server, uri) = server(lending(body));
        let arena = Arc::new(arena());
        let expected = publish(&server, &arena, 5, 20_000);
        let bare = Uri::parse(&uri).unwrap().bare();
        let mut stream = client()
            .get(&[&bare], b"t", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap(), expected, "{body:?}");
    }
}
