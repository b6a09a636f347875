//! A second gRPC service of a worker, on the port of the worker's own service: it tells where the
//! worker serves over libdipc. Clients also ask it whether the worker lives.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion_distributed::grpc::BoxCloneSyncChannel;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Ready, ready};
use prost::Message;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, Service, StdError, http};
use tonic::server::{NamedService, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use super::locations::Location;

/// The only method.
const GET: &str = "/libdipc.datafusion.v1.Locations/Get";

/// A service for the gRPC server of a worker.
/// [`DipcWorker::locations`](crate::DipcWorker::locations) gives it.
#[derive(Clone)]
pub struct LocationsService(Arc<Answer>);

#[derive(Clone, PartialEq, Message)]
struct Question {}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, repeated, tag = "1")]
    locations: Vec<Location>,
}

impl LocationsService {
    pub(super) fn new(locations: Vec<Location>) -> Self {
        Self(Arc::new(Answer { locations }))
    }
}

impl NamedService for LocationsService {
    const NAME: &'static str = "libdipc.datafusion.v1.Locations";
}

impl UnaryService<Question> for LocationsService {
    type Response = Answer;
    type Future = Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, _: Request<Question>) -> Self::Future {
        ready(Ok(Response::new(Answer::clone(&self.0))))
    }
}

impl<B> Service<http::Request<B>> for LocationsService
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let this = self.clone();
        async move {
            if request.uri().path() != GET {
                let unknown = Status::unimplemented("the service has the method Get alone");
                return Ok(unknown.into_http());
            }
            let codec = ProstCodec::<Answer, Question>::default();
            Ok(tonic::server::Grpc::new(codec).unary(this, request).await)
        }
        .boxed()
    }
}

/// Asks a worker. `None`: it does not serve over libdipc.
pub(super) async fn ask(channel: BoxCloneSyncChannel) -> Result<Option<Vec<Location>>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    let failed = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    grpc.ready().await.map_err(failed)?;
    let codec = ProstCodec::<Question, Answer>::default();
    let path = http::uri::PathAndQuery::from_static(GET);
    match grpc.unary(Request::new(Question {}), path, codec).await {
        Ok(answer) => Ok(Some(answer.into_inner().locations)),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}
