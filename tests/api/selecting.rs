//! Columns and rows of a get, from a server in another process.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use dipc::{Client, GetOptions, Status};
use futures::TryStreamExt as _;

use crate::serving::Serving;
use crate::{schema, table};

/// Promise of `GetOptions::columns` and `rows`: the same columns and rows come as arrow-rs selects,
/// by both forms of the call; rows by every kind of range.
#[test]
fn a_get_selects() {
    let whole = concat_batches(&schema(), &table(3)).unwrap();
    for server in Serving::all() {
        let client = Client::new().unwrap();
        let options = || GetOptions::new().columns(["text"]).unwrap();
        let cases = [
            (options().rows(900..2_100), (900, 1_200)),
            (options().rows(2_990..=2_995), (2_990, 6)),
            (options().rows(2_999..), (2_999, 1)),
            (options().rows(..5), (0, 5)),
            (options().rows(..), (0, 3_000)),
            (options().rows(7_000..), (3_000, 0)),
            (options().rows(5..5), (5, 0)),
        ];
        for (options, (first, rows)) in cases {
            let expected = whole.project(&[1]).unwrap().slice(first, rows);
            let reader = client.get_with(&server.uri, "published", &options).unwrap();
            let got: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
            assert_eq!(concat_batches(&expected.schema(), &got).unwrap(), expected);
            let task = futures::executor::block_on(async {
                let got = client
                    .get_async_with(&server.uri, "published", &options)
                    .await?;
                got.try_collect::<Vec<_>>().await
            });
            assert_eq!(task.unwrap(), got);
        }
    }
}

/// Promise of `GetOptions::columns`: a name that is no column's fails the get; a name twice fails
/// at once.
#[test]
fn columns_that_are_not_there_are_refused() {
    for server in Serving::all() {
        let options = GetOptions::new().columns(["text", "price"]).unwrap();
        let refused = Client::new()
            .unwrap()
            .get_with(&server.uri, "published", &options);
        let error = refused.map(drop).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(
            error
                .text()
                .contains("\"price\"; the table has \"n\", \"text\""),
            "{error}"
        );
    }
    let error = GetOptions::new().columns(["n", "n"]).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

/// Promise of `Request::selection`: the host sees it, in the authorizer and in its provider.
#[test]
fn a_host_sees_the_selection_and_may_take_it() {
    let server = dipc::Server::builder()
        .authorizer(|request| {
            assert_eq!(request.selection().columns().unwrap(), ["text"]);
            Ok(())
        })
        .build()
        .unwrap();
    let own = table(1)[0].project(&[1]).unwrap().slice(3, 2);
    let given = own.clone();
    server
        .serve("t", move |request: &dipc::Request<'_>| {
            assert_eq!(request.selection().first_row(), 3);
            assert_eq!(request.selection().rows(), Some(2));
            request.take_selection()?;
            Ok(dipc::Batches::of(given.schema(), [given.clone()]))
        })
        .unwrap();
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    let options = GetOptions::new().columns(["text"]).unwrap().rows(3..5);
    let reader = Client::new().unwrap().get_with(uri, "t", &options).unwrap();
    let got: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
    assert_eq!(got, [own]);
}
