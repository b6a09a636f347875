//! `dipc info`: the transports and devices that work on this machine.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use dipc::Capability;
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

impl From<Capability> for Part {
    fn from(known: Capability) -> Self {
        let reason = known.fault.map(|error| error.text().to_owned());
        Self {
            name: known.name,
            available: reason.is_none(),
            reason,
            details: known.details,
        }
    }
}

/// Runs `dipc info`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let parts = |known: Vec<Capability>| known.into_iter().map(Part::from).collect();
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        transports: parts(dipc::transports()),
        devices: parts(dipc::devices()),
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
