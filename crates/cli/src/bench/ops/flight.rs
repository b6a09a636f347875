//! Arrow Flight, to compare with: a server whose `DoGet` gives one batch, and its client, both by
//! tonic and arrow-flight alone.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use arrow::array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightClient, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use crate::bench::base::case::{Case, Scheme};
use crate::bench::base::certificate;
use crate::bench::base::streams::{TABLE, runtime};
use crate::bench::base::table::Ring;

/// The folder of the certificate, if Flight has TLS too.
fn tls(case: &Case) -> Option<&Path> {
    let folder = case.certificate.as_deref();
    folder.filter(|_| case.transport == Scheme::Tls)
}

/// A server with the first batch of a case, which answers until its drop.
pub struct OneBatchServer {
    /// For [`connect`].
    pub uri: String,
    _runtime: Runtime,
}

impl OneBatchServer {
    /// Listens on the loopback interface.
    pub fn start(case: &Case) -> Result<Self> {
        let doing = "cannot start the Flight server";
        let ring = Arc::new(Ring::new(case)?);
        let batch = ring.arrays(Some(1)).next().context(doing)?.into_batch()?;
        let runtime = runtime()?;
        let bound = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = bound.context(doing)?;
        let address = listener.local_addr().context(doing)?;
        let (scheme, server) = match tls(case) {
            None => ("http", Server::builder()),
            Some(folder) => ("https", certificate::of_flight_server(folder)?),
        };
        // Small messages are not to wait.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = FlightServiceServer::new(OneBatch(batch));
        runtime.spawn(async move {
            if let Err(error) = server.serve_with_incoming(service, incoming).await {
                tracing::error!("the Flight server has failed: {error}");
            }
        });
        Ok(Self {
            uri: format!("{scheme}://{address}"),
            _runtime: runtime,
        })
    }
}

/// Connects to the server of a case.
pub async fn connect(case: &Case, uri: &str) -> Result<FlightServiceClient<Channel>> {
    let mut endpoint = Endpoint::from_shared(uri.to_owned())?;
    if let Some(folder) = tls(case) {
        endpoint = endpoint.tls_config(certificate::of_flight_client(folder)?)?;
    }
    let channel = endpoint.connect().await;
    let channel = channel.context("cannot connect to the Flight server")?;
    Ok(FlightServiceClient::new(channel))
}

/// Gets the table, and reads it up to its end. Gives its rows.
pub async fn get(client: FlightServiceClient<Channel>) -> Result<u64> {
    let ticket = Ticket::new(TABLE);
    let mut batches = FlightClient::new_from_inner(client).do_get(ticket).await?;
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

/// The service. It encodes the batch for each call, like a server whose batches differ.
struct OneBatch(RecordBatch);

type Sent<T> = Request<Streaming<T>>;
type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = BoxStream<'static, Result<T, Status>>;

fn unimplemented<T>() -> Answer<T> {
    Err(Status::unimplemented("this server knows DoGet alone"))
}

#[tonic::async_trait]
impl FlightService for OneBatch {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_get(&self, _: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let batches = stream::iter([Ok(self.0.clone())]);
        let messages = FlightDataEncoderBuilder::new().build(batches);
        Ok(Response::new(messages.map_err(Status::from).boxed()))
    }

    async fn handshake(&self, _: Sent<HandshakeRequest>) -> Answer<Self::HandshakeStream> {
        unimplemented()
    }
    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        unimplemented()
    }
    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        unimplemented()
    }
    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        unimplemented()
    }
    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        unimplemented()
    }
    async fn do_put(&self, _: Sent<FlightData>) -> Answer<Self::DoPutStream> {
        unimplemented()
    }
    async fn do_exchange(&self, _: Sent<FlightData>) -> Answer<Self::DoExchangeStream> {
        unimplemented()
    }
    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        unimplemented()
    }
    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        unimplemented()
    }
}
