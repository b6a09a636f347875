//! What a connection says of the driver and of the server's tables.

use std::collections::{BTreeMap, HashSet};

use adbc_core::error::Status;
use adbc_core::options::{
    InfoCode, ObjectDepth, OptionConnection, OptionDatabase, OptionStatement,
};
use adbc_core::schemas::{GET_INFO_SCHEMA, GET_OBJECTS_SCHEMA, GET_TABLE_TYPES_SCHEMA};
use adbc_core::{Connection as _, Database as _, Driver as _, Optionable as _, Statement as _};
use adbc_driver_manager::ManagedConnection;
use arrow::array::{
    Array as _, AsArray as _, BooleanArray, Int64Array, RecordBatchReader as _, StringArray,
};
use arrow::datatypes::{Int32Type, UInt32Type};

use crate::serving::Serving;
use crate::{all, batch, connect, database, driver, options, query};

fn info(connection: &ManagedConnection, codes: Option<HashSet<InfoCode>>) -> BTreeMap<u32, String> {
    let results = connection.get_info(codes).unwrap();
    assert_eq!(results.schema(), *GET_INFO_SCHEMA);
    let [batch] = <[_; 1]>::try_from(all(results)).unwrap();
    let names = batch.column(0).as_primitive::<UInt32Type>();
    let values = batch.column(1).as_union();
    let text = |row| {
        let value = values.value(row);
        let any = value.as_any();
        if let Some(texts) = any.downcast_ref::<StringArray>() {
            texts.value(0).to_owned()
        } else if let Some(flags) = any.downcast_ref::<BooleanArray>() {
            flags.value(0).to_string()
        } else {
            any.downcast_ref::<Int64Array>()
                .unwrap()
                .value(0)
                .to_string()
        }
    };
    (0..batch.num_rows())
        .map(|row| (names.value(row), text(row)))
        .collect()
}

/// Promise of `GetInfo`: all that is known, or what is asked for; unknown codes are left out.
#[test]
fn the_driver_names_itself() {
    let server = Serving::start();
    let connection = connect(&server.uri, &[]);
    let known = info(&connection, None);
    assert_eq!(known.len(), 9);
    assert_eq!(known[&u32::from(&InfoCode::VendorName)], "libdipc");
    assert_eq!(
        known[&u32::from(&InfoCode::DriverVersion)],
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(known[&u32::from(&InfoCode::VendorSql)], "false");
    assert_eq!(known[&u32::from(&InfoCode::DriverAdbcVersion)], "1001000");
    let arrow = &known[&u32::from(&InfoCode::DriverArrowVersion)];
    assert!(arrow.starts_with("v60."), "{arrow}");
    let codes = HashSet::from([InfoCode::DriverName, InfoCode::Other(12_345)]);
    let some = info(&connection, Some(codes));
    assert_eq!(some.keys().copied().collect::<Vec<_>>(), [100]);

    let types = connection.get_table_types().unwrap();
    assert_eq!(types.schema(), *GET_TABLE_TYPES_SCHEMA);
    assert_eq!(all(types)[0].column(0).as_string::<i32>().value(0), "TABLE");
}

/// The tables that there are with their columns; `None`: columns are not given.
type Tables = BTreeMap<String, Option<Vec<(i32, String, String)>>>;

/// The only catalog's only schema; `None`: there is none, or it has no list of tables.
fn tables(results: impl arrow::array::RecordBatchReader) -> Option<Tables> {
    assert_eq!(results.schema(), *GET_OBJECTS_SCHEMA);
    let [batch] = <[_; 1]>::try_from(all(results)).unwrap();
    if batch.num_rows() == 0 {
        return None;
    }
    assert_eq!(batch.num_rows(), 1);
    assert!(batch.column(0).is_null(0));
    let schemas = batch.column(1).as_list::<i32>();
    if schemas.is_null(0) || schemas.value(0).is_empty() {
        return None;
    }
    let schemas = schemas.value(0);
    assert!(schemas.as_struct().column(0).is_null(0));
    let tables = schemas.as_struct().column(1).as_list::<i32>();
    if tables.is_null(0) {
        return None;
    }
    let tables = tables.value(0);
    let tables = tables.as_struct();
    let names = tables.column(0).as_string::<i32>();
    let (columns, constraints) = (tables.column(2).as_list::<i32>(), tables.column(3));
    let row = |row| {
        assert_eq!(tables.column(1).as_string::<i32>().value(row), "TABLE");
        assert_eq!(constraints.is_null(row), columns.is_null(row));
        let columns = columns.is_valid(row).then(|| {
            let columns = columns.value(row);
            let columns = columns.as_struct();
            let column = |name| columns.column_by_name(name).unwrap();
            let names = column("column_name").as_string::<i32>();
            let places = column("ordinal_position").as_primitive::<Int32Type>();
            let nullable = column("xdbc_is_nullable").as_string::<i32>();
            (0..columns.len())
                .map(|it| {
                    (
                        places.value(it),
                        names.value(it).into(),
                        nullable.value(it).into(),
                    )
                })
                .collect()
        });
        (names.value(row).to_owned(), columns)
    };
    Some((0..tables.len()).map(row).collect())
}

/// Promise of `GetObjects`: each depth has what ADBC says, and filters are patterns.
#[test]
fn tables_are_listed() {
    let server = Serving::start();
    let connection = connect(&server.uri, &[]);
    let get = |depth, catalog, schema, table, types: Option<Vec<&str>>, column| {
        tables(
            connection
                .get_objects(depth, catalog, schema, table, types, column)
                .unwrap(),
        )
    };
    let names = |tables: Option<Tables>| tables.unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(
        get(ObjectDepth::Catalogs, None, None, None, None, None),
        None
    );
    assert_eq!(
        get(ObjectDepth::Schemas, None, None, None, None, None),
        None
    );
    let found = get(ObjectDepth::Tables, None, None, None, None, None).unwrap();
    assert!(found.values().all(Option::is_none));
    // The table whose ticket is no text is not among them.
    assert_eq!(
        names(Some(found)),
        [
            "broken", "endless", "headers", "made", "many", "numbers", "parts", "silent"
        ]
    );
    let like = |pattern| {
        names(get(
            ObjectDepth::Tables,
            None,
            None,
            Some(pattern),
            None,
            None,
        ))
    };
    assert_eq!(like("%en_%"), ["endless", "silent"]);
    assert_eq!(like("m_de"), ["made"]);
    assert_eq!(like("nothing"), [""; 0]);

    let found = get(
        ObjectDepth::All,
        Some(""),
        Some("%"),
        Some("numbers"),
        None,
        None,
    )
    .unwrap();
    let number = (1, "number".to_owned(), "NO".to_owned());
    let text = (2, "text".to_owned(), "YES".to_owned());
    assert_eq!(found["numbers"], Some(vec![number, text.clone()]));
    let found = get(
        ObjectDepth::All,
        None,
        None,
        None,
        Some(vec!["VIEW", "TABLE"]),
        Some("te%"),
    );
    let found = found.unwrap();
    assert_eq!(found["numbers"], Some(vec![text]));
    // A table that is made on request is not made to find its columns.
    assert_eq!(found["endless"], Some(vec![]));

    let views = get(ObjectDepth::All, None, None, None, Some(vec!["VIEW"]), None);
    assert_eq!(views, Some(Tables::new()));
    assert_eq!(
        get(ObjectDepth::Tables, Some("main"), None, None, None, None),
        None
    );
    assert_eq!(
        get(ObjectDepth::Tables, None, Some("main"), None, None, None),
        None
    );
}

/// Promise of the tables of options: each object has its own values and inherits the others.
#[test]
fn options_are_inherited() {
    let server = Serving::start();
    let options = [("dipc.header.k", "v"), ("dipc.deadline", "60")];
    let database = database(&server.uri, &options);
    let key = |name: &str| OptionConnection::from(name);
    let mut connection = database.new_connection_with_opts([(key("dipc.header.k"), "w".into())]);
    let connection = connection.as_mut().unwrap();
    assert_eq!(
        database.get_option_string("uri".into()).unwrap(),
        server.uri
    );
    assert_eq!(
        database.get_option_string("dipc.header.k".into()).unwrap(),
        "v"
    );
    assert_eq!(
        connection.get_option_bytes(key("dipc.header.k")).unwrap(),
        b"w"
    );
    assert_eq!(connection.get_option_int(key("dipc.deadline")).unwrap(), 60);
    let mut statement = query(connection, "headers");
    let double = statement.get_option_double("dipc.deadline".into()).unwrap();
    assert!((double - 60.0).abs() < f64::EPSILON);
    statement
        .set_option("dipc.header.own".into(), b"\xff".into())
        .unwrap();
    let [sent] = <[_; 1]>::try_from(all(statement.execute().unwrap())).unwrap();
    let sent = sent
        .column(0)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect::<Vec<_>>();
    assert_eq!(sent, ["k=w", "own=\\xff"]);
    assert!(
        connection
            .get_option_string(key("dipc.header.own"))
            .is_err()
    );

    assert_eq!(
        connection
            .get_option_string(OptionConnection::AutoCommit)
            .unwrap(),
        "true"
    );
    connection
        .set_option(OptionConnection::AutoCommit, true.into())
        .unwrap();
    for (option, value) in [
        (OptionConnection::AutoCommit, "false"),
        (OptionConnection::CurrentCatalog, "main"),
        (OptionConnection::CurrentSchema, "main"),
        (
            OptionConnection::IsolationLevel,
            "adbc.connection.transaction.isolation.snapshot",
        ),
        (key("dipc.nothing"), "1"),
        (key("adbc.nothing"), "1"),
        (key("dipc.tls.ca"), "/etc/ca.pem"),
    ] {
        let error = connection.set_option(option, value.into()).unwrap_err();
        assert_eq!(error.status, Status::NotImplemented, "{error}");
    }
    for option in [
        OptionConnection::CurrentCatalog,
        key("dipc.nothing"),
        key("dipc.token"),
    ] {
        let error = connection.get_option_string(option).unwrap_err();
        assert_eq!(error.status, Status::NotFound, "{error}");
    }
    assert_eq!(
        connection.commit().unwrap_err().status,
        Status::InvalidState
    );
    assert_eq!(
        connection.rollback().unwrap_err().status,
        Status::InvalidState
    );
    let Err(error) = connection.get_statistic_names() else {
        panic!("there are no statistics");
    };
    assert_eq!(error.status, Status::NotImplemented);
    let incremental = OptionStatement::Incremental;
    let error = statement.set_option(incremental, true.into()).unwrap_err();
    assert_eq!(error.status, Status::NotImplemented);
}

/// Promise of the tables of options: a database says what it cannot use.
#[test]
fn databases_check_their_options() {
    for (others, status) in [
        (("dipc.nothing", "1"), Status::NotImplemented),
        (("username", "ada"), Status::NotImplemented),
        (("dipc.deadline", "soon"), Status::InvalidArguments),
        (("dipc.tls.key", "/k.pem"), Status::InvalidArguments),
        (("dipc.max_idle", "-1"), Status::InvalidArguments),
        (("dipc.any_user", "maybe"), Status::InvalidArguments),
        (("dipc.setting.tcp.nothing", "1"), Status::InvalidArguments),
        (("dipc.ingest.modes", "upsert"), Status::InvalidArguments),
    ] {
        let made = driver().new_database_with_opts(options("shm:@a", &[others]));
        let error = made.err().unwrap();
        assert_eq!(error.status, status, "{error}");
        let name = others.0.rsplit('.').next().unwrap();
        assert!(error.message.contains(name), "{error}");
    }
    let error = driver().new_database().err().unwrap();
    assert_eq!(error.status, Status::InvalidArguments);
    assert!(error.message.contains("uri"), "{error}");

    let all = [
        ("dipc.max_idle", "2"),
        ("dipc.idle_timeout", "5"),
        ("dipc.any_user", "false"),
        ("dipc.setting.tcp.keepalive", "30"),
    ];
    let mut database = database("shm:@a", &all);
    assert_eq!(database.get_option_int("dipc.max_idle".into()).unwrap(), 2);
    database
        .set_option("dipc.deadline".into(), 1.5.into())
        .unwrap();
    for late in [OptionDatabase::Uri, "dipc.max_idle".into()] {
        let error = database.set_option(late, "3".into()).unwrap_err();
        assert_eq!(error.status, Status::InvalidState, "{error}");
    }
    // A connection that nobody has asked anything of does not look for its server.
    let mut connection = database.new_connection().unwrap();
    let mut statement = query(&mut connection, "numbers");
    statement.bind(batch(0, 1)).unwrap();
}
