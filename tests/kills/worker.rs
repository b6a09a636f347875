//! A process that serves or sends tables, and does what its standard input says. It can be killed
//! at any moment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use arrow::array::RecordBatch;
use dipc::arena::{Arena, ArenaOptions};
use dipc::arrow::OwnedDeviceStream;
use dipc::arrow::stream::{ArrayReader as _, export_device_stream};
use dipc::client::{Client, ClientOptions, GetOptions, PutOptions};
use dipc::device::DeviceKind;
use dipc::error::{Error, Result};
use dipc::proto::Verb;
use dipc::server::{HostProvider, ServerHandle, ServerOptions, ServerRequest, TakeOptions};

use crate::common::{batch, export, export_schema, import, in_arena, read_all, schema};

/// Longer than any silence here, and shorter than the tests' patience.
const STALL: Duration = Duration::from_secs(20);

/// A client keeps a connection so long for its next request. Holdings are looked at behind it.
pub const IDLE: Duration = Duration::from_secs(1);

/// Before each line of a worker, to tell it from those of the test program.
const MARK: &str = "worker: ";

/// What only a lost or mixed value gives.
pub const WRONG: &str = "a wrong value arrived";

/// A worker, seen from the test. It is killed when it is dropped.
pub struct Worker {
    pub child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::works", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Gives an order, and does not wait for its end.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The answer to an order.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).unwrap();
            assert!(read > 0, "the worker has ended");
            // The test program may have begun the line.
            if let Some((_, answer)) = line.split_once(MARK) {
                return answer.trim_end().to_owned();
            }
        }
    }

    pub fn does(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The table: batches of an arena, which are lent where they lie, and batches of the heap.
struct Table(Vec<RecordBatch>);

impl Table {
    fn new() -> Self {
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let batches = (0..8).map(|index| {
            let batch = batch(index * 1000, 1000);
            match index % 2 {
                0 => in_arena(&arena, &batch),
                _ => batch,
            }
        });
        Self(batches.collect())
    }

    fn batch(&self, number: usize) -> &RecordBatch {
        &self.0[number % self.0.len()]
    }

    fn check(&self, number: usize, received: &RecordBatch) -> Result<()> {
        match received.columns() == self.batch(number).columns() {
            true => Ok(()),
            false => Err(Error::invalid_data(format!("{WRONG}: batch {number}"))),
        }
    }
}

/// Takes tables, and sends the client's back in an exchange.
struct Echo(Table);

impl HostProvider for Echo {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        Ok(export_device_stream(Box::new(request.source()?)))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        let received = read_all(&mut request.source()?)?;
        let mut received = received.iter().enumerate();
        received.try_for_each(|(number, batch)| self.0.check(number, batch))
    }
}

fn serve(address: &str) -> Result<(ServerHandle, String)> {
    let mut options = ServerOptions {
        take: TakeOptions {
            stall_timeout: Some(STALL),
            ..TakeOptions::default()
        },
        ..ServerOptions::default()
    };
    options.link.access.trusted_network = true;
    let server = ServerHandle::new(options)?;
    let uri = server.listen(address)?;
    server
        .set_handler(Box::new(Echo(Table::new())))
        .map_err(|(error, _)| error)?;
    Ok((server, uri))
}

/// Sends a table of so many batches, and reads the server's in an exchange.
fn send(client: &Client, table: &Table, verb: Verb, uri: &str, count: usize) -> Result<()> {
    let own = PutOptions {
        stall_timeout: Some(STALL),
        ..PutOptions::default()
    };
    let described = (&export_schema(&schema()), 1);
    let (mut put, answers) = match verb {
        Verb::Put => (client.put(&[uri], b"a table", described, &own, None)?, None),
        _ => {
            let answers = GetOptions {
                stall_timeout: Some(STALL),
                ..GetOptions::default()
            };
            let options = (&own, &answers);
            let (put, answers) = client.exchange(&[uri], b"a table", described, options, None)?;
            (put, Some(answers))
        }
    };
    std::thread::scope(|scope| {
        let reader = answers.map(|mut answers| {
            scope.spawn(move || {
                let schema = answers.schema()?;
                let mut number = 0;
                while let Some(array) = answers.next()? {
                    table.check(number, &import(array, &schema))?;
                    number += 1;
                }
                match number == count {
                    true => Ok(()),
                    false => Err(Error::invalid_data(format!("{WRONG}: {number} batches"))),
                }
            })
        });
        let sent = (0..count)
            .try_for_each(|number| {
                let pushed = put.push(export(table.batch(number)), None, None);
                pushed.map_err(|(error, _)| error)
            })
            .and_then(|()| put.finish(Some(STALL)))
            .map(drop);
        // A stream that is not finished fails the other.
        drop(put);
        let read = reader.map_or(Ok(()), |reader| reader.join().unwrap());
        match read {
            Err(error) if error.text().contains(WRONG) && sent.is_ok() => Err(error),
            read => sent.and(read),
        }
    })
}

/// Not a test: the process of a [`Worker`].
#[test]
#[ignore = "run by the tests of kills only"]
fn works() {
    let mut server = None;
    let options = ClientOptions {
        idle_timeout: IDLE,
        ..ClientOptions::default()
    };
    let (client, table) = (Client::new(options).unwrap(), Table::new());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let outcome = match words[..] {
            ["serve", address] => serve(address).map(|(it, uri)| {
                server = Some(it);
                uri
            }),
            [verb @ ("put" | "exchange"), uri, count] => {
                let verb = match verb {
                    "put" => Verb::Put,
                    _ => Verb::Exchange,
                };
                let count = count.parse().unwrap();
                send(&client, &table, verb, uri, count).map(|()| "whole".to_owned())
            }
            ["figures"] => {
                let active = server.as_ref().map_or(0, |it| it.stats().streams_active);
                Ok(active.to_string())
            }
            _ => panic!("an unknown order: {line}"),
        };
        let answer = outcome.unwrap_or_else(|error| {
            let text = error.text().replace('\n', " ");
            format!("failed {} {text}", error.status().symbol())
        });
        println!("{MARK}{answer}");
    }
}
