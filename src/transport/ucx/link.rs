//! The UCX objects of a connection.

use std::sync::Arc;
use std::time::Instant;

use ucx1_sys::ucs_status_t;

use crate::error::Result;
use crate::transport::Attempt;
use crate::transport::connection::ConnectionEnd;
use crate::transport::ucx::active;
use crate::transport::ucx::callbacks::CallbackInbox;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::endpoint::UcxEndpoint;
use crate::transport::ucx::operations::Operations;
use crate::transport::ucx::worker::Worker;

/// A worker of its own and one endpoint (rule R2), and all operations on them.
pub(super) struct UcxLink {
    pub worker: Worker,
    pub endpoint: UcxEndpoint,
    pub operations: Operations,
    /// What callbacks report.
    pub shared: Arc<CallbackInbox>,
}

impl UcxLink {
    /// Makes a worker that takes messages of `peer`, and its endpoint with `endpoint`.
    ///
    /// # Errors
    ///
    /// Those of UCX, and those of `endpoint`.
    pub(super) fn new(
        context: &Arc<Context>,
        peer: ConnectionEnd,
        endpoint: impl FnOnce(&Worker, &Arc<CallbackInbox>) -> Result<UcxEndpoint>,
    ) -> Result<Self> {
        let worker = Worker::new(Arc::clone(context))?;
        let shared = Arc::new(CallbackInbox::new(peer));
        match active::listen(&worker, &shared).and_then(|()| endpoint(&worker, &shared)) {
            Ok(endpoint) => Ok(Self {
                operations: Operations::new(worker.api()),
                worker,
                endpoint,
                shared,
            }),
            Err(error) => {
                worker.destroy();
                Err(error)
            }
        }
    }

    /// Waits until everything sent has left and, for a new endpoint, until it is connected. `None`:
    /// this did not happen before the deadline.
    ///
    /// # Errors
    ///
    /// The worker cannot be waited for; `Cancelled` by the token.
    pub(super) async fn flush(
        &mut self,
        deadline: Instant,
        attempt: &Attempt,
    ) -> Result<Option<ucs_status_t>> {
        let mut pending = self.endpoint.begin_flush(&self.worker);
        let failed = || self.shared.with(|reports| reports.failed);
        let mut ended = None;
        let driven = self.worker.drive(deadline, attempt, || {
            ended = pending.check();
            ended.is_some() || failed().is_some()
        });
        let driven = driven.await;
        self.worker.leave_flush(pending);
        driven?;
        // The error handler has the reason; the flush only reports that it was cancelled.
        Ok(failed().or(ended))
    }
}
