//! What streams need in each process: tickets, clients, event loops, descriptors.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use dipc::{Client, ClientBuilder};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use super::case::{Case, Op};
use super::certificate;

/// The ticket of the measured batches.
pub const TABLE: &[u8] = b"table";
/// The ticket of a few batches for the warm-up.
pub const WARM_UP: &[u8] = b"warm-up";

/// A client of its own.
pub fn new_client(case: &Case) -> dipc::Result<Client> {
    client_builder(case)?.build()
}

/// Makes clients, which share what is known of TLS.
pub fn client_builder(case: &Case) -> dipc::Result<ClientBuilder> {
    let client = Client::builder()
        // Parallel streams are warmed up in parallel too.
        .max_idle(usize::try_from(case.streams).unwrap_or(usize::MAX))
        // Streams of event loops and tasks share connections.
        .connections(match case.op {
            Op::Open | Op::Idle => 8,
            _ => 0,
        });
    let client = certificate::of_client(client, case.certificate.as_deref());
    let mut settings = case.settings.iter();
    settings.try_fold(client, |client, (name, value)| client.setting(name, value))
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
