//! What `dipc info` shows about UCX.

use crate::transport::Settings;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::error::version_text;

/// Lines for `dipc info`, name and value: version, library, and the transports and devices that UCX
/// finds.
pub fn describe() -> Vec<(String, String)> {
    let context = match Context::get(&Settings::default(), false, 0) {
        Ok(context) => context,
        Err(error) => return vec![("error".to_owned(), error.to_string())],
    };
    let api = context.api;
    let mut lines = vec![
        ("version".to_owned(), version_text(api)),
        ("library".to_owned(), api.path().display().to_string()),
    ];
    let found = &context.resources.0;
    if !found.is_empty() {
        lines.push(("transports".to_owned(), found.join(", ")));
    }
    lines.push(("GPU memory".to_owned(), gpu_memory(&context).to_owned()));
    lines.push(("lent memory".to_owned(), LENT_MEMORY.to_owned()));
    lines
}

/// The text about bodies that the client reads by RDMA.
const LENT_MEMORY: &str =
    "only with --body lent, since no RDMA adapter has been tested; bodies are sent as bytes";

/// Whether bodies are sent and received directly from and to GPUs.
fn gpu_memory(context: &Context) -> &'static str {
    if context.knows_cuda {
        "sent and received where it is (CUDA)"
    } else {
        "by way of the host, since this UCX was built without CUDA, or its modules find no driver"
    }
}
