//! Calls that their client has cut off.
//!
//! tonic tells a handler of a cancelled call what it tells of one that has ended well: that there
//! are no more messages. Half a table would be taken for a whole one. So the error of the
//! transport becomes one that tonic passes on.

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
