//! Tables of a server in another process, in queries of DataFusion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

mod filters;
mod inserts;
mod many;
mod server;
mod streams;
mod wide;

use datafusion::arrow::array::{AsArray as _, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{SessionConfig, SessionContext};
use dipc::{GetOptions, Status};
use dipc_datafusion::DipcServer;

use server::{Serving, prices};

/// A context with all tables of the server, as `dipc`.
fn context(uri: &str) -> SessionContext {
    let config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(4);
    let context = SessionContext::new_with_config(config);
    let server = DipcServer::new(uri).unwrap();
    let catalog = server.catalog().with_schema("lists", "lists/");
    context.register_catalog("dipc", std::sync::Arc::new(catalog));
    context
}

async fn rows(context: &SessionContext, query: &str) -> Result<Vec<RecordBatch>> {
    context.sql(query).await?.collect().await
}

/// The text of the answer, as a table of ASCII.
async fn shown(context: &SessionContext, query: &str) -> String {
    let rows = rows(context, query).await.unwrap();
    pretty_format_batches(&rows).unwrap().to_string()
}

/// The whole numbers of the first column.
async fn numbers(context: &SessionContext, query: &str) -> Vec<i64> {
    let rows = rows(context, query).await.unwrap();
    let values = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    rows.iter().flat_map(values).collect()
}

/// The URI as texts have it.
fn bare(uri: &str) -> &str {
    uri.split('?').next().unwrap()
}

/// The status of an error, which its text must not lose on its way.
fn status(error: &DataFusionError) -> Status {
    let DataFusionError::External(inner) = error.find_root() else {
        panic!("no error of dipc: {error}");
    };
    let inner = inner.downcast_ref::<dipc::Error>().unwrap();
    assert!(error.to_string().contains(inner.text()), "{error}");
    inner.status()
}

/// Promise of `DipcTableProvider`: queries see the table, whatever columns and rows they ask for.
#[tokio::test]
async fn queries_read_tables() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        let dipc = DipcServer::new(uri).unwrap();
        dipc.register(&context, "prices", "prices").await.unwrap();
        dipc.register(&context, "names", "lists/names")
            .await
            .unwrap();

        let all = rows(&context, "SELECT * FROM prices ORDER BY id")
            .await
            .unwrap();
        let expected = prices();
        let schema = expected[0].schema();
        let all = concat_batches(&schema, &all).unwrap();
        assert_eq!(all, concat_batches(&schema, &expected).unwrap());

        let query = "SELECT price FROM prices WHERE id % 100 = 7 AND id > 500 ORDER BY 1";
        assert_eq!(
            numbers(&context, query).await,
            [5070, 6070, 7070, 8070, 9070]
        );
        let query = "SELECT id FROM prices LIMIT 3 OFFSET 2";
        assert_eq!(numbers(&context, query).await, [2, 3, 4]);
        let query = "SELECT price, id, price AS p FROM prices WHERE id = 300";
        assert!(
            shown(&context, query)
                .await
                .contains("| 3000  | 300 | 3000 |")
        );
        let query = "SELECT name, price FROM prices JOIN names USING (id) WHERE price > 9900";
        let joined = shown(&context, query).await;
        assert_eq!(joined.matches("| name 99").count(), 3, "{joined}");
        assert!(joined.contains("| name 993 | 9930  |"), "{joined}");
    }
}

/// Promise of `DipcTableProvider`: what the server says of the table serves the planner.
#[tokio::test]
async fn statistics_come_from_the_server() {
    let server = Serving::start();
    let context = context(&server.uris[0]);
    let query = "SELECT count(*) FROM dipc.public.prices";
    assert_eq!(numbers(&context, query).await, [1000]);
    let plan = shown(&context, &format!("EXPLAIN {query}")).await;
    assert!(!plan.contains("DipcScanExec"), "{plan}");

    let query = "SELECT sum(price) FROM dipc.public.prices";
    rows(&context, "SET datafusion.explain.show_statistics = true")
        .await
        .unwrap();
    let plan = shown(&context, &format!("EXPLAIN {query}")).await;
    assert!(
        plan.contains("Rows=Exact(1000), Bytes=Exact(8000)"),
        "{plan}"
    );
    let plan = shown(&context, "EXPLAIN SELECT * FROM dipc.public.prices LIMIT 5").await;
    assert!(plan.contains("Rows=Exact(5)"), "{plan}");
    let ran = shown(&context, &format!("EXPLAIN ANALYZE {query}")).await;
    assert!(ran.contains("output_rows=1.00 K"), "{ran}");
    assert!(ran.contains("bytes_lent="), "{ran}");
    let query = "EXPLAIN FORMAT TREE SELECT id FROM dipc.public.prices LIMIT 5";
    let plan = shown(&context, query).await;
    assert!(plan.contains("prices at shm:@dipc"), "{plan}");
    assert!(plan.contains("fetch: 5"), "{plan}");

    // Of a ticket whose server knows no rows, they are counted.
    let query = "SELECT count(*) FROM dipc.public.ended";
    assert_eq!(numbers(&context, query).await, [1]);
}

/// Promise of `DipcTableProvider`: columns of every type arrive as they were.
#[tokio::test]
async fn all_types_arrive() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        let got = rows(&context, "SELECT * FROM dipc.public.wide")
            .await
            .unwrap();
        let expected = wide::wide();
        let got = &got[0];
        for (number, column) in expected.columns().iter().enumerate() {
            assert_eq!(got.column(number), column, "{}", column.data_type());
        }
        assert_eq!(got.schema().fields(), expected.schema().fields());
        let query = "SELECT c26, c30 FROM dipc.public.wide WHERE c26 = 'short' AND c30 = 'short'";
        assert!(shown(&context, query).await.contains("| short | short |"));
    }
}

/// Promise of `DipcTableProvider`: parts are partitions, unless their order matters.
#[tokio::test]
async fn parts_are_partitions() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        for (table, partitions) in [("parts", 4), ("ordered", 1), ("elsewhere", 4)] {
            let query = format!("SELECT n FROM dipc.public.{table}");
            let plan = context
                .sql(&query)
                .await
                .unwrap()
                .create_physical_plan()
                .await
                .unwrap();
            let described = datafusion::physical_plan::displayable(&*plan)
                .indent(false)
                .to_string();
            assert!(
                described.contains(&format!("parts=4, partitions={partitions}")),
                "{described}"
            );
            let mut got = numbers(&context, &query).await;
            if table != "ordered" {
                got.sort_unstable();
            }
            assert_eq!(got, (0..400).collect::<Vec<_>>(), "{table}");
            let query = format!("SELECT count(*) FROM dipc.public.{table}");
            assert_eq!(numbers(&context, &query).await, [400], "{table}");
            let query = format!("SELECT n FROM dipc.public.{table} LIMIT 150");
            assert_eq!(numbers(&context, &query).await.len(), 150, "{table}");
        }
        rows(&context, "SET datafusion.execution.target_partitions = 2")
            .await
            .unwrap();
        let plan = shown(&context, "EXPLAIN SELECT n FROM dipc.public.parts").await;
        assert!(plan.contains("parts=4, partitions=2"), "{plan}");
        let query = "SELECT sum(n) FROM dipc.public.parts";
        assert_eq!(numbers(&context, query).await, [79_800]);
    }
}

/// Promise of `DipcCatalogProvider`: a catalog shows what the server lists.
#[tokio::test]
async fn catalogs_show_the_servers_tables() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = context(uri);
        let tables = shown(&context, "SHOW TABLES").await;
        assert!(
            tables.contains("| dipc          | public             | prices "),
            "{tables}"
        );
        assert!(
            tables.contains("| dipc          | lists              | names "),
            "{tables}"
        );
        let query = "SELECT count(*) FROM dipc.lists.names WHERE name <> ''";
        assert_eq!(numbers(&context, query).await, [334]);
        let query = "SELECT max(id) FROM dipc.public.\"lists/names\"";
        assert_eq!(numbers(&context, query).await, [999]);

        // As soon as the server has it, the catalog shows it.
        let (new, scheme) = (dipc_server(uri), uri.split(':').next().unwrap());
        let schema = prices()[0].schema();
        let table = new.table_with_schema(format!("new_{scheme}"), schema);
        context
            .register_table("new", std::sync::Arc::new(table))
            .unwrap();
        rows(&context, "INSERT INTO new VALUES (1, 2)")
            .await
            .unwrap();
        let tables = shown(&context, "SHOW TABLES").await;
        assert!(tables.contains(&format!("| new_{scheme} ")), "{tables}");
        let query = format!("SELECT price FROM dipc.public.new_{scheme}");
        assert_eq!(numbers(&context, &query).await, [2]);

        let columns = "SELECT data_type FROM information_schema.columns WHERE column_name = 'c26'";
        assert!(shown(&context, columns).await.contains("Utf8View"));
    }
}

fn dipc_server(uri: &str) -> DipcServer {
    DipcServer::new(uri).unwrap()
}

/// Promise of `DipcServer::table`: the error of an unknown ticket names it and its server.
#[tokio::test]
async fn unknown_tables_are_named() {
    let server = Serving::start();
    for uri in &server.uris {
        let error = dipc_server(uri).table("nothing").await.unwrap_err();
        assert_eq!(status(&error), Status::NotFound);
        let text = error.to_string();
        assert!(
            text.contains(&format!("the table nothing at {}: ", bare(uri))),
            "{text}"
        );

        let context = context(uri);
        let error = rows(&context, "SELECT * FROM dipc.public.nothing")
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("'dipc.public.nothing' not found"),
            "{error}"
        );
    }
    let nobody = "shm:@dipc-datafusion-nobody";
    let error = dipc_server(nobody).table("prices").await.unwrap_err();
    assert_eq!(status(&error), Status::Unreachable);
    let context = context(nobody);
    let error = rows(&context, "SELECT * FROM dipc.public.prices")
        .await
        .unwrap_err();
    assert!(error.to_string().contains(nobody), "{error}");
    // It cannot fail: it shows what it knows.
    let tables = shown(&context, "SHOW TABLES").await;
    assert!(!tables.contains("| dipc          | public "), "{tables}");
}

/// Promise of `DipcServer::get_options`: the requests of scans have the caller's options.
#[tokio::test]
async fn options_reach_the_server() {
    let server = Serving::start();
    let context = SessionContext::new();
    let options = GetOptions::new().header("k", "value").unwrap();
    let dipc = dipc_server(&server.uris[1]).get_options(options);
    assert!(!format!("{dipc:?}").contains("value"), "{dipc:?}");
    dipc.register(&context, "header", "header").await.unwrap();
    assert!(
        shown(&context, "SELECT k FROM header")
            .await
            .contains("| value |")
    );
}
