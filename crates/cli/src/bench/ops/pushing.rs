//! The serving process in the pull form: one thread of the program answers all requests.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use dipc::{DeviceArray, Server};
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, consume_budget, spawn_local};

use crate::bench::base::table::Ring;

/// Serves every stream of the server's on this thread, until the server stops. `count`: batches of
/// each stream; `None`: until its client goes.
pub fn run(server: &Server, ring: &Arc<Ring>, count: Option<u64>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build();
    let runtime = runtime.context("cannot start a runtime")?;
    LocalSet::new().block_on(&runtime, async {
        // An error: the server stops.
        while let Ok(request) = server.next_request().await {
            let ring = Arc::clone(ring);
            spawn_local(async move {
                let arrays = arrays(&ring, count);
                // An error: the client has what it wanted.
                let answered = request.answer_arrays(ring.schema(), ring.device(), arrays);
                let _ = answered.await;
            });
        }
    });
    Ok(())
}

/// The batches of a stream. It yields to other streams after a few batches, although it always has
/// one more.
fn arrays(ring: &Arc<Ring>, count: Option<u64>) -> impl Stream<Item = dipc::Result<DeviceArray>> {
    stream::iter(ring.arrays(count)).then(async |array| {
        consume_budget().await;
        Ok(array)
    })
}
