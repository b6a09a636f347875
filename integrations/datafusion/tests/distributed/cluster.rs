//! Worker processes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion_distributed::{Worker, WorkerQueryContext};
use dipc::{Error, Status};
use dipc_datafusion::{DipcChannelResolver, DipcTables, DipcWorker, worker_server};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

use crate::{exhaust, nap, options};

/// Set for a worker's process: where it listens, with a space between two URIs.
const PLACES: &str = "DIPC_TEST_WORKER_PLACES";
/// Set for a worker that takes plans at this address.
const PLANS: &str = "DIPC_TEST_WORKER_PLANS";
/// Set for a worker that wants a header with each request.
const TOKEN: &str = "DIPC_TEST_WORKER_TOKEN";

/// A worker in another process. It ends with this value.
pub struct WorkerProcess {
    child: Child,
    pub url: Url,
    /// The worker's addresses for libdipc.
    pub uris: Vec<String>,
    _output: BufReader<ChildStdout>,
}

impl WorkerProcess {
    pub fn start(places: &str, token: Option<&str>) -> Self {
        Self::start_at("127.0.0.1:0", places, token)
    }

    /// Starts a worker that takes plans at an address.
    pub fn start_at(plans: &str, places: &str, token: Option<&str>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("shm:@dipc-sql-test-{}-{number}", std::process::id());
        let places = places
            .replace("shm", &name)
            .replace("tcp", "tcp://127.0.0.1:0");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "cluster::works", "--ignored", "--nocapture"])
            .env(PLACES, places)
            .env(PLANS, plans)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(token) = token {
            command.env(TOKEN, token);
        }
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines();
        let at = lines.find_map(|line| Some(line.unwrap().split_once("at=")?.1.to_owned()));
        let at = at.expect("the worker's addresses");
        let mut words = at.split(' ');
        Self {
            url: Url::parse(words.next().unwrap()).unwrap(),
            uris: words.map(str::to_owned).collect(),
            child,
            _output: output,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Also if it is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Workers, of which each listens at `places`: `shm`, `tcp` or both.
pub fn start(count: usize, places: &str) -> Vec<WorkerProcess> {
    (0..count)
        .map(|_| WorkerProcess::start(places, None))
        .collect()
}

pub fn urls(workers: &[WorkerProcess]) -> Vec<Url> {
    workers.iter().map(|worker| worker.url.clone()).collect()
}

/// The worker's process itself: until its input ends.
#[test]
#[ignore = "a worker for other tests, in a process of its own"]
fn works() {
    let Ok(places) = std::env::var(PLACES) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(6)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut server = worker_server();
        if let Ok(token) = std::env::var(TOKEN) {
            server = server.authorizer(move |request| {
                match request.headers().get("x-token") == Some(token.as_bytes()) {
                    true => Ok(()),
                    false => Err(Error::new(Status::Permission, "the token is wrong")),
                }
            });
        }
        let server = server.build().unwrap();
        let uris: Vec<_> = places.split_whitespace().collect();
        let uris: Vec<_> = uris.iter().map(|uri| server.listen(uri).unwrap()).collect();
        let worker = worker(DipcChannelResolver::new(options()));
        let plans = std::env::var(PLANS).unwrap();
        let incoming = TcpIncoming::bind(plans.parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        // A worker without places serves over gRPC alone.
        let shuffles = match uris.is_empty() {
            true => None,
            false => Some(DipcWorker::start(worker.clone(), server).unwrap()),
        };
        let service = shuffles.as_ref().map(DipcWorker::locations);
        let serving = Server::builder()
            .add_service(worker.into_worker_server())
            .add_optional_service(service)
            .serve_with_incoming(incoming);
        tokio::spawn(serving);
        println!("at=http://{address} {}", uris.join(" "));
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        ended.await.unwrap().unwrap();
    });
    std::process::exit(0);
}

/// A worker that knows the functions of the tests.
fn worker(resolver: DipcChannelResolver) -> Worker {
    let tables = DipcTables::new().unwrap();
    Worker::from_session_builder(move |query: WorkerQueryContext| {
        let mut state = tables.register(resolver.session(query));
        let functions = state.scalar_functions().get_or_insert_default();
        functions.extend([nap(), exhaust()].map(Arc::new));
        async move { Ok(state.build()) }
    })
}
