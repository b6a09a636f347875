//! `dipc info`: what works on this machine.

use std::process::ExitCode;

use anyhow::Result;
use dipc::device::DeviceKind;
use dipc::transport;
use serde::Serialize;

use crate::output;

/// Arguments of `dipc info`.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Schemes of the URIs that libdipc knows of, in this version or a planned one.
const SCHEMES: [&str; 3] = ["shm", "tcp", "ucx"];

/// Devices that Arrow numbers and libdipc is meant for.
const DEVICES: [(&str, i32); 2] = [("cpu", DeviceKind::CPU.0), ("cuda", 2)];

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
}

impl Part {
    fn new(name: &'static str, outcome: dipc::error::Result<()>) -> Self {
        let reason = outcome.err().map(|error| error.text().to_owned());
        Self {
            name,
            available: reason.is_none(),
            reason,
        }
    }
}

/// Runs `dipc info`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let transport = |name| {
        Part::new(
            name,
            transport::by_scheme(name).and_then(|transport| transport.available()),
        )
    };
    let device = |(name, kind)| Part::new(name, DeviceKind(kind).ensure_readable());
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        transports: SCHEMES.into_iter().map(transport).collect(),
        devices: DEVICES.into_iter().map(device).collect(),
    };
    if args.json {
        output::print(&serde_json::to_string(&info)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("dipc {}", info.version);
    for (kind, parts) in [("transport", &info.transports), ("device", &info.devices)] {
        for Part { name, reason, .. } in parts {
            let state = match reason {
                None => "works".to_owned(),
                Some(reason) => format!("does not work: {reason}"),
            };
            text.push_str(&format!("\n{kind:9} {name:4} {state}"));
        }
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
