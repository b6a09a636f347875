//! Tables in parts, on one server or several (rule Q6).

use std::sync::{Arc, Barrier};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use dipc::arrow::description::{Description, Endpoint};
use dipc::client::GetOptions;
use dipc::error::Status;
use dipc::proto::Headers;
use dipc::server::{ServerHandle, ServerOptions, ServerRequest};
use parking_lot::Mutex;

use crate::common::{FnProvider, batch, broken, read_all, schema, stream_of};
use crate::{SHM, SUBJECTS, Subject, assert_same, client, eventually, serve, server};

/// Rows of a part.
const ROWS: usize = 10;

/// Batches of a part.
const BATCHES: i64 = 3;

fn part(number: i64) -> Vec<RecordBatch> {
    let first = |index| (number * BATCHES + index) * ROWS as i64;
    (0..BATCHES)
        .map(|index| batch(first(index), ROWS))
        .collect()
}

/// Gives the part that the ticket names.
fn give(request: &ServerRequest) -> dipc::error::Result<dipc::arrow::OwnedDeviceStream> {
    let number = std::str::from_utf8(request.ticket()).unwrap();
    let batches = part(number.parse().unwrap()).into_iter().map(Ok);
    Ok(stream_of(schema(), batches))
}

fn endpoint(ticket: &str, uris: &[&str]) -> Endpoint {
    Endpoint {
        descriptor: ticket.as_bytes().to_vec(),
        uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
        ..Endpoint::default()
    }
}

/// A server with the ticket `all`, which stands for these parts.
fn describing(
    subject: Subject,
    endpoints: Vec<Endpoint>,
    is_ordered: bool,
) -> (ServerHandle, String) {
    let (server, uri) = server(subject, ServerOptions::default());
    serve(&server, "all", Box::new(FnProvider(give)));
    let description = Description {
        endpoints,
        is_ordered,
        ..Description::default()
    };
    server.set_description(b"all", description).unwrap();
    (server, uri)
}

/// The first row of each batch.
fn first_rows(batches: &[RecordBatch]) -> Vec<i64> {
    let first = |batch: &RecordBatch| {
        let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>();
        numbers.unwrap().value(0)
    };
    batches.iter().map(first).collect()
}

/// Rule Q6: the parts of two servers come whole, each at its first server that can be reached; in
/// their order if that matters. The stream gets further parts after the client was dropped.
#[test]
fn parts_of_two_servers_are_one_table() {
    for subject in SUBJECTS {
        let (other, elsewhere) = server(subject, ServerOptions::default());
        let handler = other.set_handler(Box::new(FnProvider(give)));
        handler.map_err(|(error, _)| error).unwrap();
        for is_ordered in [false, true] {
            let endpoints = (0..20).map(|number| {
                let nowhere = subject.nowhere();
                let uris: &[&str] = match number % 3 {
                    0 => &[],
                    1 => &[&elsewhere],
                    _ => &["nothing:@known", &nowhere, &elsewhere],
                };
                endpoint(&number.to_string(), uris)
            });
            let (server, uri) = describing(subject, endpoints.collect(), is_ordered);
            let handler = server.set_handler(Box::new(FnProvider(give)));
            handler.map_err(|(error, _)| error).unwrap();
            let client = client();
            let mut parts = client
                .get_parts(&[&uri], b"all", &subject.options(), None)
                .unwrap();
            drop(client);
            let mut batches = read_all(&mut parts).unwrap();
            assert_eq!(parts.stats().batches, 20 * BATCHES as u64);
            if !is_ordered {
                batches.sort_by_key(|batch| first_rows(std::slice::from_ref(batch)));
            }
            let expected: Vec<_> = (0..20).flat_map(part).collect();
            assert_same(&batches, &expected);
        }
    }
}

/// Rule Q6: a client skips shared memory of another host, also where somebody listens at the
/// address.
#[test]
fn shared_memory_of_another_host_is_skipped() {
    let (stranger, uri) = server(SHM, ServerOptions::default());
    let lie = server_of_host(&uri, "another");
    let handler = stranger.set_handler(Box::new(FnProvider(|_: &ServerRequest| {
        Ok(stream_of(schema(), [Ok(batch(77, 1))].into_iter()))
    })));
    handler.map_err(|(error, _)| error).unwrap();
    let (there, reached) = server(SHM, ServerOptions::default());
    serve(&there, "0", Box::new(FnProvider(give)));
    let (_server, uri) = describing(SHM, vec![endpoint("0", &[&lie, &reached])], false);
    let mut parts = client()
        .get_parts(&[&uri], b"all", &SHM.options(), None)
        .unwrap();
    assert_same(&read_all(&mut parts).unwrap(), &part(0));

    let refused = client().get(&[&lie], b"0", &SHM.options(), None);
    let error = refused.map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Unreachable);
    assert!(error.text().contains("another host"), "{error}");
}

/// Promise of `dipc_client_get_parts`: a description cannot lead this process where its program
/// would not go: `authorization` stays with the server that was asked, and ucx needs the program's
/// word.
#[test]
fn a_description_is_not_trusted() {
    let (other, elsewhere) = server(SHM, ServerOptions::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = |seen: &Arc<Mutex<Vec<Vec<String>>>>| {
        let seen = Arc::clone(seen);
        FnProvider(move |request: &ServerRequest| {
            let keys = request.headers().iter().map(|(key, _)| key.to_owned());
            seen.lock().push(keys.collect());
            give(request)
        })
    };
    let handler = other.set_handler(Box::new(tell(&seen)));
    handler.map_err(|(error, _)| error).unwrap();
    let endpoints = vec![endpoint("0", &[]), endpoint("1", &[&elsewhere])];
    let (asked, uri) = describing(SHM, endpoints, true);
    let own = Arc::new(Mutex::new(Vec::new()));
    let handler = asked.set_handler(Box::new(tell(&own)));
    handler.map_err(|(error, _)| error).unwrap();
    let mut headers = Headers::new();
    headers.add("authorization", *b"Bearer secret").unwrap();
    headers.add("traceparent", *b"00-1").unwrap();
    for send_secrets in [false, true] {
        let options = GetOptions {
            headers: headers.clone(),
            send_secrets,
            ..SHM.options()
        };
        let mut parts = client().get_parts(&[&uri], b"all", &options, None).unwrap();
        assert_eq!(read_all(&mut parts).unwrap().len(), 2 * BATCHES as usize);
        let both = ["authorization", "traceparent"];
        let sent = if send_secrets { &both[..] } else { &both[1..] };
        assert_eq!(seen.lock().pop().unwrap(), sent);
        assert_eq!(own.lock().pop().unwrap(), both);
    }

    let endpoints = vec![endpoint("0", &["ucx://127.0.0.1:1", "tcp://127.0.0.1:1"])];
    let (_asked, uri) = describing(SHM, endpoints, false);
    let refused = client().get_parts(&[&uri], b"all", &SHM.options(), None);
    let error = refused.map(drop).unwrap_err();
    // Each server's reason is told.
    assert!(error.text().contains("trusted_network"), "{error}");
    assert!(error.text().contains("tcp://127.0.0.1:1"), "{error}");
}

/// The URI, of another host.
fn server_of_host(uri: &str, host: &str) -> String {
    let (before, own) = uri.split_once("dipc_host=").expect("the host is named");
    assert!(own.len() > 32, "{own}");
    format!("{before}dipc_host={host}")
}

/// Rule Q6: parts are fetched at once: each of eight gives its first batch when all are asked for.
#[test]
fn parts_are_fetched_at_once() {
    for subject in SUBJECTS {
        for is_ordered in [false, true] {
            let endpoints = (0..8).map(|number| endpoint(&number.to_string(), &[]));
            let (server, uri) = describing(subject, endpoints.collect(), is_ordered);
            let all = Arc::new(Barrier::new(8));
            let give_together = move |request: &ServerRequest| {
                let (all, number) = (Arc::clone(&all), request.ticket().to_vec());
                let number = String::from_utf8(number).unwrap().parse().unwrap();
                let batches = part(number)
                    .into_iter()
                    .enumerate()
                    .map(move |(index, batch)| {
                        if index == 0 {
                            all.wait();
                        }
                        Ok(batch)
                    });
                Ok(stream_of(schema(), batches))
            };
            let handler = server.set_handler(Box::new(FnProvider(give_together)));
            handler.map_err(|(error, _)| error).unwrap();
            let client = client();
            let mut parts = client
                .get_parts(&[&uri], b"all", &subject.options(), None)
                .unwrap();
            let batches = read_all(&mut parts).unwrap();
            assert_eq!(batches.len(), 8 * BATCHES as usize, "{}", subject.scheme);
        }
    }
}

/// Rule Q6: a part that fails, or that has other columns, ends the table with a text that names the
/// part, and the other parts are left. A ticket without parts is its own only part.
#[test]
fn a_part_that_fails_ends_the_table() {
    for subject in SUBJECTS {
        let endpoints = |last: &[&str]| {
            let first = (0..3).map(|number| endpoint(&number.to_string(), &[]));
            first.chain([endpoint("last", last)]).collect::<Vec<_>>()
        };
        let nowhere = subject.nowhere();
        let answer = |request: &ServerRequest| match request.ticket() {
            b"last" => {
                let batches = [Ok(batch(0, 1)), Err(broken("a torn tape"))];
                Ok(stream_of(schema(), batches.into_iter()))
            }
            _ => {
                // It has no end.
                let endless = (0..).map(|number| Ok(batch(number, ROWS)));
                Ok(stream_of(schema(), endless))
            }
        };
        let other_columns = |request: &ServerRequest| match request.ticket() {
            b"last" => {
                // Nulls under a schema without them would be taken for values.
                let mut fields = schema().fields().to_vec();
                fields[0] = Arc::new(Field::new("n", DataType::Int64, true));
                let schema = Arc::new(Schema::new(fields));
                Ok(stream_of(schema, std::iter::empty()))
            }
            _ => give(request),
        };
        let (server, uri) = describing(subject, endpoints(&[]), false);
        let client = client();
        let options = subject.options();
        let ask = |uri: &str| client.get_parts(&[uri], b"all", &options, None);

        let set = server.set_handler(Box::new(FnProvider(answer)));
        set.map_err(|(error, _)| error).unwrap();
        let mut parts = ask(&uri).unwrap();
        let error = read_all(&mut parts).unwrap_err();
        assert!(error.text().contains("a torn tape"), "{error}");
        assert!(error.to_string().contains("part 3"), "{error}");
        assert_eq!(read_all(&mut parts).unwrap_err().status(), error.status());
        eventually("the other parts are left", || {
            server.stats().streams_active == 0
        });

        let set = server.set_handler(Box::new(FnProvider(other_columns)));
        set.map_err(|(error, _)| error).unwrap();
        let error = ask(&uri).map(drop).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData);
        assert!(error.text().contains("part 3"), "{error}");

        let (server, uri) = describing(subject, endpoints(&[&nowhere]), false);
        let set = server.set_handler(Box::new(FnProvider(give)));
        set.map_err(|(error, _)| error).unwrap();
        let error = ask(&uri).map(drop).unwrap_err();
        assert!(error.to_string().contains(&nowhere), "{error}");

        // Without a description, the ticket is its own only part.
        let (server, uri) = crate::server(subject, ServerOptions::default());
        serve(&server, "7", Box::new(FnProvider(give)));
        let mut parts = client.get_parts(&[&uri], b"7", &options, None).unwrap();
        assert_same(&read_all(&mut parts).unwrap(), &part(7));
    }
}
