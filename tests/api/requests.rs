//! Requests that wait on their thread.

use std::task::Poll;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use dipc::{
    Batches, Cancel, Client, DeviceArray, DeviceKind, Error, GetOptions, Level, PutOptions, Reader,
    Status,
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::serving::Serving;
use crate::{batch, schema, table};

fn all(reader: Reader) -> Vec<RecordBatch> {
    reader.collect::<Result<_, _>>().unwrap()
}

/// Promise of `Client::get`: the batches of published tables and of providers arrive as they were.
#[test]
fn tables_arrive_as_they_were() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let reader = client.get(&server.uri, "published").unwrap();
        assert_eq!(reader.schema(), schema());
        assert_eq!(all(reader), table(3));
        let expected: Vec<_> = (0..5).map(|n| batch(n, 10)).collect();
        assert_eq!(all(client.get(&server.uri, "iterator").unwrap()), expected);
        let streamed = all(client.get(&server.uri, "stream").unwrap());
        assert_eq!(streamed, expected[..4]);
        let full = GetOptions::new().validation(Level::Full);
        let checked = client.get_with(&server.uri, "published", &full).unwrap();
        assert_eq!(all(checked), table(3));
    }
}

/// Promise of `Reader::try_next_array` and `Reader::fd`: a program with an event loop of its own
/// misses no batch, and hears of the end.
#[test]
fn tables_arrive_in_an_event_loop() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let mut reader = client.get(&server.uri, "iterator").unwrap();
        let mut batches = Vec::new();
        loop {
            match reader.try_next_array().unwrap() {
                Poll::Ready(Some(array)) => batches.push(array.into_batch().unwrap()),
                Poll::Ready(None) => break,
                Poll::Pending => {
                    let fd = reader.fd().unwrap();
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
                }
            }
        }
        let expected: Vec<_> = (0..5).map(|n| batch(n, 10)).collect();
        assert_eq!(batches, expected);
        assert!(reader.try_next_array().unwrap().is_ready());
    }
    let mut local = Batches::of(schema(), table(1)).into_reader().unwrap();
    let refused = local.try_next_array().unwrap_err();
    assert_eq!(refused.status(), Status::Unsupported);
    assert_eq!(all(local), table(1));
}

/// Promise of `Error`: a program finds the status of the other host's error, and people its text,
/// also through the traits of `arrow`.
#[test]
fn errors_keep_their_status() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let unknown = client.get(&server.uri, "nothing").unwrap_err();
        assert_eq!(unknown.status(), Status::NotFound, "{unknown}");
        let refused = GetOptions::new().header("x-refuse", "1").unwrap();
        let refused = client
            .get_with(&server.uri, "published", &refused)
            .unwrap_err();
        assert_eq!(refused.status(), Status::Permission, "{refused}");

        let mut broken = client.get(&server.uri, "broken").unwrap();
        for _ in 0..3 {
            broken.next().unwrap().unwrap();
        }
        let ArrowError::ExternalError(error) = broken.next().unwrap().unwrap_err() else {
            panic!("the error of this crate is inside");
        };
        let error = error.downcast::<Error>().unwrap();
        assert_eq!(error.status(), Status::Io, "{error}");
        assert!(error.text().contains("the disk is gone"), "{error}");
        assert!(broken.next().is_none());
    }
}

/// Promise of `Client::put` and of `Provider::put`: the server's host has what was sent, and its
/// results come; a failed put leaves nothing.
#[test]
fn tables_are_taken() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let taken = client
            .put(&server.uri, "whole", Batches::of(schema(), table(3)))
            .unwrap();
        assert_eq!(taken, 3);
        assert_eq!(all(client.get(&server.uri, "whole").unwrap()), table(3));

        let mut put = client
            .start_put(&server.uri, "pushed", &schema(), &PutOptions::new())
            .unwrap();
        for batch in table(2) {
            put.push(batch).unwrap();
        }
        let wrong = batch(0, 1).project(&[0]).unwrap();
        assert_eq!(put.push(wrong).unwrap_err().status(), Status::InvalidData);
        assert_eq!(put.finish().unwrap(), 2);
        let result = put.next_result().unwrap().unwrap();
        assert_eq!(result, (1, b"the first".to_vec()));
        assert_eq!(put.next_result().unwrap(), None);
        assert_eq!(all(client.get(&server.uri, "pushed").unwrap()), table(2));

        let mut failed = client
            .start_put(&server.uri, "failed", &schema(), &PutOptions::new())
            .unwrap();
        failed.push(batch(0, 10)).unwrap();
        failed.fail("the source is gone");
        drop(failed);
        let missing = client.get(&server.uri, "failed").unwrap_err();
        assert_eq!(missing.status(), Status::NotFound, "{missing}");
    }
}

fn arrays(batches: Vec<RecordBatch>) -> impl Iterator<Item = dipc::Result<DeviceArray>> {
    batches.into_iter().map(|batch| Ok(batch.into()))
}

/// Promise of `Batches::of_arrays` and of `Client::start_put_of`: arrays are sent as batches are,
/// and the figures of the put say how.
#[test]
fn arrays_are_taken() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let sent = Batches::of_arrays(schema(), DeviceKind::CPU, arrays(table(3)));
        let options = PutOptions::new();
        let mut put = client
            .start_put_of(&server.uri, "arrays", sent, &options)
            .unwrap();
        assert_eq!(put.finish().unwrap(), 3);
        assert_eq!(put.stats().batches, 3);
        assert_eq!(all(client.get(&server.uri, "arrays").unwrap()), table(3));
    }
}

/// Promise of `Batches::of_arrays`: arrays of other columns and in other memory fail the table.
#[test]
fn arrays_that_do_not_fit_fail_the_table() {
    let narrow = batch(0, 1).project(&[0]).unwrap();
    for (device, batch) in [
        (DeviceKind::CPU, narrow),
        (DeviceKind::CUDA_HOST, batch(0, 1)),
    ] {
        let sent = Batches::of_arrays(schema(), device, arrays(vec![batch]));
        let error = sent.into_reader().unwrap().next_array().unwrap_err();
        assert_eq!(error.status(), Status::InvalidData, "{error}");
    }
}

/// Promise of `ClientBuilder::read_tls`: files that cannot be used show before a connection.
#[test]
fn files_of_tls_are_read_early() {
    let client = Client::builder().tls_ca("/nowhere/ca.pem");
    let error = client.read_tls().unwrap_err();
    assert_eq!(error.status(), Status::NotFound, "{error}");
}

/// Promise of `Client::exchange`: both tables move on one connection.
#[test]
fn tables_are_exchanged() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let options = (&PutOptions::new(), &GetOptions::new());
        let (mut put, reader) = client
            .exchange(&server.uri, "twice", &schema(), options)
            .unwrap();
        let read = std::thread::spawn(move || all(reader));
        for batch in table(4) {
            put.push(batch).unwrap();
        }
        put.finish().unwrap();
        let expected: Vec<_> = (table(4).into_iter())
            .flat_map(|batch| [batch.clone(), batch])
            .collect();
        assert_eq!(read.join().unwrap(), expected);
    }
}

/// Promise of `Client::describe` and `Client::list`: what the server and its handler know, without
/// a stream.
#[test]
fn tables_are_described_and_listed() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let description = client.describe(&server.uri, "published").unwrap();
        assert_eq!(description.total_rows(), Some(3000));
        assert_eq!(description.total_batches(), Some(3));
        assert_eq!(description.table_schema().unwrap(), Some(schema()));

        client
            .put(&server.uri, "kept", Batches::of(schema(), table(1)))
            .unwrap();
        let description = client.describe(&server.uri, "kept").unwrap();
        assert_eq!(description.total_rows(), Some(1000));

        let names: Vec<_> = client.list(&server.uri, "").unwrap();
        let names: Vec<_> = names.iter().map(dipc::Endpoint::ticket).collect();
        let own = [
            "broken",
            "endless",
            "iterator",
            "panics",
            "panics later",
            "published",
            "stream",
            "swapped columns",
        ];
        let own = own.map(str::as_bytes);
        assert_eq!(names, own);
        let kept = client.list(&server.uri, "kept").unwrap();
        assert_eq!(kept[0].ticket(), b"kept");
    }
}

/// Promise of `GetOptions::cancel`: the token ends a stream that waits or runs.
#[test]
fn a_token_ends_a_stream() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let token = Cancel::new().unwrap();
        let options = GetOptions::new().cancel(&token);
        let mut reader = client.get_with(&server.uri, "endless", &options).unwrap();
        assert!(reader.next_batch().unwrap().is_some());
        token.cancel();
        let error = loop {
            if let Err(error) = reader.next_batch() {
                break error;
            }
        };
        assert_eq!(error.status(), Status::Cancelled, "{error}");
    }
}

/// Promise of `Provider`: a panic fails the stream at its client, and the server goes on.
#[test]
fn a_panic_of_a_provider_fails_its_stream() {
    for server in Serving::all() {
        let client = Client::new().unwrap();
        // More often than there are places for streams.
        for _ in 0..70 {
            let error = client.get(&server.uri, "panics").unwrap_err();
            assert!(
                error.text().contains("panicked: a bug of the host"),
                "{error}"
            );
            let mut reader = client.get(&server.uri, "panics later").unwrap();
            reader.next_batch().unwrap().unwrap();
            let error = reader.next_batch().unwrap_err();
            assert!(error.text().contains("a bug of the host"), "{error}");
        }
        assert_eq!(all(client.get(&server.uri, "published").unwrap()), table(3));
    }
}

/// Promise of the API: every batch has the columns of its stream's schema, by name, order and type,
/// whichever way it goes.
#[test]
fn batches_of_other_columns_are_refused() {
    let swapped = || batch(0, 10).project(&[1, 0]).unwrap();
    let told = |error: dipc::Error| {
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert!(
            error.text().contains("column 1 is \"text\" and not \"n\""),
            "{error}"
        );
    };
    let here = dipc::Server::new().unwrap();
    told(
        here.publish("t", &schema(), [batch(0, 10), swapped()])
            .unwrap_err(),
    );
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let table = Batches::of(schema(), [batch(0, 10), swapped()]);
        told(client.put(&server.uri, "swapped", table).unwrap_err());
        let mut reader = client.get(&server.uri, "swapped columns").unwrap();
        assert_eq!(reader.next_batch().unwrap(), Some(batch(0, 10)));
        told(reader.next_batch().unwrap_err());
    }
}

/// Promise of `transports` and `devices`: what works says so, and what does not says why.
#[test]
fn capabilities_work_or_say_why() {
    let transports = dipc::transports();
    let names: Vec<_> = transports.iter().map(|known| known.name).collect();
    assert_eq!(names, ["shm", "ucx", "tcp", "tls"]);
    assert!(transports[0].fault.is_none() && transports[2].fault.is_none());
    let devices = dipc::devices();
    assert_eq!(devices[0].name, "cpu");
    for known in transports.iter().chain(&devices) {
        let said = known.fault.as_ref().map(|error| error.text().len());
        assert_ne!(said, Some(0), "{}", known.name);
    }
}
