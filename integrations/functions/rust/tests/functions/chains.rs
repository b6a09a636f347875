//! Functions that go on at other servers.

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use dipc::{Error, GetOptions, PutOptions, Reader, Result, Status};
use dipc_functions::Message;

use crate::serving::{PLACES, Serving, next};
use crate::{batch, client, module, numbers, read, schema, table};

/// Four servers that follow one another, each with a quarter of the places.
fn four(scheme: &str) -> Vec<Serving> {
    let part = |part| Serving::start(scheme, &format!("part-{part}"));
    (0..4).map(part).collect()
}

/// The arguments of the example `chase`; `uris` in the order of the parts.
fn arguments(place: i64, steps: i64, uris: &[&str]) -> String {
    let parts = uris.iter().enumerate();
    let lines = parts.map(|(part, uri)| format!("{} {uri} next-{part}\n", part as i64 * PLACES));
    format!("{place}\n{steps}\n0\n0\n{}", lines.collect::<String>())
}

fn chase(servers: &[Serving], uris: &[&str], place: i64, steps: i64) -> Result<Reader> {
    let text = arguments(place, steps, uris);
    let message = Message::new(&module("chase"), "chase", text.as_bytes());
    let part = place / PLACES;
    let server = &servers[usize::try_from(part).unwrap()];
    message.get(&client(), &server.uri, format!("next-{part}"))
}

fn fails(chase: Result<Reader>) -> Error {
    match chase.and_then(|mut reader| reader.next_batch()) {
        Ok(batch) => panic!("a chase came to an end: {batch:?}"),
        Err(error) => error,
    }
}

fn uris(servers: &[Serving]) -> Vec<&str> {
    servers.iter().map(|server| server.uri.as_str()).collect()
}

/// Promise of `Policy::allow_peer`: a call goes on where its function asks for it, and ends as one on
/// the whole table does. The first server alone gets the module of the client.
#[test]
fn a_chase_over_four_servers_ends_where_one_over_the_whole_table_does() {
    for scheme in ["shm", "tcp"] {
        let servers = four(scheme);
        for (begin, steps) in [(1, 30), (3_999, 50), (2_500, 1), (1_234, 0)] {
            let (mut place, mut hops) = (begin, 0);
            for _ in 0..steps {
                let to = next(place);
                hops += i64::from(to / PLACES != place / PLACES);
                place = to;
            }
            // A step that ends elsewhere needs no visit there.
            let reader = chase(&servers, &uris(&servers), begin, steps).unwrap();
            let batches = read(reader);
            let row: Vec<i64> = (batches[0].columns().iter())
                .map(|column| column.as_primitive::<Int64Type>().value(0))
                .collect();
            assert_eq!(row[..2], [place, steps], "{scheme} {begin}");
            assert!(row[2] == hops || row[2] + 1 == hops, "{row:?} {hops}");
        }
    }
}

/// Promise of `Limits::hops`: a call without an end meets its bound, and its client is told so.
#[test]
fn a_ring_ends_at_the_bound_of_hops() {
    for scheme in ["shm", "tcp"] {
        let servers = four(scheme);
        let error = fails(chase(&servers, &uris(&servers), 1, i64::MAX));
        assert_eq!(error.status(), Status::OutOfResources, "{error}");
        assert!(
            error.text().contains("hops to other servers: 60"),
            "{error}"
        );
        assert_eq!(error.text().matches("went on").count(), 1, "{error}");
    }
}

/// Promise of `Policy::allow_peer`: no other server is reached, and none at all without peers.
#[test]
fn a_call_goes_to_listed_servers_alone() {
    let servers = four("shm");
    let elsewhere = ["shm:@elsewhere"; 4];
    let error = fails(chase(&servers, &elsewhere, 1, 1_000));
    assert_eq!(error.status(), Status::Permission, "{error}");
    assert!(error.text().contains("shm:@elsewhere"), "{error}");

    let alone = [Serving::start("shm", "alone-0")];
    let error = fails(chase(&alone, &uris(&servers), 1, 1_000));
    assert_eq!(error.status(), Status::Permission, "{error}");
    assert!(error.text().contains("allow_peer"), "{error}");

    // A server that runs no functions gives no rows of its table in their place.
    let off = Serving::start("shm", "off");
    let error = fails(chase(&servers[..1], &[off.uri.as_str(); 4], 1, 1_000));
    assert_eq!(error.status(), Status::Unsupported, "{error}");
    assert!(error.text().contains("enable functions"), "{error}");
}

/// Promise of a chain: the error of the next server keeps its status, and names that server.
#[test]
fn an_error_names_the_server_where_it_arose() {
    for scheme in ["shm", "tcp"] {
        let mut servers = four(scheme);
        let gone = servers.pop().unwrap().uri.clone();
        let all = [uris(&servers), vec![gone.as_str()]].concat();
        let error = fails(chase(&servers, &all, 1, 1_000));
        assert!(
            error.text().contains(gone.split('?').next().unwrap()),
            "{error}"
        );
        assert_ne!(error.status(), Status::Provider, "{error}");
    }
}

/// Promise of a chain: in a put and in an exchange it goes on as in a get. What the next server makes
/// of its table follows what this one has made of the client's.
#[test]
fn puts_and_exchanges_go_on_too() {
    for scheme in ["shm", "tcp"] {
        let (first, next) = (
            Serving::start(scheme, "part-0"),
            Serving::start(scheme, "part-1"),
        );
        let on = format!("{} published\n", next.uri);
        let message = Message::new(&module("faults"), "goes", on.as_bytes());
        let (client, sent) = (client(), batch(7_000));
        let there = numbers(&table(3));
        let expected = [numbers([&sent]), there].concat();

        let batches = [sent.clone()];
        message
            .put(&client, &first.uri, "mine", batches, &schema())
            .unwrap();
        let stored = read(client.get(&first.uri, "stored").unwrap());
        assert_eq!(numbers(&stored), expected, "{scheme}");

        let options = (&PutOptions::new(), &GetOptions::new());
        let begun = message.exchange(&client, &first.uri, &schema(), options);
        let (mut put, reader) = begun.unwrap();
        let answer = std::thread::spawn(|| read(reader));
        put.push(sent.clone()).unwrap();
        put.finish().unwrap();
        assert_eq!(numbers(&answer.join().unwrap()), expected, "{scheme}");
    }
}
