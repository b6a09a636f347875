//! Calls that their client has cut off.
//!
//! tonic tells a handler of a cancelled call what it tells of one that has ended well: that there
//! are no more messages. Half a table would be taken for a whole one. So the error of the
//! transport becomes one that tonic passes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tonic::codegen::{Bytes, Service, http};
use tonic::{Code, Status, body};

/// A service whose handlers learn of cancelled calls.
#[derive(Clone)]
pub struct TellsOfCuts<S>(pub S);

impl<S: Service<http::Request<body::Body>>> Service<http::Request<body::Body>> for TellsOfCuts<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<body::Body>) -> Self::Future {
        self.0
            .call(request.map(|body| body::Body::new(Messages(body))))
    }
}

/// The messages of a client.
struct Messages(body::Body);

impl Body for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(|status| {
            if status.code() == Code::Cancelled {
                return Status::aborted("the client has cancelled the call, or has gone");
            }
            status
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
