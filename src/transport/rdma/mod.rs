//! Memory that peers read by themselves with keys to it: the common part of transports with RDMA.
//!
//! A transport brings two things. A [`MemoryRegistry`] registers memory of a server and gives the
//! keys to it; [`RemoteReads`] are the reads of a client, on one connection. Everything else is
//! here: `lending` (a server's regions, for peers with our extension), `plain` (for other peers, by
//! a key in the URI) and `pull` (a client that reads what an address list names).

mod lending;
mod plain;
mod pull;
mod remote;

pub(super) use lending::{Lenders, Lending, lends};
pub(super) use pull::Pulls;
pub(super) use remote::{MemoryRegistry, RegisteredMemory, RemoteRead, RemoteReads};
