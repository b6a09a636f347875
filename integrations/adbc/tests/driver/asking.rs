//! Queries, their schemas and partitions, and their end.

use std::time::{Duration, Instant};

use adbc_core::error::Status;
use adbc_core::options::{AdbcVersion, OptionStatement};
use adbc_core::{Connection as _, Driver as _, Optionable as _, Statement as _};
use adbc_driver_manager::ManagedDriver;
use adbc_ffi::FFI_AdbcDriverInitFunc;
use arrow::array::RecordBatchReader as _;

use crate::serving::Serving;
use crate::{all, batch, connect, driver, library, many, options, query, schema, table};

/// Promise of the entry points: both are there, and a driver manager finds the one of the library's
/// name. The library exports nothing that another libdipc of the process could take the place of.
#[test]
fn both_entry_points_load() {
    // SAFETY: loading the library runs no code of its own: it has no initializers.
    let library = unsafe { libloading::Library::new(library()) }.unwrap();
    // SAFETY: the symbol is only looked for.
    assert!(unsafe { library.get::<fn()>(b"dipc_version") }.is_err());
    for name in ["AdbcDriverInit", "AdbcDriverDipcInit"] {
        // SAFETY: the symbol is an initialization function of ADBC, which this type is.
        let init = unsafe { library.get::<FFI_AdbcDriverInitFunc>(name.as_bytes()) }.unwrap();
        let driver = ManagedDriver::load_static(&init, AdbcVersion::V110);
        driver
            .unwrap()
            .new_database_with_opts(options("shm:@dipc-adbc-nobody", &[]))
            .unwrap();
        // A host that knows only the first version of ADBC is told so.
        assert!(ManagedDriver::load_static(&init, AdbcVersion::V100).is_err());
    }
    driver()
        .new_database_with_opts(options("shm:@dipc-adbc-nobody", &[]))
        .unwrap();
}

/// Promise of `ExecuteQuery`: the table of the ticket arrives, as SQL text or as a plan's bytes.
#[test]
fn tables_arrive_as_they_were() {
    for server in Serving::all() {
        let mut connection = connect(&server.uri, &[]);
        let results = query(&mut connection, "numbers").execute().unwrap();
        assert_eq!(results.schema(), schema());
        assert_eq!(all(results), table(3));
        let made: Vec<_> = (0..5).map(|n| batch(n, 10)).collect();
        let mut statement = query(&mut connection, "made");
        statement.prepare().unwrap();
        for _ in 0..2 {
            assert_eq!(all(statement.execute().unwrap()), made);
        }
        statement.set_substrait_plan(b"\xff").unwrap();
        assert_eq!(all(statement.execute().unwrap()), table(1));
        assert_eq!(statement.execute_update().unwrap(), None);
    }
}

/// Promise of "Options": `dipc.columns` may name more columns than a request can, which names 4,096.
/// Then rows are counted as ever, and a name that the table lacks is refused as ever.
#[test]
fn statements_name_any_number_of_columns() {
    for server in Serving::all() {
        let mut connection = connect(&server.uri, &[]);
        for count in [4096, 4097, 4200] {
            let wanted = many(count, true);
            let names: Vec<_> = (0..count).rev().map(|it| format!("c{it}")).collect();
            let mut statement = query(&mut connection, "many");
            let mut set = |name: &str, value: &str| statement.set_option(name.into(), value.into());
            set("dipc.columns", &names.join(",")).unwrap();
            set("dipc.offset", "2").unwrap();
            set("dipc.limit", "3").unwrap();
            let unknown = [names.as_slice(), &["d".to_owned()]].concat().join(",");
            let twice = [names.as_slice(), &names[..1]].concat().join(",");
            let error = set("dipc.columns", &twice).unwrap_err();
            assert_eq!(error.status, Status::InvalidArguments, "{error}");
            let results = statement.execute().unwrap();
            assert_eq!(results.schema(), wanted.schema());
            assert_eq!(all(results), [wanted.slice(2, 3)]);
            assert_eq!(statement.execute_schema().unwrap(), *wanted.schema());
            let option = OptionStatement::from("dipc.columns");
            statement
                .set_option(option, unknown.as_str().into())
                .unwrap();
            let error = statement.execute().err().unwrap();
            assert_eq!(error.status, Status::InvalidArguments, "{error}");
            assert!(error.message.contains("\"d\""), "{error}");
        }
    }
}

/// Promise of the crate's page: over shm a result set lies in the server's memory.
#[test]
fn lent_tables_are_not_copied() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let results = all(query(&mut connection, "numbers").execute().unwrap());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for batch in results {
        let data = batch.column(0).to_data();
        let address = data.buffers()[0].as_ptr() as usize;
        let line = maps.lines().find(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [from, to] = [from, to].map(|it| usize::from_str_radix(it, 16).unwrap());
            (from..to).contains(&address)
        });
        let line = line.unwrap();
        assert!(line.contains("/memfd:"), "{line}");
    }
}

/// Promise of `ExecuteSchema` and `GetTableSchema`: of the description, or of the table.
#[test]
fn schemas_come_without_tables() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    for ticket in ["numbers", "made", "endless"] {
        let mut statement = query(&mut connection, ticket);
        assert_eq!(statement.execute_schema().unwrap(), *schema());
        let described = connection.get_table_schema(None, Some(""), ticket);
        assert_eq!(described.unwrap(), *schema());
    }
    let error = connection
        .get_table_schema(None, None, "nothing")
        .unwrap_err();
    assert_eq!(error.status, Status::NotFound, "{error}");
    let error = connection.get_table_schema(Some("main"), None, "numbers");
    assert_eq!(error.unwrap_err().status, Status::NotFound);
    let error = query(&mut connection, "nothing")
        .execute_schema()
        .unwrap_err();
    assert_eq!(error.status, Status::NotFound, "{error}");
}

/// Promise of `ExecutePartitions`: another connection, of another server even, reads each part
/// where it is.
#[test]
fn partitions_are_read_anywhere() {
    let other = Serving::start();
    let server = Serving::beside(&other);
    let mut connection = connect(&server.uri, &[]);
    let result = query(&mut connection, "parts")
        .execute_partitions()
        .unwrap();
    assert_eq!(
        (result.schema, result.rows_affected),
        (schema().as_ref().clone(), -1)
    );
    assert_eq!(result.partitions.len(), 2);
    let made: Vec<_> = (0..5).map(|n| batch(n, 10)).collect();
    for uri in [&server.uri, &other.uri] {
        let reading = connect(uri, &[]);
        let parts = result.partitions.iter();
        let mut parts = parts.map(|part| all(reading.read_partition(part).unwrap()));
        assert_eq!(parts.next().unwrap(), table(3));
        assert_eq!(parts.next().unwrap(), made);
    }
    let whole = query(&mut connection, "numbers")
        .execute_partitions()
        .unwrap();
    assert_eq!(whole.partitions.len(), 1);
    assert_eq!(
        all(connection.read_partition(&whole.partitions[0]).unwrap()),
        table(3)
    );

    // One statement can read all of them.
    let mut statement = query(&mut connection, "parts");
    assert_eq!(all(statement.execute().unwrap()), table(1));
    statement
        .set_option(OptionStatement::from("dipc.parts"), true.into())
        .unwrap();
    let rows: usize = all(statement.execute().unwrap())
        .iter()
        .map(|it| it.num_rows())
        .sum();
    assert_eq!(rows, 60_050);

    let Err(error) = connection.read_partition(b"lineitem") else {
        panic!("bytes that are no partition");
    };
    assert_eq!(error.status, Status::InvalidArguments, "{error}");
}

/// Promise of `Cancel`: it ends a wait for the first answer and a result set under way, and what
/// does not run cannot be cancelled.
#[test]
fn statements_are_cancelled() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let mut statement = query(&mut connection, "silent");
    let handle = statement.get_cancel_handle();
    let error = handle.try_cancel().unwrap_err();
    assert_eq!(error.status, Status::InvalidState, "{error}");

    let begun = Instant::now();
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| statement.execute().map(|_| ()).unwrap_err());
        // Nothing runs until the thread has begun.
        while handle.try_cancel().is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        waiting.join().unwrap()
    });
    assert_eq!(error.status, Status::Cancelled, "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "it ended by its timeout"
    );

    statement.set_sql_query("endless").unwrap();
    let mut results = statement.execute().unwrap();
    results.next().unwrap().unwrap();
    handle.try_cancel().unwrap();
    let error = results.find_map(Result::err).unwrap().to_string();
    assert!(error.contains("cancelled"), "{error}");
    drop(results);
    assert!(handle.try_cancel().is_err());
    assert_eq!(
        all(query(&mut connection, "numbers").execute().unwrap()),
        table(3)
    );

    let [mut first, second] = [(); 2].map(|()| {
        let partition = query(&mut connection, "endless")
            .execute_partitions()
            .unwrap();
        connection.read_partition(&partition.partitions[0]).unwrap()
    });
    first.next().unwrap().unwrap();
    connection.get_cancel_handle().try_cancel().unwrap();
    for results in [first, second] {
        let error = { results }.find_map(Result::err).unwrap().to_string();
        assert!(error.contains("cancelled"), "{error}");
    }
}

/// Promise of the page's errors: status, text, and details.
#[test]
fn errors_keep_their_status_and_text() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let Err(error) = query(&mut connection, "nothing").execute() else {
        panic!("there is no such table");
    };
    assert_eq!(error.status, Status::NotFound, "{error}");
    assert!(
        error.message.contains("nobody has put this table"),
        "{error}"
    );
    let details = error.details.unwrap();
    assert!(details.contains(&("dipc.status".into(), b"DIPC_ERR_NOT_FOUND".to_vec())));

    let mut broken = query(&mut connection, "broken").execute().unwrap();
    let batches = broken.by_ref().take(3).filter(Result::is_ok).count();
    assert_eq!(batches, 3);
    let error = broken.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("the disk is gone"), "{error}");
    let error = query(&mut connection, "broken")
        .execute_update()
        .unwrap_err();
    assert_eq!(error.status, Status::IO, "{error}");

    let Err(error) = query(&mut connect("shm:@dipc-adbc-nobody", &[]), "numbers").execute() else {
        panic!("nobody listens there");
    };
    assert_eq!(error.status, Status::IO, "{error}");
    let Err(error) = query(&mut connect("http://nobody", &[]), "numbers").execute() else {
        panic!("no such scheme");
    };
    let told = [Status::NotImplemented, Status::InvalidArguments];
    assert!(told.contains(&error.status), "{error}");

    let mut limited = connect(&server.uri, &[("dipc.deadline", "0.2")]);
    let Err(error) = query(&mut limited, "silent").execute() else {
        panic!("the server says nothing");
    };
    assert_eq!(error.status, Status::Timeout, "{error}");

    let mut empty = connection.new_statement().unwrap();
    for error in [
        empty.execute().map(|_| ()).unwrap_err(),
        empty.prepare().unwrap_err(),
        empty.execute_schema().map(|_| ()).unwrap_err(),
        empty.execute_partitions().map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.status, Status::InvalidState, "{error}");
    }
    empty.set_sql_query("numbers").unwrap();
    empty.bind(batch(0, 1)).unwrap();
    let Err(error) = empty.execute() else {
        panic!("a query takes no data");
    };
    assert_eq!(error.status, Status::NotImplemented, "{error}");
    assert!(
        error.message.contains("adbc.ingest.target_table"),
        "{error}"
    );
    // The statement is of use again.
    assert_eq!(all(empty.execute().unwrap()), table(3));
    assert_eq!(
        empty.get_parameter_schema().unwrap_err().status,
        Status::NotImplemented
    );
}

/// Promise of "Threads": a result set outlives what it came from, and the driver's last object.
#[test]
fn result_sets_are_independent() {
    let server = Serving::start();
    let mut connection = connect(&server.uri, &[]);
    let mut statement = query(&mut connection, "endless");
    let endless = statement.execute().unwrap();
    statement.set_sql_query("numbers").unwrap();
    let numbers = statement.execute().unwrap();
    drop((statement, connection));
    assert_eq!(all(numbers), table(3));
    for (n, results) in (0..100).zip(endless) {
        assert_eq!(results.unwrap(), batch(n, 1000));
    }
}

/// Promise of "Threads": statements of one connection are used by many threads at once.
#[test]
fn threads_share_a_connection() {
    let server = Serving::start();
    let database = crate::database(&server.uri, &[]);
    let connection = adbc_core::Database::new_connection(&database).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut connection = connection.clone();
            scope.spawn(move || {
                for _ in 0..5 {
                    let results = query(&mut connection, "numbers").execute().unwrap();
                    assert_eq!(all(results), table(3));
                    let types = all(connection.get_table_types().unwrap());
                    assert_eq!(types[0].num_rows(), 1);
                }
            });
        }
    });
    drop((driver(), connection));
}
