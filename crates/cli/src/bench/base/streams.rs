//! What streams need in each process: tickets, clients, event loops, descriptors.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use dipc::Verb;
use dipc::client::{Answer, Client, ClientOptions, GetOptions, Stream};
use dipc::transport::TlsOptions;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::case::{Case, Op};
use super::certificate;
use crate::parse;

/// The ticket of the measured batches.
pub const TABLE: &[u8] = b"table";
/// The ticket of a few batches for the warm-up.
pub const WARM_UP: &[u8] = b"warm-up";

/// A client of its own.
pub fn new_client(case: &Case) -> Result<Client> {
    client_with(case, certificate::of_client(case.certificate.as_deref()))
}

/// Asks for a stream as a task does.
pub async fn ask(
    client: &Client,
    uri: &str,
    ticket: &[u8],
    options: &GetOptions,
) -> Result<Box<Stream>> {
    let pending = client.start(Verb::Get, &[uri], ticket, options, None)?;
    match poll_fn(|context| pending.poll_answer(context)).await? {
        Answer::Stream(stream) => Ok(stream),
        _ => bail!("the answer is of another verb"),
    }
}

/// A client that shares what is known of TLS with others.
pub fn client_with(case: &Case, tls: Arc<TlsOptions>) -> Result<Client> {
    let options = ClientOptions {
        // Parallel streams are warmed up in parallel too.
        max_idle: usize::try_from(case.streams).unwrap_or(usize::MAX),
        settings: parse::settings(&case.settings)?,
        tls,
        // Streams of event loops and tasks share connections.
        connections: matches!(case.op, Op::Open | Op::Idle).then_some(8),
        ..ClientOptions::default()
    };
    Ok(Client::new(options)?)
}

/// An event loop of one descriptor.
pub fn event_loop(fd: impl AsFd) -> Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let data = EventData::new_u64(0);
    epoll::add(&epoll, fd, data, EventFlags::IN)?;
    Ok(epoll)
}

/// A runtime with a thread for each processor of this process.
pub fn runtime() -> Result<Runtime> {
    let built = Builder::new_multi_thread().enable_all().build();
    built.context("cannot start a runtime")
}

/// Many streams need many descriptors. The soft limit is low only for programs with `select`.
pub fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If the limit cannot be raised, a later error names the missing descriptors.
    let _ = setrlimit(Resource::Nofile, raised);
}
