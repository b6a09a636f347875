//! Queries that write.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::prelude::SessionContext;
use dipc::Status;
use dipc_datafusion::DipcServer;

use crate::server::Serving;
use crate::{context, numbers, rows, status};

/// A context with a table `new` that the server does not have yet.
fn with_new(uri: &str, columns: &[(&str, DataType)]) -> SessionContext {
    let context = context(uri);
    let fields: Vec<_> = (columns.iter())
        .map(|(name, kind)| Field::new(*name, kind.clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let ticket = format!("new/{}", uri.split(':').next().unwrap());
    let table = DipcServer::new(uri)
        .unwrap()
        .table_with_schema(ticket, schema);
    context.register_table("new", Arc::new(table)).unwrap();
    context
}

fn count(rows: &[RecordBatch]) -> u64 {
    rows[0].column(0).as_primitive::<UInt64Type>().value(0)
}

/// Promise of `INSERT INTO`: the rows are at the server, and the query says how many they were.
#[tokio::test]
async fn inserted_rows_are_read_back() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = with_new(
            uri,
            &[("id", DataType::Int64), ("name", DataType::Utf8View)],
        );
        let error = rows(&context, "SELECT * FROM new").await.unwrap_err();
        assert_eq!(status(&error), Status::NotFound);

        let query = "INSERT INTO new VALUES (1, 'one'), (NULL, 'a name of more than twelve bytes')";
        assert_eq!(count(&rows(&context, query).await.unwrap()), 2);
        let query = "INSERT INTO new SELECT id, 'x' FROM dipc.public.prices WHERE id >= 10";
        assert_eq!(count(&rows(&context, query).await.unwrap()), 990);
        // The statistics are of now, too.
        assert_eq!(numbers(&context, "SELECT count(*) FROM new").await, [992]);
        let query = "SELECT count(*) FROM new WHERE name LIKE 'a name%' AND id IS NULL";
        assert_eq!(numbers(&context, query).await, [1]);
        let query = "INSERT INTO new (name) SELECT name FROM new WHERE false";
        assert_eq!(count(&rows(&context, query).await.unwrap()), 0);
    }
}

/// Promise of `INSERT INTO`: a query that fails leaves no rows. Nor does an overwrite, which is
/// refused by name.
#[tokio::test]
async fn failed_inserts_leave_nothing() {
    let server = Serving::start();
    for uri in &server.uris {
        let context = with_new(uri, &[("n", DataType::Int64)]);
        rows(&context, "INSERT INTO new VALUES (7)").await.unwrap();
        let query = "INSERT INTO new SELECT 10 / (id - 900) FROM dipc.public.prices";
        let error = rows(&context, query).await.unwrap_err();
        assert!(error.to_string().contains("Divide by zero"), "{error}");
        let error = rows(&context, "INSERT OVERWRITE new VALUES (8)")
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains("Overwrite of the table new/"), "{text}");
        assert!(text.contains("use INSERT INTO"), "{text}");
        assert_eq!(numbers(&context, "SELECT n FROM new").await, [7]);
    }
}

/// Promise of `DipcTableProvider`: a table with other columns by now is not read as what it was.
#[tokio::test]
async fn changed_tables_are_refused() {
    let server = Serving::start();
    for uri in &server.uris {
        let before = with_new(uri, &[("n", DataType::Int64)]);
        rows(&before, "INSERT INTO new VALUES (7)").await.unwrap();
        let after = with_new(uri, &[("n", DataType::Utf8)]);
        rows(&after, "INSERT INTO new VALUES ('seven')")
            .await
            .unwrap();
        let error = rows(&before, "SELECT n FROM new").await.unwrap_err();
        assert!(error.to_string().contains("register it again"), "{error}");
        assert_eq!(
            rows(&after, "SELECT n FROM new").await.unwrap()[0].num_rows(),
            1
        );
    }
}
