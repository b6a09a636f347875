//! Bulk ingestion.

use adbc_core::error::{Error, Status};
use adbc_core::options::{IngestMode, OptionConnection, OptionStatement};
use adbc_core::{Connection as _, Optionable as _, Statement as _};
use adbc_driver_manager::{ManagedConnection, ManagedStatement};
use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::error::ArrowError;

use crate::serving::Serving;
use crate::{all, batch, connect, query, schema, table};

fn target(connection: &mut ManagedConnection, name: &str) -> ManagedStatement {
    let mut statement = connection.new_statement().unwrap();
    statement
        .set_option(OptionStatement::TargetTable, name.into())
        .unwrap();
    statement
}

fn ingest(
    connection: &mut ManagedConnection,
    name: &str,
    mode: IngestMode,
    data: RecordBatch,
) -> Result<Option<i64>, Error> {
    let mut statement = target(connection, name);
    statement
        .set_option(OptionStatement::IngestMode, mode.into())
        .unwrap();
    statement.bind(data).unwrap();
    statement.execute_update()
}

/// Promise of "Ingestion": the server's host is told the mode, and its word is the outcome.
#[test]
fn modes_reach_the_server() {
    let server = Serving::start();
    let modes = [("dipc.ingest.modes", "create,append,replace,create_append")];
    let mut connection = connect(&server.uri, &modes);
    let numbers =
        |connection: &mut ManagedConnection| all(query(connection, "t").execute().unwrap());

    let put = ingest(&mut connection, "t", IngestMode::Append, batch(0, 3));
    assert_eq!(put.unwrap_err().status, Status::NotFound);
    let put = ingest(&mut connection, "t", IngestMode::Create, batch(0, 3));
    assert_eq!(put.unwrap(), Some(3));
    let put = ingest(&mut connection, "t", IngestMode::Create, batch(0, 3));
    assert_eq!(put.unwrap_err().status, Status::AlreadyExists);
    let put = ingest(&mut connection, "t", IngestMode::Append, batch(3, 4));
    assert_eq!(put.unwrap(), Some(4));
    let put = ingest(&mut connection, "t", IngestMode::CreateAppend, batch(7, 1));
    assert_eq!(put.unwrap(), Some(1));
    assert_eq!(
        numbers(&mut connection),
        [batch(0, 3), batch(3, 4), batch(7, 1)]
    );
    let put = ingest(&mut connection, "t", IngestMode::Replace, batch(9, 2));
    assert_eq!(put.unwrap(), Some(2));
    assert_eq!(numbers(&mut connection), [batch(9, 2)]);
}

/// Promise of "Ingestion": a mode that the server may not follow is refused, and nothing is sent.
#[test]
fn modes_are_not_guessed() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    for (mode, word) in [
        (IngestMode::Append, "\"append\""),
        (IngestMode::Replace, "\"replace\""),
        (IngestMode::CreateAppend, "\"create_append\""),
    ] {
        let error = ingest(&mut connection, "t", mode, batch(0, 3)).unwrap_err();
        assert_eq!(error.status, Status::NotImplemented);
        assert!(error.message.contains(word), "{error}");
    }
    let error = query(&mut connection, "t").execute().err().unwrap();
    assert_eq!(error.status, Status::NotFound);
    // A table that the server publishes is not replaced, whatever its host would do.
    let error = ingest(&mut connection, "numbers", IngestMode::Create, batch(0, 3));
    assert_eq!(error.unwrap_err().status, Status::AlreadyExists);
    assert_eq!(
        all(query(&mut connection, "numbers").execute().unwrap()),
        table(3)
    );
}

/// Promise of `BindStream`: all of a stream is sent, and its error fails the table.
#[test]
fn streams_are_sent() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let stream = |batches: Vec<Result<RecordBatch, ArrowError>>| {
        Box::new(RecordBatchIterator::new(batches, schema()))
    };
    let mut statement = target(&mut connection, "t");
    statement
        .bind_stream(stream(table(3).into_iter().map(Ok).collect()))
        .unwrap();
    let results = statement.execute().unwrap();
    assert_eq!(all(results).len(), 0);
    assert_eq!(
        all(query(&mut connection, "t").execute().unwrap()),
        table(3)
    );
    // What was bound is gone.
    let error = statement.execute_update().unwrap_err();
    assert_eq!(error.status, Status::InvalidState, "{error}");

    let mut statement = target(&mut connection, "half");
    let broken = ArrowError::ComputeError("half of it".to_owned());
    statement
        .bind_stream(stream(vec![Ok(batch(0, 5)), Err(broken)]))
        .unwrap();
    let error = statement.execute_update().unwrap_err();
    assert!(error.message.contains("half of it"), "{error}");
    let error = query(&mut connection, "half").execute().err().unwrap();
    assert_eq!(error.status, Status::NotFound, "{error}");
}

/// Promise of `Cancel`: it ends an ingestion, of which the server keeps nothing.
#[test]
fn an_ingestion_is_cancelled() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let mut statement = target(&mut connection, "t");
    let endless = RecordBatchIterator::new((0..).map(|n| Ok(batch(n, 1000))), schema());
    statement.bind_stream(Box::new(endless)).unwrap();
    let handle = statement.get_cancel_handle();
    let error = std::thread::scope(|scope| {
        let sending = scope.spawn(|| statement.execute_update().unwrap_err());
        // Nothing runs until the thread has begun.
        while handle.try_cancel().is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        sending.join().unwrap()
    });
    assert_eq!(error.status, Status::Cancelled, "{error}");
    let error = query(&mut connection, "t").execute().err().unwrap();
    assert_eq!(error.status, Status::NotFound, "{error}");
}

/// Promise of "Ingestion": what the server cannot be told is refused.
#[test]
fn targets_are_checked() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let mut statement = target(&mut connection, "t");
    for (option, value) in [
        (OptionStatement::Temporary, "true"),
        (OptionStatement::TargetCatalog, "main"),
        (OptionStatement::TargetDbSchema, "main"),
    ] {
        let error = statement.set_option(option, value.into()).unwrap_err();
        assert_eq!(error.status, Status::NotImplemented, "{error}");
    }
    let error = statement.set_option(OptionStatement::IngestMode, "upsert".into());
    assert_eq!(error.unwrap_err().status, Status::InvalidArguments);
    let error = statement.set_option(OptionStatement::TargetTable, "".into());
    assert_eq!(error.unwrap_err().status, Status::InvalidArguments);
    let mode = statement
        .get_option_string(OptionStatement::IngestMode)
        .unwrap();
    assert_eq!(mode, "adbc.ingest.mode.create");
    let name = statement
        .get_option_string(OptionStatement::TargetTable)
        .unwrap();
    assert_eq!(name, "t");

    // A query takes the place of a target, and a target that of a query.
    statement.bind(batch(0, 1)).unwrap();
    statement.execute_update().unwrap();
    statement.set_sql_query("t").unwrap();
    assert_eq!(all(statement.execute().unwrap()), [batch(0, 1)]);
    statement
        .set_option(OptionStatement::TargetTable, "u".into())
        .unwrap();
    assert_eq!(
        statement.execute().err().unwrap().status,
        Status::InvalidState
    );

    connection
        .set_option(OptionConnection::ReadOnly, true.into())
        .unwrap();
    let error = ingest(&mut connection, "v", IngestMode::Create, batch(0, 1)).unwrap_err();
    assert_eq!(error.status, Status::InvalidState, "{error}");
    assert!(error.message.contains("read-only"), "{error}");
}
