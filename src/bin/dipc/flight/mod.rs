//! Arrow Flight as the control plane: clients ask for a table's locations over Flight. The table
//! travels by libdipc if that works, otherwise by Flight's `DoGet`.
//!
//! | module | what it is |
//! |---|---|
//! | `locations` | what the locations of an endpoint mean to a client; which ones a server gives out |
//! | `caller`, `do_get` | calls to Flight servers for code that blocks; a `DoGet` as a stream of arrays |
//! | `fetch` | `dipc get grpc://…`: walks endpoints and their locations |
//! | `tables`, `encode`, `service` | what is served, its messages, the answers to each call |
//! | `server` | `dipc serve --flight`: listening and stopping |
//!
//! Only the command contains Flight, gRPC and their runtime; the library does not.

mod caller;
mod do_get;
mod encode;
mod fetch;
mod locations;
mod server;
mod service;
mod tables;

pub use fetch::{Fetch, Request, Taken};
pub use locations::is_flight;
pub use server::{FlightServer, bind};
pub use tables::{Table, Tables};
