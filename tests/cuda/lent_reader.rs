//! The other process of the tests of lending: a client with orders from the test.

use std::io::{BufRead, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use arrow::array::{Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use dipc::device::cuda::{Device, Stream, later};
use dipc::error::Result;

use crate::processes::Other;
use crate::producer::batches;
use crate::raw_client::{Expected, RawClient, Received, Wanted};
use crate::{Case, fake};

pub const CASES: &[Case] = &[("lent-reader", reader)];

const URI: &str = "DIPC_TEST_CUDA_URI";
/// The client's task, and the number of batches.
const MODE: &str = "DIPC_TEST_CUDA_MODE";
const ROWS: i32 = 3000;
const COUNT: i32 = 5;

/// The expected batches of a ticket.
pub fn table(ticket: &str) -> Vec<RecordBatch> {
    match ticket {
        "plain" => plain(),
        "u" => batches(COUNT, ROWS + 100),
        _ => batches(COUNT, ROWS),
    }
}

/// Batches that the encoder need not read.
pub fn plain() -> Vec<RecordBatch> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    (0..i64::from(COUNT))
        .map(|number| {
            let n: Int64Array = (0..i64::from(ROWS)).map(|row| row * 7 + number).collect();
            let columns: Vec<Arc<dyn Array>> = vec![Arc::new(n)];
            RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
        })
        .collect()
}

pub fn client(uri: &str, mode: &str) -> Other {
    let variables = [(URI, uri.to_owned()), (MODE, mode.to_owned())];
    Other::new("lent-reader", Stdio::piped(), &variables)
}

impl Other {
    pub fn tell(&mut self, line: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

fn heard() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).unwrap();
    (read > 0).then(|| line.trim().to_owned())
}

/// Reads a whole ticket, compares each body and returns it. Gives the number of bodies on the GPU.
pub fn read_all(client: &mut RawClient, wanted: Wanted) -> Result<usize> {
    let expected = table(std::str::from_utf8(&wanted.ticket).unwrap());
    let mut encoded = Expected::new(&expected[0]);
    let mut stream = client.get(wanted)?;
    let mut on_gpu = 0;
    let mut count = 0;
    while let Some(received) = stream.next()? {
        encoded.assert_is(&received, &expected[count]);
        count += 1;
        on_gpu += usize::from(received.gpu.is_some());
        stream.give_back(received)?;
    }
    assert_eq!(count, expected.len());
    let info = stream.info.unwrap();
    assert_eq!(info.device_type, if on_gpu > 0 { 2 } else { 1 });
    Ok(on_gpu)
}

/// Reads a whole ticket and keeps the bodies.
pub fn keep_all(client: &mut RawClient, ticket: &str) -> Vec<Received> {
    let mut stream = client.get(Wanted::on_gpus(ticket)).unwrap();
    let mut kept = Vec::new();
    while let Some(received) = stream.next().unwrap() {
        kept.push(received);
    }
    kept
}

/// The client's process.
fn reader() {
    let uri = std::env::var(URI).unwrap();
    let mode = std::env::var(MODE).unwrap();
    if mode == "faults" {
        return read_as_told();
    }
    let mut client = RawClient::connect(&uri).unwrap();
    match mode.as_str() {
        "read" => {
            for _ in 0..2 {
                let on_gpu = read_all(&mut client, Wanted::on_gpus("t")).unwrap();
                assert_eq!(on_gpu, table("t").len());
            }
            // As sent: they stay on their device.
            let as_sent = Wanted {
                device_type: 0,
                ..Wanted::on_gpus("t")
            };
            assert_eq!(read_all(&mut client, as_sent).unwrap(), table("t").len());
            settle(&mut client);
            say("done");
        }
        "elsewhere" => {
            let none = Wanted {
                gpus: Vec::new(),
                ..Wanted::on_gpus("t")
            };
            assert_eq!(read_all(&mut client, none).unwrap(), 0);
            let another = Wanted {
                gpus: vec![[1; 16]],
                ..Wanted::on_gpus("t")
            };
            assert_eq!(read_all(&mut client, another).unwrap(), 0);
            let on_host = Wanted {
                device_type: 1,
                ..Wanted::on_gpus("t")
            };
            assert_eq!(read_all(&mut client, on_host).unwrap(), 0);
            assert_eq!(client.ordered, 0);
            say("done");
        }
        "late" => late_reader(&mut client),
        "many" => read_many(&mut client),
        "stale" => read_beside_the_unread(client, &uri),
        "legacy" => {
            client.on_gone = || {
                say("gone");
                assert_eq!(heard().unwrap(), "forget");
            };
            assert_eq!(read_all(&mut client, Wanted::on_gpus("t")).unwrap(), 5);
            while client.retired.len() < client.announced.len() {
                client.receive().unwrap();
            }
            assert_eq!(fake::Live::now().opened, 0);
            say("closed");
            heard();
        }
        "twice" => {
            let count = table("p").len();
            let mut another = RawClient::connect(&uri).unwrap();
            let first = keep_all(&mut client, "p");
            let second = keep_all(&mut another, "p");
            assert_eq!(fake::Live::now().opened, i64::try_from(count).unwrap());
            for received in first {
                client.give_back(received).unwrap();
            }
            while client.retired.len() < count {
                client.receive().unwrap();
            }
            drop(client);
            let mut encoded = Expected::new(&table("p")[0]);
            for (received, batch) in second.iter().zip(&table("p")) {
                encoded.assert_is(received, batch);
            }
            for received in second {
                another.give_back(received).unwrap();
            }
            while another.retired.len() < count {
                another.receive().unwrap();
            }
            assert_eq!(fake::Live::now().opened, 0);
            say("done");
        }
        "keep" => {
            let kept = keep_all(&mut client, "t");
            assert_eq!(kept.len(), table("t").len());
            say("kept");
            heard();
        }
        "desert" => {
            let kept = keep_all(&mut client, "t");
            client.link.close(None);
            say("closed");
            heard();
            // Lent memory is unchanged.
            let mut encoded = Expected::new(&table("t")[0]);
            for (received, batch) in kept.iter().zip(&table("t")) {
                encoded.assert_is(received, batch);
            }
            say("unchanged");
            heard();
        }
        "plain" => {
            let on_gpu = read_all(&mut client, Wanted::on_gpus("plain")).unwrap();
            assert_eq!(on_gpu, plain().len());
            settle(&mut client);
            say("done");
        }
        "window" => {
            let wanted = Wanted {
                window_bytes: 1,
                ..Wanted::on_gpus("t")
            };
            let mut stream = client.get(wanted).unwrap();
            // Before the consumer takes a batch.
            stream.fill(plain().len()).unwrap();
            while let Some(received) = stream.next().unwrap() {
                assert!(received.gpu.is_some());
                stream.give_back(received).unwrap();
            }
            settle(&mut client);
            say("done");
        }
        "idle" => {
            assert_eq!(read_all(&mut client, Wanted::on_gpus("t")).unwrap(), 5);
            while client.retired.len() < client.announced.len() {
                client.receive().unwrap();
            }
            let first = client.announced.clone();
            assert!(!first.is_empty());
            assert_eq!(read_all(&mut client, Wanted::on_gpus("u")).unwrap(), 5);
            let again = &client.announced[first.len()..];
            assert!(
                again.iter().any(|id| first.contains(id)),
                "{first:?} {again:?}"
            );
            say("done");
        }
        "again" => {
            let (sender, tickets) = mpsc::channel();
            std::thread::spawn(
                move || {
                    while heard().is_some_and(|ticket| sender.send(ticket).is_ok()) {}
                },
            );
            say("ready");
            loop {
                match tickets.try_recv() {
                    Ok(ticket) => {
                        let read = read_all(&mut client, Wanted::on_gpus(&ticket)).unwrap();
                        assert_eq!(read, 5);
                        say("read");
                    }
                    // Each REGION_GONE is answered, at any time.
                    Err(TryRecvError::Empty) => drop(client.receive().unwrap()),
                    Err(TryRecvError::Disconnected) => break,
                }
            }
        }
        "endless" => loop {
            say("reading");
            read_all(&mut client, Wanted::on_gpus("t")).unwrap();
        },
        other => panic!("no mode {other}"),
    }
}

/// Reads from several servers in turn, as the test names them.
fn read_as_told() {
    say("ready");
    while let Some(uri) = heard() {
        let outcome = RawClient::connect(&uri).and_then(|mut client| {
            let on_gpu = read_all(&mut client, Wanted::on_gpus("t"))?;
            Ok(on_gpu)
        });
        // The connection ends after its handles are closed.
        assert!(later::wait(Duration::from_secs(10)));
        match outcome {
            Ok(on_gpu) => say(&format!("outcome {on_gpu}")),
            Err(error) => say(&format!("outcome {error}")),
        }
    }
}

/// Lets the server take everything back, and reads its answers.
fn settle(client: &mut RawClient) {
    for _ in 0..5 {
        client.receive().unwrap();
    }
}

fn late_reader(client: &mut RawClient) {
    let expected = plain();
    let mut encoded = Expected::new(&expected[0]);
    let mut stream = client.get(Wanted::on_gpus("plain")).unwrap();
    let mut kept = Vec::new();
    for _ in &expected {
        let received = stream.next().unwrap().unwrap();
        let (_, ready) = received.gpu.as_ref().unwrap();
        let ready = ready
            .as_ref()
            .expect("what is not written yet comes with an event");
        assert!(!ready.is_ready().unwrap());
        // The stream on the device waits, not its thread.
        let waiting = Stream::new(&Device::get(0).unwrap()).unwrap();
        waiting.wait(ready).unwrap();
        assert!(!waiting.is_idle().unwrap());
        kept.push(received);
    }
    say("pending");
    for (received, batch) in kept.iter().zip(&expected) {
        encoded.assert_is(received, batch);
    }
    for received in kept {
        stream.give_back(received).unwrap();
    }
    assert!(stream.next().unwrap().is_none());
    say("done");
}

/// Takes more bodies than events, and then reads others that are ready sooner: on the same
/// connection, and later on another.
fn read_beside_the_unread(mut client: RawClient, uri: &str) {
    let wanted = Wanted {
        window: 25,
        ..Wanted::on_gpus("many")
    };
    let mut stream = client.get(wanted).unwrap();
    let mut kept = Vec::new();
    while let Some(received) = stream.next().unwrap() {
        kept.push(received);
    }
    assert_eq!(kept.len(), 5 * plain().len());
    let unread = |what: &str| {
        for (index, received) in kept.iter().enumerate() {
            let ready = received.gpu.as_ref().unwrap().1.as_ref().unwrap();
            assert!(
                !ready.is_ready().unwrap(),
                "{what}: body {index} is not written"
            );
        }
    };
    unread("before");
    assert_eq!(read_all(&mut client, Wanted::on_gpus("plain")).unwrap(), 5);
    unread("on the same connection");
    client.link.close(None);
    let mut another = RawClient::connect(uri).unwrap();
    assert_eq!(read_all(&mut another, Wanted::on_gpus("plain")).unwrap(), 5);
    unread("on another connection");
    say("done");
}

/// Takes more bodies than events before it reads the first.
fn read_many(client: &mut RawClient) {
    let wanted = Wanted {
        window: 25,
        ..Wanted::on_gpus("many")
    };
    let mut stream = client.get(wanted).unwrap();
    let mut kept = Vec::new();
    for _ in 0..5 * plain().len() {
        kept.push(stream.next().unwrap().unwrap());
    }
    say("pending");
    for (batches, expected) in kept.chunks(plain().len()).map(|chunk| (chunk, plain())) {
        let mut encoded = Expected::new(&expected[0]);
        for (received, batch) in batches.iter().zip(&expected) {
            assert!(received.gpu.as_ref().unwrap().1.is_some());
            encoded.assert_is(received, batch);
        }
    }
    for received in kept {
        stream.give_back(received).unwrap();
    }
    assert!(stream.next().unwrap().is_none());
    say("done");
}
