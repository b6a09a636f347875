//! Requests that tasks answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use dipc::{Client, DeviceKind, Error, GetOptions, PulledRequest, Server, Status};
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use crate::{PLACES, batch, schema, table};

/// Counts the tables that live.
#[derive(Clone, Default)]
struct Living(Arc<AtomicUsize>);

impl Living {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// `table`, counted until its drop.
    fn counted(
        &self,
        table: impl Stream<Item = Result<RecordBatch, ArrowError>>,
    ) -> impl Stream<Item = Result<RecordBatch, ArrowError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let last = Ended(self.clone());
        table.inspect(move |_| {
            let _ = &last;
        })
    }
}

struct Ended(Living);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers one request by what its ticket says.
async fn answer(request: PulledRequest, living: Living) {
    let ticket = String::from_utf8(request.request().ticket().to_vec()).unwrap();
    let few = futures::stream::iter(table(3)).map(Ok);
    let none = futures::stream::pending();
    let broken = futures::stream::iter([Err(ArrowError::from(Error::new(
        Status::Io,
        "the disk is gone",
    )))]);
    let large = futures::stream::iter((0..64).map(|n| Ok::<_, ArrowError>(batch(n, 1 << 17))));
    let endless = futures::stream::iter(0..).map(|n| Ok(batch(n, 1000)));
    // The caller looks at what the client is told.
    let _ = match &*ticket {
        "few" => request.answer(&schema(), living.counted(few)).await,
        "arrays" => {
            let arrays = futures::stream::iter(table(3)).map(|batch| Ok::<_, Error>(batch.into()));
            let kind = DeviceKind::CPU;
            request.answer_arrays(&schema(), kind, arrays).await
        }
        "large" => request.answer(&schema(), large).await,
        "pending" => request.answer(&schema(), living.counted(none)).await,
        "broken" => request.answer(&schema(), few.chain(broken)).await,
        "endless" => request.answer(&schema(), living.counted(endless)).await,
        "dropped" => Ok(0),
        _ => {
            request.refuse(&Error::new(Status::NotFound, "no such table"));
            Ok(0)
        }
    };
}

/// Runs `test` against a server of this process whose requests tasks of one thread answer.
fn with_server<F: Future<Output = ()>>(test: impl Fn(Client, String, Living) -> F) {
    for (number, place) in PLACES.iter().enumerate() {
        let place = match place.strip_suffix('-') {
            Some(name) => {
                let thread = std::thread::current().id();
                format!("{name}-{}-{thread:?}-{number}", std::process::id()).replace(['(', ')'], "")
            }
            None => (*place).to_owned(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::builder().max_streams(1000).build().unwrap();
            let uri = server.listen(&place).unwrap();
            server.pull_handler().unwrap();
            let living = Living::default();
            let of_server = living.clone();
            let asked = server.clone();
            let serving = tokio::spawn(async move {
                loop {
                    match asked.next_request().await {
                        Ok(request) => {
                            tokio::spawn(answer(request, of_server.clone()));
                        }
                        Err(error) => return error.status(),
                    }
                }
            });
            test(Client::new().unwrap(), uri, living).await;
            server.stop(Duration::ZERO).unwrap();
            assert_eq!(serving.await.unwrap(), Status::Stopped);
        });
    }
}

/// How many threads of this process have this name.
fn threads(name: &str) -> usize {
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    names
        .filter_map(|task| of(task.ok()?).ok())
        .filter(|of| of.trim() == name)
        .count()
}

/// Promise of `PulledRequest::answer`: the table arrives, and the errors with their status.
#[test]
fn tasks_answer_requests() {
    with_server(|client, uri, _| async move {
        let get = |ticket: &'static str| {
            let (client, uri) = (client.clone(), uri.clone());
            async move {
                let reader = client.get_async(&uri, ticket).await?;
                assert_eq!(reader.schema(), schema());
                reader.try_collect::<Vec<_>>().await
            }
        };
        assert_eq!(get("few").await.unwrap(), table(3));
        assert_eq!(get("arrays").await.unwrap(), table(3));
        let error = get("broken").await.unwrap_err();
        assert_eq!(error.status(), Status::Io);
        assert!(error.text().ends_with("the disk is gone"), "{error}");
        let error = get("nothing").await.unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        assert_eq!(get("dropped").await.unwrap_err().status(), Status::Provider);
    });
}

/// Promise of `PulledRequest`: no thread waits for an answer, and the schema comes before the first
/// batch.
#[test]
fn streams_that_wait_take_no_thread() {
    with_server(|client, uri, living| async move {
        let before = threads("dipc-stream");
        let open = (0..100).map(|_| client.get_async(&uri, "pending"));
        let readers = futures::future::try_join_all(open).await.unwrap();
        assert_eq!(living.count(), 100);
        assert_eq!(threads("dipc-stream"), before);
        // Others are answered meanwhile.
        let few = client.get_async(&uri, "few").await.unwrap();
        assert_eq!(few.try_collect::<Vec<_>>().await.unwrap(), table(3));
        drop(readers);
        let gone = async {
            while living.count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone)
            .await
            .unwrap();
    });
}

/// Promise of `PulledRequest::answer`: a slow client slows its table and no other, and a client
/// that goes ends its table.
#[test]
fn a_slow_client_holds_up_only_its_own_table() {
    with_server(|client, uri, living| async move {
        let options = GetOptions::new().window(2, 1 << 20);
        let slow = client.get_async_with(&uri, "endless", &options).await;
        let mut slow = slow.unwrap();
        for _ in 0..20 {
            let few = client.get_async(&uri, "few").await.unwrap();
            assert_eq!(few.try_collect::<Vec<_>>().await.unwrap(), table(3));
        }
        for n in 0..40 {
            assert_eq!(slow.try_next().await.unwrap(), Some(batch(n, 1000)));
        }
        assert_eq!(living.count(), 1);
        drop(slow);
        let gone = async {
            while living.count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone)
            .await
            .unwrap();
    });
}

/// Promise of `PulledRequest::answer`: a table that has filled the socket of a client that does not
/// read goes on as soon as the client reads.
#[test]
fn a_table_goes_on_when_its_client_reads_again() {
    with_server(|client, uri, _| async move {
        let options = GetOptions::new().window(1000, 1 << 30);
        let large = client.get_async_with(&uri, "large", &options).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let rows = large
            .unwrap()
            .try_fold(0, |rows, batch| async move { Ok(rows + batch.num_rows()) });
        let rows = tokio::time::timeout(Duration::from_secs(10), rows).await;
        assert_eq!(rows.expect("the table stands still").unwrap(), 64 << 17);
    });
}

/// Promise of `Server::next_request`: a runtime that is dropped fails what its tasks answer, and a
/// stop tells those whom nobody answers.
#[test]
fn a_dropped_runtime_and_a_stop_leave_nobody_waiting() {
    let server = Server::builder().build().unwrap();
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    server.pull_handler().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let asked = server.clone();
    runtime.spawn(async move {
        while let Ok(request) = asked.next_request().await {
            tokio::spawn(answer(request, Living::default()));
        }
    });
    let client = Client::new().unwrap();
    let mut reader = client.get(&uri, "pending").unwrap();
    drop(runtime);
    let error = reader.next_batch().unwrap_err();
    assert_eq!(error.status(), Status::Provider);
    let later = std::thread::spawn(move || client.get(&uri, "few").map(drop));
    server.stop(Duration::ZERO).unwrap();
    let error = later.join().unwrap().unwrap_err();
    let ends = [Status::Stopped, Status::Disconnected, Status::Unreachable];
    assert!(ends.contains(&error.status()), "{error}");
}
