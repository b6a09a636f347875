//! The C API: every exported function of `libdipc.so` and nothing else.
//!
//! Each export calls a guard (`guard.rs`) around code that turns pointers into references and calls
//! the crate. No panic leaves an export. A failed call writes no output. The ownership of an
//! argument moves only when the call returns `DIPC_OK`. `include/dipc.h` and its documentation are
//! generated from this module, `include/dipc_machines.h` from its folder `machines`.

#![allow(
    non_camel_case_types,
    reason = "types of the C API have the names that C programs see: dipc_server, dipc_status"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "C has no slices and no optional arguments: a ticket takes two arguments, a callback \
              takes its data, and the error comes last"
)]

#[macro_use]
mod handle;
#[macro_use]
mod guard;
#[macro_use]
mod arguments;
mod arena;
mod async_streams;
mod batch;
mod cancel;
mod caught;
mod client;
mod client_options;
mod description;
mod description_builder;
mod error;
mod error_details;
mod foreign;
mod headers;
mod host_stream;
mod library;
mod loan;
mod log;
mod machines;
mod middleware;
mod network_options;
mod pending;
mod polling;
mod provider;
mod put;
mod put_open;
mod put_options;
mod put_start;
mod put_stat;
mod request;
mod request_headers;
mod request_options;
mod request_peer;
mod request_source;
mod selection;
mod server;
mod server_authorizer;
mod server_drain;
mod server_handler;
mod server_limits;
mod server_listen;
mod server_options;
mod server_put_options;
mod server_stats;
mod server_tickets;
mod status;
mod stream;
mod text;
mod tls_options;
mod transport;

pub use arena::*;
pub use async_streams::*;
pub use batch::*;
pub use cancel::*;
pub use client::*;
pub use client_options::*;
pub use error::*;
pub use error_details::dipc_error;
pub use foreign::dipc_finalizer;
pub use headers::*;
pub use host_stream::*;
pub use library::*;
pub use log::*;
pub use machines::*;
pub use network_options::*;
pub use pending::*;
pub use provider::{DIPC_PROVIDER_DETERMINISTIC, dipc_provider};
pub use put::*;
pub use put_open::*;
pub use put_options::*;
pub use put_start::*;
pub use put_stat::*;
pub use request::*;
pub use request_headers::*;
pub use request_options::*;
pub use request_source::*;
pub use selection::*;
pub use server::*;
pub use server_authorizer::*;
pub use server_drain::*;
pub use server_handler::*;
pub use server_limits::*;
pub use server_listen::*;
pub use server_options::*;
pub use server_put_options::*;
pub use server_stats::*;
pub use server_tickets::*;
pub use status::*;
pub use stream::*;
pub use tls_options::*;
pub use transport::*;
