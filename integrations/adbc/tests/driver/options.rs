//! Values that options cannot have, and limits of time.

use std::time::Duration;

use adbc_core::error::Status;
use adbc_core::options::OptionStatement;
use adbc_core::{Database as _, Driver as _, Optionable as _, Statement as _};

use crate::serving::Serving;
use crate::{all, connect, driver, options, query, table};

/// Promise of "Options": at the latest when a database is initialised, a value that cannot be used
/// is refused by a text that names the option, the value and what to do.
#[test]
fn values_that_cannot_be_used_are_refused() {
    for (name, value, remedy) in [
        (
            "dipc.tls.ca",
            "/nowhere/ca.pem",
            "give the path of a PEM file",
        ),
        ("dipc.tls.ca", "/", "give the path of a PEM file"),
        ("dipc.window.batches", "0", "from 1 to"),
        ("dipc.window.bytes", "0", "from 1 to"),
        ("dipc.window.bytes", "256M", "from 1 to"),
        ("dipc.message_limit", "65535", "from 65536 to"),
        ("dipc.connections", "0", "from 1 to 64"),
        ("dipc.connections", "65", "from 1 to 64"),
        ("dipc.max_idle", "-1", "from 0 to"),
        (
            "dipc.connect_timeout",
            "0",
            "from 0.000001 to 1000000000; inf is for ever",
        ),
        (
            "dipc.stall_timeout",
            "0",
            "from 0.000001 to 1000000000; inf is for ever",
        ),
        (
            "dipc.deadline",
            "0",
            "from 0.000001 to 1000000000; inf is for ever",
        ),
        ("dipc.deadline", "1 h", "number of seconds"),
        (
            "dipc.idle_timeout",
            "-1",
            "from 0 to 1000000000; inf is for ever",
        ),
        ("dipc.spin", "NaN", "from 0 to 1000000000; inf is for ever"),
        ("dipc.checksums", "yes", "true, false"),
    ] {
        let made = driver().new_database_with_opts(options("shm:@a", &[(name, value)]));
        let error = made.err().unwrap();
        assert_eq!(error.status, Status::InvalidArguments, "{error}");
        for part in [name, &format!("{value:?}"), remedy] {
            assert!(error.message.contains(part), "{error}");
        }
    }
    let one = [("dipc.token", "1"), ("dipc.header.authorization", "2")];
    let made = driver().new_database_with_opts(options("shm:@a", &one));
    let error = made.err().unwrap();
    assert_eq!(error.status, Status::InvalidArguments, "{error}");
    assert!(error.message.contains("set one of them"), "{error}");
}

/// Promise of "Options": a certificate without a file that can be read is refused, too.
#[test]
fn files_of_an_identity_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("client.pem");
    std::fs::write(&there, "a certificate").unwrap();
    let there = there.to_str().unwrap();
    for (certificate, key, missing) in [
        (there, "/nowhere/key", "dipc.tls.key"),
        ("/nowhere/pem", there, "dipc.tls.certificate"),
    ] {
        let identity = [("dipc.tls.certificate", certificate), ("dipc.tls.key", key)];
        let made = driver().new_database_with_opts(options("shm:@a", &identity));
        let error = made.err().unwrap();
        assert_eq!(error.status, Status::InvalidArguments, "{error}");
        assert!(error.message.contains(missing), "{error}");
        assert!(error.message.contains("/nowhere/"), "{error}");
    }
}

/// Promise of "Options": an option of databases is refused later, with a word on where it belongs.
#[test]
fn options_of_databases_come_in_time() {
    let mut connection = connect("shm:@a", &[]);
    for name in ["dipc.tls.ca", "dipc.max_idle", "dipc.setting.tcp.keepalive"] {
        let error = connection.set_option(name.into(), "1".into()).unwrap_err();
        assert_eq!(error.status, Status::NotImplemented, "{error}");
        assert!(error.message.contains("an option of databases"), "{error}");
    }
}

/// Promise of "Options": every time may be for ever, and a statement can so lift a limit.
#[test]
fn limits_are_lifted() {
    let server = Serving::start();
    let all_times = [
        ("dipc.connect_timeout", "inf"),
        ("dipc.stall_timeout", "inf"),
        ("dipc.idle_timeout", "inf"),
        ("dipc.spin", "inf"),
        ("dipc.deadline", "inf"),
    ];
    let mut endless = connect(&server.uri, &all_times);
    assert_eq!(
        all(query(&mut endless, "numbers").execute().unwrap()),
        table(3)
    );

    let limited = crate::database(&server.uri, &[("dipc.deadline", "0.2")]);
    let mut limited = limited.new_connection().unwrap();
    let error = query(&mut limited, "silent").execute().err().unwrap();
    assert_eq!(error.status, Status::Timeout, "{error}");
    let mut statement = query(&mut limited, "silent");
    let deadline = OptionStatement::from("dipc.deadline");
    let none = f64::INFINITY.into();
    statement.set_option(deadline.clone(), none).unwrap();
    assert_eq!(statement.get_option_string(deadline).unwrap(), "inf");
    let handle = statement.get_cancel_handle();
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| statement.execute().err().unwrap());
        std::thread::sleep(Duration::from_millis(600));
        handle.try_cancel().unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(error.status, Status::Cancelled, "{error}");
}
