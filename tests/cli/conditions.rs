//! `get --where`: rows that pass a condition of SQL.

use std::path::Path;

use arrow::array::{Array as _, AsArray as _, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Date32Type, Decimal128Type};
use arrow::ipc::reader::StreamReader;
use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedSchema, schema_to_c};
use dipc::server::{HostProvider, ServerOptions, ServerRequest};

use crate::support::*;

/// The rows that `get` writes.
fn get(uri: &str, ticket: &str, more: &[&str]) -> RecordBatch {
    let output = run(&[&["get", uri, ticket, "--output", "-"][..], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let reader = StreamReader::try_new(&output.stdout[..], None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

/// Promise of `--where`: of a table of TPC-H the server sends the rows alone that pass, over shm and
/// tcp; the columns and the range come after it.
#[test]
fn rows_that_pass_are_sent_alone() {
    const CONDITION: &str = "l_quantity > 45.5 AND l_shipmode LIKE '%AIR%' AND \
        (l_shipdate BETWEEN DATE '1994-01-01' AND '1994-12-31' OR l_tax = 0.08) \
        AND l_returnflag NOT IN ('N', 'X')";
    let tables = ["--tpch", "lineitem", "--scale", "0.01"];
    let shm = Server::start(&tables);
    let tcp = Server::start_as(dipc(), "tcp:", "tcp://127.0.0.1:0", &tables);
    let whole = get(&shm.uri, "lineitem", &[]);
    let decimals = |name| {
        let column = whole.column_by_name(name).unwrap();
        column.as_primitive::<Decimal128Type>().clone()
    };
    let (quantity, tax) = (decimals("l_quantity"), decimals("l_tax"));
    let texts = |name| {
        let column = whole.column_by_name(name).unwrap();
        let plain = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap();
        plain.as_string::<i32>().clone()
    };
    let (mode, flag) = (texts("l_shipmode"), texts("l_returnflag"));
    let date = whole.column_by_name("l_shipdate").unwrap();
    let date = date.as_primitive::<Date32Type>();
    let passes = |row: usize| {
        quantity.value(row) > 4550
            && mode.value(row).contains("AIR")
            && ((8766..=9130).contains(&date.value(row)) || tax.value(row) == 8)
            && flag.value(row) != "N"
    };
    let mask = BooleanArray::from_iter((0..whole.num_rows()).map(|row| Some(passes(row))));
    let expected = filter_record_batch(&whole, &mask).unwrap();
    assert!((1..whole.num_rows() / 50).contains(&expected.num_rows()));
    for server in [&shm, &tcp] {
        let passed = get(&server.uri, "lineitem", &["--where", CONDITION]);
        assert_eq!(passed, expected);
        let more = [
            "--columns",
            "l_tax,l_orderkey",
            "--offset",
            "3",
            "--limit",
            "5",
        ];
        let part = get(
            &server.uri,
            "lineitem",
            &[&["--where", CONDITION][..], &more].concat(),
        );
        assert_eq!(part, expected.project(&[7, 0]).unwrap().slice(3, 5));
    }
    let received = |more: &[&str]| {
        let get = ["get", &tcp.uri, "lineitem", "--json"];
        json(&[&get[..], more].concat())["bytes_received"]
            .as_u64()
            .unwrap()
    };
    assert!(received(&["--where", CONDITION]) < received(&[]) / 20);
}

/// Promise of `--where`: nulls, booleans and odd names are found in a file's table.
#[test]
fn files_are_filtered_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    let whole = table(3000);
    write_arrow(Path::new(&path), &whole);
    let server = Server::start(&[&path, "--batch-rows", "700"]);
    let numbers = "number >= 690 AND \"number\" < 710";
    let passed = get(&server.uri, "t", &["--where", numbers]);
    assert_eq!(passed.num_rows(), 20);
    let negated = get(&server.uri, "t", &["--where", "-number = -3"]);
    assert_eq!(negated.num_rows(), 1);
    let words = whole.column_by_name("word").unwrap();
    let without = get(&server.uri, "t", &["--where", "word IS NULL"]);
    assert_eq!(without.num_rows(), words.null_count());
}

/// Promise of `--where`: what it cannot be is told before the server is asked; what does not fit
/// the table names the column.
#[test]
fn conditions_that_cannot_be_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(30));
    let server = Server::start(&[&path]);
    let told = |code, uri: &str, condition| failure(code, &["get", uri, "t", "--where", condition]);
    for (condition, expected) in [
        ("number >", "Expected"),
        ("abs(number) > 1", "functions"),
        ("number IN (SELECT 1)", "sub-queries"),
    ] {
        let said = told(2, "shm:@nobody-here", condition);
        assert!(said.contains(expected), "{said}");
    }
    for (condition, expected) in [
        (
            "Number > 1",
            "no column has the name \"Number\"; there are \"number\"",
        ),
        ("number = 'one'", "'one' is no value of type"),
        ("number / 0 > 1", "zero"),
    ] {
        let said = told(1, &server.uri, condition);
        assert!(said.contains(expected), "{said}");
    }
}

/// A table without rows, of which nothing is known before it is asked for.
struct Unknown;

impl HostProvider for Unknown {
    fn open(&self, _: &ServerRequest) -> dipc::Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(Empty)))
    }
}

struct Empty;

impl ArrayReader for Empty {
    fn schema(&mut self) -> dipc::Result<OwnedSchema> {
        schema_to_c(&table(1).schema())
    }

    fn next(&mut self) -> dipc::Result<Option<OwnedDeviceArray>> {
        Ok(None)
    }

    fn device_type(&self) -> i32 {
        1
    }
}

/// Promise of `--where`: a server that does not tell the columns is named as the cause.
#[test]
fn the_columns_must_be_known() {
    let server = dipc::server::ServerHandle::new(ServerOptions::default()).unwrap();
    let served = server.serve(b"t", Box::new(Unknown));
    served.map_err(|(error, _)| error).unwrap();
    let uri = server.listen(&address()).unwrap();
    let said = failure(1, &["get", &uri, "t", "--where", "number > 1"]);
    assert!(said.contains("--where needs the table's columns"), "{said}");
}
