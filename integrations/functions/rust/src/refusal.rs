//! Errors of the API for those of the sandbox.

use arrow::error::ArrowError;
use dipc::{Error, Status};
use dipc_sandbox::Error as Failure;
use dipc_sandbox::service::{Ended, Refusal};

/// An error keeps its status.
pub(crate) fn ended(ended: Ended) -> ArrowError {
    match ended {
        Ended::Table(error) => error,
        Ended::Function(error) => ArrowError::from(failed(error)),
    }
}

pub(crate) fn refused(refusal: Refusal) -> Error {
    let status = match refusal {
        Refusal::Missing(_) => Status::NotFound,
        Refusal::Forbidden(_) => Status::Permission,
        Refusal::Failed(failure) => return failed(failure),
        _ => Status::InvalidArgument,
    };
    Error::new(status, refusal.to_string())
}

pub(crate) fn failed(failure: Failure) -> Error {
    let status = match failure {
        Failure::Module(_) | Failure::Batch(_) => Status::InvalidData,
        Failure::Limit { .. } => Status::OutOfResources,
        Failure::Input(_) | Failure::Host(_) => Status::Unsupported,
        Failure::NoPeers => Status::Permission,
        Failure::Cancelled => Status::Cancelled,
        Failure::Folder { .. } => Status::Io,
        _ => Status::Provider,
    };
    Error::new(status, failure.to_string())
}
