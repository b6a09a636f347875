//! What functions do where they are allowed.

use arrow::array::{Array as _, AsArray as _};
use dipc::{GetOptions, Headers, PutOptions, Status};
use dipc_functions::Message;
use futures::TryStreamExt as _;

use crate::serving::Serving;
use crate::{
    LARGE, ROWS, above, batch, batch_of, client, filter, module, numbers, read, schema, table,
};

/// Promise of `Message::get`: the server's table comes as the function makes it, of published tables
/// and of providers; columns and rows are those of the function's output.
#[test]
fn a_get_brings_what_the_function_makes_of_a_table() {
    for server in Serving::all("any") {
        let client = client();
        for ticket in ["published", "provided"] {
            let got = read(filter(2500).get(&client, &server.uri, ticket).unwrap());
            assert_eq!(numbers(&got), above(2500, 3));
            let options = GetOptions::new().columns(["n"]).unwrap().rows(5..25);
            let message = filter(10);
            let reader = message.get_with(&client, &server.uri, ticket, &options);
            let got = read(reader.unwrap());
            assert_eq!(numbers(&got), above(10, 3)[5..25]);
            assert_eq!(got[0].num_columns(), 1);
        }
        let error = filter(1).get(&client, &server.uri, "absent").map(drop);
        let error = error.unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        assert!(error.text().contains("no such table"), "{error}");
    }
}

/// Promise of `enable`: large batches of an arena, which a sandbox maps, come to a function as others
/// do, and stay as they were.
#[test]
fn a_function_reads_large_batches_of_an_arena() {
    let bound = LARGE - 1000;
    for server in Serving::all("any") {
        let client = client();
        let whole = batch_of(0, LARGE);
        for _ in 0..2 {
            let got = read(filter(bound).get(&client, &server.uri, "large").unwrap());
            let wanted: Vec<_> = (bound + 1..LARGE).filter(|n| n % 10 != 9).collect();
            assert_eq!(numbers(&got), [wanted.clone(), wanted].concat());
            let last = got[1].column(1).as_string::<i32>();
            let text = format!("row {}", LARGE - 1 - i64::from((LARGE - 1) % 10 == 9));
            assert_eq!(last.value(last.len() - 1), text);
        }
        let after = read(client.get(&server.uri, "large").unwrap());
        assert_eq!(after, [whole.clone(), whole.slice(8, whole.num_rows() - 8)]);
    }
}

/// Promise of `Message`: the code goes where it lacks, once; then the headers of a plain get are
/// enough.
#[test]
fn the_code_goes_where_it_lacks() {
    for server in Serving::all("filter") {
        let client = client();
        let mut headers = Headers::new();
        let hash = module("filter").hash();
        headers
            .add("function", format!("call {hash} keep"))
            .unwrap();
        headers.add("function-arguments", "n>2900").unwrap();
        let options = GetOptions::new().headers(headers);
        let lacks = client
            .get_with(&server.uri, "published", &options)
            .map(drop);
        let lacks = lacks.unwrap_err();
        assert_eq!(lacks.status(), Status::NotFound);
        assert!(lacks.text().contains(&hash.to_string()), "{lacks}");

        let got = read(filter(2900).get(&client, &server.uri, "published").unwrap());
        assert_eq!(numbers(&got), above(2900, 3));
        let again = client.get_with(&server.uri, "published", &options).unwrap();
        assert_eq!(read(again), got);
        // A client that sends what is there is told so, as of a success.
        module("filter")
            .send(&client, &server.uri, &PutOptions::new(), &Headers::new())
            .unwrap();
    }
}

/// Promise of `Message::put`: the host gets the table as the function makes it.
#[test]
fn a_put_goes_through_the_function() {
    for server in Serving::all("any") {
        let client = client();
        let sent = filter(1500).put(&client, &server.uri, "stored", table(3), &schema());
        assert_eq!(sent.unwrap(), 3);
        let stored = read(client.get(&server.uri, "stored").unwrap());
        assert_eq!(numbers(&stored), above(1500, 3));
    }
}

/// Promise of `Message::exchange`: each batch is answered as it comes.
#[test]
fn an_exchange_is_answered_batch_by_batch() {
    for server in Serving::all("any") {
        let client = client();
        let options = (&PutOptions::new(), &GetOptions::new());
        let message = filter(2_500);
        let (mut put, mut answers) = message
            .exchange(&client, &server.uri, &schema(), options)
            .unwrap();
        for index in 3..6 {
            put.push(batch(index * ROWS)).unwrap();
            let answer = answers.next_batch().unwrap().unwrap();
            let expected: Vec<i64> = above(2_500, 6)
                .into_iter()
                .filter(|n| n / ROWS == index)
                .collect();
            assert_eq!(numbers(&[answer]), expected);
        }
        assert_eq!(put.finish().unwrap(), 3);
        assert!(answers.next_batch().unwrap().is_none());
    }
}

/// Promise of `Message::call` and `run`: a function without a table gives bytes, or batches.
#[test]
fn a_function_runs_alone() {
    for server in Serving::all("any") {
        let client = client();
        let reverse = Message::new(&module("words"), "reverse", "añb".as_bytes());
        assert_eq!(
            reverse.call(&client, &server.uri).unwrap(),
            "bña".as_bytes()
        );
        let range = Message::new(&module("numbers"), "range", b"10000");
        let got = read(range.run(&client, &server.uri).unwrap());
        let all: Vec<i64> = (0..10_000).collect();
        assert_eq!(numbers(&got), all);
        let error = range.call(&client, &server.uri).unwrap_err();
        assert!(error.text().contains("Message::run"), "{error}");
    }
}

/// Promise of `Message::get_async`: as `get`, in a task.
#[test]
fn a_task_awaits_the_result() {
    for server in Serving::all("any") {
        let client = client();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let got = runtime.block_on(async {
            let message = filter(2_000);
            let options = GetOptions::new();
            let reader = message
                .get_async(&client, &server.uri, "provided", &options)
                .await?;
            reader.try_collect::<Vec<_>>().await
        });
        assert_eq!(numbers(&got.unwrap()), above(2_000, 3));
    }
}

/// Promise of `Message`: the function's own text comes to the client, and the server goes on.
#[test]
fn a_function_says_why_it_fails() {
    for server in Serving::all("any") {
        let client = client();
        let wrong = Message::new(&module("filter"), "keep", b"absent>1");
        for _ in 0..3 {
            let error = wrong.get(&client, &server.uri, "published").map(drop);
            let error = error.unwrap_err();
            assert_eq!(error.status(), Status::Provider);
            assert!(error.text().contains("absent"), "{error}");
        }
        let unknown = Message::new(&module("filter"), "fly", b"");
        let error = unknown.get(&client, &server.uri, "published").map(drop);
        assert!(error.unwrap_err().text().contains("fly"));
        let got = read(
            filter(2_990)
                .get(&client, &server.uri, "published")
                .unwrap(),
        );
        assert_eq!(numbers(&got), above(2_990, 3));
    }
}
