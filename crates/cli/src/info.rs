//! `dipc info`: the transports and devices that work on this machine.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use dipc::device::cuda::{self, Description, Driver};
use dipc::transport::{self, Reach, Transport};
use serde::Serialize;

use crate::output;

/// Arguments of `dipc info`.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    transports: Vec<Part>,
    devices: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    name: &'static str,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, String>,
}

impl Part {
    fn new(name: &'static str, outcome: dipc::Result<()>) -> Self {
        let reason = outcome.err().map(|error| error.text().to_owned());
        Self {
            name,
            available: reason.is_none(),
            reason,
            details: BTreeMap::new(),
        }
    }
}

/// CUDA: the driver and its GPUs, or the reason why there are none.
fn gpus() -> Part {
    let mut details = BTreeMap::new();
    let outcome = Driver::get().and_then(|driver| {
        details.insert("driver".to_owned(), format!("CUDA {}", driver.version()));
        for gpu in cuda::describe_all()? {
            details.insert(format!("gpu {}", gpu.ordinal), about(&gpu));
        }
        Ok(())
    });
    Part {
        details,
        ..Part::new("cuda", outcome)
    }
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

/// Runs `dipc info`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let transport = |transport: &&dyn Transport| Part {
        details: match transport.scheme() {
            "ucx" => transport::ucx::describe().into_iter().collect(),
            _ => Default::default(),
        },
        ..Part::new(transport.scheme(), transport.available())
    };
    // The transport within one process is for tests.
    let across = |transport: &&&dyn Transport| transport.trust().reach != Reach::Process;
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        transports: transport::ALL
            .iter()
            .filter(across)
            .map(transport)
            .collect(),
        devices: vec![Part::new("cpu", Ok(())), gpus()],
    };
    if args.json {
        output::print_json(&info)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("dipc {}", info.version);
    for (kind, parts) in [("transport", &info.transports), ("device", &info.devices)] {
        for part in parts {
            let Part { name, reason, .. } = part;
            let state = match reason {
                None => "works".to_owned(),
                Some(reason) => format!("does not work: {reason}"),
            };
            text.push_str(&format!("\n{kind:9} {name:4} {state}"));
            for (name, value) in &part.details {
                text.push_str(&format!("\n               {name}: {value}"));
            }
        }
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
