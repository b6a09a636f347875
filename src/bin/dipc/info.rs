//! `dipc info`: what works on this machine.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use dipc::device::DeviceKind;
use dipc::transport::{self, Transport};
use serde::Serialize;

use crate::output;

/// Arguments of `dipc info`.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    details: BTreeMap<String, String>,
}

impl Part {
    fn new(name: &'static str, outcome: dipc::error::Result<()>) -> Self {
        let reason = outcome.err().map(|error| error.text().to_owned());
        Self {
            name,
            available: reason.is_none(),
            reason,
            details: BTreeMap::new(),
        }
    }
}

/// Runs `dipc info`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let transport = |transport: &&dyn Transport| Part {
        details: transport.describe().into_iter().collect(),
        ..Part::new(transport.scheme(), transport.available())
    };
    // What is inside one process is for tests.
    let across = |transport: &&&dyn Transport| transport.scheme() != "mem";
    let device = |(name, kind)| Part::new(name, DeviceKind(kind).ensure_readable());
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        transports: transport::ALL
            .iter()
            .filter(across)
            .map(transport)
            .collect(),
        devices: DEVICES.into_iter().map(device).collect(),
    };
    if args.json {
        output::print(&serde_json::to_string(&info)?)?;
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
