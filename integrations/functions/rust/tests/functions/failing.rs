//! Chains that meet a server which is killed, is silent, or answers otherwise.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use dipc::{Error, GetOptions, Reader, Result, Status};
use dipc_functions::Message;

use crate::leaving::{endless, route};
use crate::serving::Serving;
use crate::{client, module};

/// How a reader fails.
fn fails(reader: Result<Reader>) -> Error {
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return error,
    };
    loop {
        match reader.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the chain came to an end"),
            Err(error) => return error,
        }
    }
}

fn bare(uri: &str) -> &str {
    uri.split('?').next().unwrap()
}

/// Asks `first` for a call that goes on along the route, and ends nowhere.
fn asked(first: &Serving, on: &[&str], options: &GetOptions) -> Result<Reader> {
    let message = Message::new(&endless(false), "f", &route(on));
    message.get_with(&client(), &first.uri, "published", options)
}

/// Promise of a chain: where a server's process dies, the client gets a status and the server's name.
#[test]
fn a_server_that_is_killed_is_named() {
    for scheme in ["shm", "tcp"] {
        for killed in [0, 1] {
            let first = Serving::start(scheme, "part-0");
            let mut further = ["part-1", "part-2"].map(|policy| Serving::start(scheme, policy));
            let uris = further.each_ref().map(|server| server.uri.clone());
            let on = uris.each_ref().map(String::as_str);
            let reader = asked(&first, &on, &GetOptions::new());
            further[1].hear("asked");
            further[1].computes();
            further[killed].kill();
            let error = fails(reader);
            assert_eq!(error.status(), Status::Disconnected, "{error}");
            let named = uris.each_ref().map(|uri| error.text().contains(bare(uri)));
            assert_eq!(named, [killed == 0, killed == 1], "{error}");
        }
    }
}

/// Promise of `Out::forward`: the output has one schema wherever it comes from.
#[test]
fn a_server_with_another_schema_is_named() {
    for scheme in ["shm", "tcp"] {
        let (first, other) = (
            Serving::start(scheme, "part-0"),
            Serving::start(scheme, "part-1"),
        );
        let on = format!("{} next-1\n", other.uri);
        let message = Message::new(&module("faults"), "goes", on.as_bytes());
        let error = fails(message.get(&client(), &first.uri, "published"));
        assert_eq!(error.status(), Status::InvalidData, "{error}");
        assert!(error.text().contains("another schema"), "{error}");
        assert!(error.text().contains(bare(&other.uri)), "{error}");
    }
}

/// Promise of a chain: a request's deadline holds where the next server is silent, and so does the
/// client's time limit for a first answer where there is no deadline.
#[test]
fn a_server_that_never_answers_holds_no_call_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", silent.local_addr().unwrap());
    let first = Serving::start("tcp", "part-0");
    let soon = GetOptions::new().deadline(Duration::from_secs(2));
    for (options, most) in [(soon, 8), (GetOptions::new(), 30)] {
        let begin = Instant::now();
        let error = fails(asked(&first, &[&uri], &options));
        assert_eq!(error.status(), Status::Timeout, "{error}");
        assert!(begin.elapsed() < Duration::from_secs(most), "{error}");
    }
}

/// Promise of `Limits::stall`: nor does one that has begun to answer, and says nothing more.
#[test]
fn a_server_that_falls_silent_holds_no_call_for_ever() {
    for scheme in ["shm", "tcp"] {
        let (first, next) = (
            Serving::start(scheme, "stalls-0"),
            Serving::start(scheme, "part-1"),
        );
        let begin = Instant::now();
        let error = fails(asked(&first, &[&next.uri], &GetOptions::new()));
        assert_eq!(error.status(), Status::Timeout, "{error}");
        assert!(error.text().contains(bare(&next.uri)), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
    }
}
