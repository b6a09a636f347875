//! Memory that peers read by themselves, by keys to it: what transports with RDMA share.
//!
//! A transport brings two things. A [`MemoryRegistry`] registers memory of a server and gives the
//! keys to it; [`RemoteReads`] are a client's, at one connection. All else is here: `lending` (a
//! server's regions, for peers of our extension), `plain` (for others, by a key in the URI) and
//! `pull` (a client that reads what an address list names).

mod lending;
mod plain;
mod pull;
mod remote;

pub(super) use lending::{Lenders, Lending, lends};
pub(super) use pull::Pulls;
pub(super) use remote::{MemoryRegistry, RegisteredMemory, RemoteRead, RemoteReads};
