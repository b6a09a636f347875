//! Calls that their client has cut off.
//!
//! To a handler, tonic reports a cancelled call in the same way as one that has ended well: there
//! are no more messages. So half a table would be taken for a whole one. Here the error of the
//! transport becomes an error that tonic passes on.

use http_body_util::BodyExt as _;
use tonic::codegen::http::Request;
use tonic::{Code, Status, body::Body};

/// The request, whose handler learns that its client has cancelled the call.
pub fn tell_of_cuts(request: Request<Body>) -> Request<Body> {
    let told = |status: Status| match status.code() {
        Code::Cancelled => Status::aborted("the client has cancelled the call, or has gone"),
        _ => status,
    };
    request.map(|body| Body::new(body.map_err(told)))
}
