//! Middleware: a server in the same process, which its clients reach by a transport.

use std::sync::{Arc, Mutex};

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use dipc::{
    Batches, Client, Error, GetOptions, Headers, Provider, PutOptions, Reader, Request, Result,
    Server, Status, Verb,
};

use crate::{PLACES, batch, schema, table};

/// Keeps every second row of a table on its way, and says the header's value on its way back.
struct Halving;

fn halved(table: Reader) -> Batches {
    let halves = table.map(|batch| {
        let batch = batch?;
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        let even = numbers.iter().map(|n| n.map(|n| n % 2 == 0)).collect();
        arrow::compute::filter_record_batch(&batch, &even)
    });
    Batches::new(schema(), halves)
}

impl Provider for Halving {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        match request.headers().get("halve") {
            Some(b"nothing") => Ok(Batches::of(schema(), table(1))),
            _ => Ok(halved(request.forward_get()?)),
        }
    }

    fn put(&self, request: &Request<'_>, table: Reader) -> Result<()> {
        request.forward_put(halved(table))
    }

    fn exchange(&self, request: &Request<'_>, table: Reader) -> Result<Batches> {
        Ok(Batches::from(request.forward_exchange(halved(table))?))
    }
}

/// Keeps what clients put, gives back what they exchange, and has one table.
#[derive(Default, Clone)]
struct Host(Arc<Mutex<Vec<RecordBatch>>>);

impl Provider for Host {
    fn get(&self, request: &Request<'_>) -> Result<Batches> {
        assert!(request.selection().is_all(), "the middleware's selection");
        match request.ticket() {
            b"table" => Ok(Batches::of(schema(), table(3))),
            b"broken" => {
                let broken = Err(Error::new(Status::OutOfResources, "the disk is full"));
                Ok(Batches::new(schema(), vec![Ok(batch(0, 10)), broken]))
            }
            _ => Err(Error::new(Status::NotFound, "no such table here")),
        }
    }

    fn accept(&self, request: &Request<'_>) -> Result<()> {
        match request.ticket() {
            b"full" => Err(Error::new(Status::OutOfResources, "the disk is full")),
            _ => Ok(()),
        }
    }

    fn put(&self, request: &Request<'_>, mut table: Reader) -> Result<()> {
        match request.ticket() {
            b"unread" => return Ok(()),
            b"partly" => return table.next_batch().map(drop),
            _ => {}
        }
        let batches: Vec<_> = table.collect::<Result<_, _>>().unwrap();
        self.0.lock().unwrap().extend(batches);
        Ok(())
    }

    fn exchange(&self, request: &Request<'_>, table: Reader) -> Result<Batches> {
        assert_eq!(request.verb(), Verb::Exchange);
        Ok(Batches::from(table))
    }
}

fn with_middleware(place: &str, host: &Host) -> (Server, String) {
    let server = Server::new().unwrap();
    server.publish("published", &schema(), table(3)).unwrap();
    server.handler(host.clone()).unwrap();
    server.middleware("halve", Halving).unwrap();
    let place = match place.strip_suffix('-') {
        Some(name) => {
            let unique = std::ptr::from_ref(host).addr();
            format!("{name}-middleware-{}-{unique}", std::process::id())
        }
        None => place.to_owned(),
    };
    let uri = server.listen(&place).unwrap();
    (server, uri)
}

fn headers(value: &str) -> Headers {
    let mut headers = Headers::new();
    headers.add("halve", value).unwrap();
    headers
}

fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    let columns = batches
        .iter()
        .map(|batch| batch.column(0).as_primitive::<Int64Type>());
    columns
        .flat_map(|column| column.values().to_vec())
        .collect()
}

fn evens(below: i64) -> Vec<i64> {
    (0..below).step_by(2).collect()
}

/// Promise of `Server::middleware`: gets with the header go through it, of published tables and of
/// the handler's, and the library selects of the middleware's rows; gets without the header do not.
#[test]
fn a_get_goes_through_the_middleware() {
    for place in PLACES {
        let host = Host::default();
        let (_server, uri) = with_middleware(place, &host);
        let client = Client::new().unwrap();
        for ticket in ["published", "table"] {
            let get = |options: &GetOptions| {
                let reader = client.get_with(&uri, ticket, options).unwrap();
                reader.collect::<Result<Vec<_>, _>>().unwrap()
            };
            assert_eq!(numbers(&get(&GetOptions::new())).len(), 3000);
            let options = GetOptions::new().headers(headers("yes"));
            assert_eq!(numbers(&get(&options)), evens(3000));
            let options = options.columns(["n"]).unwrap().rows(10..20);
            let selected = get(&options);
            assert_eq!(numbers(&selected), evens(3000)[10..20]);
            assert_eq!(selected[0].num_columns(), 1);
            let options = GetOptions::new().headers(headers("nothing"));
            assert_eq!(get(&options), table(1));
        }
    }
}

/// Promise of `Request::forward_put` and `forward_exchange`: the handler gets the middleware's table
/// in the place of the client's.
#[test]
fn tables_of_clients_go_through_the_middleware() {
    for place in PLACES {
        let host = Host::default();
        let (_server, uri) = with_middleware(place, &host);
        let client = Client::new().unwrap();
        let options = PutOptions::new().headers(headers("yes"));
        let sent = Batches::of(schema(), table(3));
        client.put_with(&uri, "any", sent, &options).unwrap();
        assert_eq!(numbers(&host.0.lock().unwrap()), evens(3000));

        let (mut put, mut answers) = client
            .exchange(&uri, "any", &schema(), (&options, &GetOptions::new()))
            .unwrap();
        put.push(batch(0, 100)).unwrap();
        let answer = answers.next_batch().unwrap().unwrap();
        assert_eq!(numbers(&[answer]), evens(100));
        assert_eq!(put.finish().unwrap(), 1);
        assert!(answers.next_batch().unwrap().is_none());
    }
}

/// Rule Q4: a table counts as taken if the host behind the middleware has read it to its end.
#[test]
fn a_host_behind_reads_the_whole_table() {
    for place in PLACES {
        let (_server, uri) = with_middleware(place, &Host::default());
        let client = Client::new().unwrap();
        let options = PutOptions::new().headers(headers("yes"));
        for ticket in ["unread", "partly"] {
            let sent = Batches::of(schema(), table(3));
            let error = client.put_with(&uri, ticket, sent, &options).unwrap_err();
            assert_eq!(error.status(), Status::Provider, "{ticket}: {error}");
            let text = "the server's host left the table before its end";
            assert!(error.text().contains(text), "{ticket}: {error}");
        }
    }
}

/// Promise of `Request::forward_get`: the client gets the status and the text of the host behind.
#[test]
fn errors_come_through_the_middleware() {
    let host = Host::default();
    let (server, uri) = with_middleware(PLACES[0], &host);
    let client = Client::new().unwrap();
    let options = GetOptions::new().headers(headers("yes"));
    let error = client.get_with(&uri, "absent", &options).map(drop);
    let error = error.unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.text().contains("no such table here"), "{error}");

    let mut reader = client.get_with(&uri, "broken", &options).unwrap();
    assert_eq!(reader.next_batch().unwrap().unwrap().num_rows(), 5);
    let error = reader.next_batch().unwrap_err();
    assert_eq!(error.status(), Status::OutOfResources, "{error}");
    assert!(error.text().contains("the disk is full"), "{error}");

    // An exchange alone does not go on to the pull form.
    server.pull_handler().unwrap();
    let options = PutOptions::new().headers(headers("yes"));
    let both = (&options, &GetOptions::new());
    let exchanged = client.exchange(&uri, b"any", &schema(), both);
    let error = exchanged.and_then(|(mut put, _answers)| put.finish());
    assert_eq!(error.unwrap_err().status(), Status::Unsupported);
    server.clear_handler().unwrap();
    let sent = Batches::of(schema(), table(1));
    let error = client.put_with(&uri, "any", sent, &options).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.text().contains("takes no tables"), "{error}");
}

/// Promise of `Request::forward_get`: a request that is no middleware's is not forwarded, which could
/// only come back to the same provider.
#[test]
fn a_middleware_alone_forwards() {
    let host = Host::default();
    let (server, uri) = with_middleware(PLACES[0], &host);
    server
        .handler(|request: &Request<'_>| Ok(Batches::from(request.forward_get()?)))
        .unwrap();
    let client = Client::new().unwrap();
    for options in [GetOptions::new(), GetOptions::new().headers(headers("yes"))] {
        let error = client
            .get_with(&uri, "any", &options)
            .map(drop)
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.text().contains("only a middleware"), "{error}");
    }
    server.clear_middleware().unwrap();
    let options = GetOptions::new().headers(headers("yes"));
    let whole = client.get_with(&uri, "published", &options).unwrap();
    assert_eq!(
        whole.map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
        3000
    );
    let refused = server.middleware("Not A Key", Halving).unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
}

/// Promise of `Provider::accept`: a refused client has sent no batch, with a middleware before the host
/// too.
#[test]
fn a_host_refuses_a_table_before_it_comes() {
    let host = Host::default();
    let (_server, uri) = with_middleware(PLACES[0], &host);
    let client = Client::new().unwrap();
    let refused = |error: Error| {
        assert_eq!(error.status(), Status::OutOfResources, "{error}");
        assert!(error.text().contains("the disk is full"), "{error}");
    };
    let put = client.start_put(&uri, "full", &schema(), &PutOptions::new());
    refused(put.map(drop).unwrap_err());
    let exchanged = client.exchange(
        &uri,
        "full",
        &schema(),
        (&PutOptions::new(), &GetOptions::new()),
    );
    refused(exchanged.map(drop).unwrap_err());
    let options = PutOptions::new().headers(headers("yes"));
    let sent = Batches::of(schema(), table(3));
    refused(client.put_with(&uri, "full", sent, &options).unwrap_err());
    assert!(host.0.lock().unwrap().is_empty());
}

/// Rule Q13: a request that needs a middleware is refused where the server has none, or another one.
#[test]
fn a_request_that_needs_a_middleware_is_refused_without_it() {
    let server = Server::builder().trusted_network(true).build().unwrap();
    let host = Host::default();
    server.publish("published", &schema(), table(2)).unwrap();
    server.handler(host.clone()).unwrap();
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    let client = Client::new().unwrap();
    let mut needs = Headers::new();
    needs.add("halve", "yes").unwrap();
    needs.add("needs-middleware", "halve").unwrap();
    let gets = GetOptions::new().headers(needs.clone());
    let puts = PutOptions::new().headers(needs);
    let refused = || {
        let put = client.put_with(&uri, "any", Batches::of(schema(), table(1)), &puts);
        let exchange = client.exchange(&uri, b"any", &schema(), (&puts, &gets));
        let answers = [
            client.get_with(&uri, "published", &gets).map(drop),
            client.get_with(&uri, "table", &gets).map(drop),
            put.map(drop),
            exchange
                .and_then(|(mut put, _answers)| put.finish())
                .map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.status(), Status::Unsupported, "{error}");
            assert!(error.text().contains("`halve`"), "{error}");
        }
        assert!(host.0.lock().unwrap().is_empty());
    };
    refused();
    server.middleware("other", Halving).unwrap();
    refused();
    server.middleware("halve", Halving).unwrap();
    let rows = |reader: Reader| reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    let all = rows(client.get(&uri, "published").unwrap());
    assert_eq!(
        rows(client.get_with(&uri, "published", &gets).unwrap()),
        all / 2
    );
    server.clear_middleware().unwrap();
    refused();
}
