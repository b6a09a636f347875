//! A Flight server with answers chosen by the test.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, Location, PollInfo, PutResult, SchemaAsIpc, SchemaResult,
    Ticket,
};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// The messages of `DoGet`.
pub type Messages = Vec<Result<FlightData, Status>>;

/// The server's answers.
#[derive(Default)]
pub struct Answers {
    /// The answer for the path `[table]`, and for the command `table`.
    pub info: FlightInfo,
    /// The server knows only the command.
    pub command_only: bool,
    /// The messages for every ticket.
    pub messages: Messages,
    /// After these messages `DoGet` is silent, and does not end; nor does `DoPut`.
    pub hangs: bool,
}

/// A server in this process, which ends with its drop.
pub struct FakeFlight {
    pub uri: String,
    _runtime: Runtime,
}

impl FakeFlight {
    pub fn start(answers: Answers) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let incoming = runtime
            .block_on(async { TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap() });
        let uri = format!("grpc://{}", incoming.local_addr().unwrap());
        let service = FlightServiceServer::new(Fake(Arc::new(answers)));
        runtime.spawn(Server::builder().serve_with_incoming(service, incoming));
        Self {
            uri,
            _runtime: runtime,
        }
    }
}

/// An endpoint of the ticket `table`.
pub fn endpoint(ticket: &str, locations: &[&str]) -> FlightEndpoint {
    let mut endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.to_owned()));
    endpoint.location = locations
        .iter()
        .map(|&uri| Location {
            uri: uri.to_owned(),
        })
        .collect();
    endpoint
}

/// The info of a table in these endpoints.
pub fn info(endpoints: Vec<FlightEndpoint>) -> FlightInfo {
    FlightInfo {
        endpoint: endpoints,
        ..FlightInfo::default()
    }
}

/// A batch as messages of the `arrow` crate: schema, dictionaries, batch.
pub fn messages(batch: &RecordBatch) -> Vec<FlightData> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let generator = IpcDataGenerator::default();
    let mut all = vec![SchemaAsIpc::new(batch.schema_ref(), &options).into()];
    // Dictionary ids count along the schema.
    let _ = generator.schema_to_bytes_with_dictionary_tracker(
        batch.schema_ref(),
        &mut tracker,
        &options,
    );
    let (dictionaries, last) = generator
        .encode(
            batch,
            &mut tracker,
            &options,
            &mut IpcWriteContext::default(),
        )
        .unwrap();
    all.extend(dictionaries.into_iter().map(FlightData::from));
    all.push(last.into());
    all
}

struct Fake(Arc<Answers>);

type Answer<T> = Result<Response<T>, Status>;

fn never<T>() -> Answer<T> {
    Err(Status::unimplemented("the client should not ask for this"))
}

#[tonic::async_trait]
impl FlightService for Fake {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoActionStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        let descriptor = request.into_inner();
        let by_path = descriptor.path == ["table"] && !self.0.command_only;
        if by_path || descriptor.cmd.as_ref() == b"table" {
            Ok(Response::new(self.0.info.clone()))
        } else {
            Err(Status::not_found("there is no such thing"))
        }
    }

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let said = stream::iter(self.0.messages.clone());
        Ok(Response::new(if self.0.hangs {
            said.chain(stream::pending()).boxed()
        } else {
            said.boxed()
        }))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        never()
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        never()
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        never()
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        never()
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        match self.0.hangs {
            true => Ok(Response::new(stream::pending().boxed())),
            false => never(),
        }
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        never()
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        never()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        never()
    }
}
