//! What libdipc can use on this machine.

use std::collections::BTreeMap;

use crate::device::cuda::{self, Description, Driver};
use crate::error::{Error, Result};
use crate::transport::{self, Reach};

/// A transport, or a kind of device, and whether it works on this machine: [`transports`] and
/// [`devices`] give them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Capability {
    /// The scheme of the transport's URIs (`shm`), or the kind of device (`cpu`, `cuda`).
    pub name: &'static str,
    /// Why it does not work; `None`: it works.
    pub fault: Option<Error>,
    /// What is known of it, such as versions and devices, as text for people.
    pub details: BTreeMap<String, String>,
}

impl Capability {
    fn new(name: &'static str, outcome: Result<()>) -> Self {
        Self {
            name,
            fault: outcome.err(),
            details: BTreeMap::new(),
        }
    }
}

/// The transports of this build, as `dipc info` shows them. Loads UCX.
pub fn transports() -> Vec<Capability> {
    let across = transport::ALL
        .iter()
        .filter(|it| it.trust().reach != Reach::Process);
    let known = across.map(|transport| Capability {
        details: match transport.scheme() {
            "ucx" => transport::ucx::describe().into_iter().collect(),
            _ => BTreeMap::new(),
        },
        ..Capability::new(transport.scheme(), transport.available())
    });
    known.collect()
}

/// The kinds of devices whose memory libdipc moves, as `dipc info` shows them. Loads the driver of
/// CUDA.
pub fn devices() -> Vec<Capability> {
    let mut details = BTreeMap::new();
    let outcome = Driver::get().and_then(|driver| {
        details.insert("driver".to_owned(), format!("CUDA {}", driver.version()));
        for gpu in cuda::describe_all()? {
            details.insert(format!("gpu {}", gpu.ordinal), about(&gpu));
        }
        Ok(())
    });
    let cuda = Capability {
        details,
        ..Capability::new("cuda", outcome)
    };
    vec![Capability::new("cpu", Ok(())), cuda]
}

/// One GPU, on a line.
fn about(gpu: &Description) -> String {
    let (major, minor) = gpu.capability;
    let mib = gpu.total_bytes >> 20;
    let mut text = format!(
        "{}, {mib} MiB, compute capability {major}.{minor}",
        gpu.name
    );
    // Memory of `cuMemAlloc` is always shared by a legacy handle.
    text.push_str(if gpu.exports_fds {
        "; exports memory by descriptor and by legacy handle"
    } else {
        "; exports memory by legacy handle"
    });
    if !gpu.peers.is_empty() {
        let peers: Vec<String> = gpu.peers.iter().map(i32::to_string).collect();
        text.push_str(&format!(
            "; reaches GPU {} (copies between GPUs have run on a simulated driver only)",
            peers.join(", ")
        ));
    }
    text
}
