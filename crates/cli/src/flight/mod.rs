//! Arrow Flight as the control plane: clients ask for a table's locations over Flight. The table
//! travels by libdipc if that works, otherwise by Flight's `DoGet`.
//!
//! | module | content |
//! |---|---|
//! | `locations` | the locations of an endpoint, for clients and for servers |
//! | `caller`, `do_get` | blocking calls to Flight servers; a `DoGet` as a stream of arrays |
//! | `put` | `dipc put grpc://…`: a table by `DoPut` |
//! | `decode` | the messages of a table, decoded |
//! | `listing` | `dipc ls grpc://…` and `dipc describe grpc://…` |
//! | `narrowed` | some columns of a fetched table |
//! | `fetch` | `dipc get grpc://…`: fetches from the endpoints and their locations |
//! | `names`, `annotated`, `encode`, `service` | descriptors, messages, the answers to calls |
//! | `audit` | who calls, what that client may do, and a line for an audit of each call |
//! | `accept`, `cut` | the tables of `DoPut` and `DoExchange`; calls that their client cuts off |
//! | `server`, `incoming`, `certificates` | `dipc serve --flight`: the server, its connections |
//!
//! Only the command contains Flight, gRPC and their runtime; the library does not.

mod accept;
mod annotated;
mod audit;
mod caller;
mod certificates;
mod cut;
mod decode;
mod do_get;
mod encode;
mod fetch;
mod incoming;
mod listing;
mod locations;
mod names;
mod put;
mod server;
mod service;

pub use caller::Times;
pub use certificates::Certificates;
pub use fetch::{Asked, How};
pub use listing::Listing;
pub use locations::is_flight;
pub use put::FlightPut;
pub use server::{FlightServer, Gate};
