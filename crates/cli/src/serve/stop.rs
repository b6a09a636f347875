//! The end of serving.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use dipc::Server;
use serde_json::json;
use tracing::{error, info, warn};

use super::args::Args;
use crate::flight::FlightServer;
use crate::output;
use crate::report::bytes_text;
use crate::service::Manager;

/// Waits for running streams until the deadline or another signal, then cuts them.
pub(super) fn stop(
    server: &Server,
    flight: Option<Arc<FlightServer>>,
    stops: mpsc::Receiver<()>,
    args: &Args,
    manager: &Manager,
) -> Result<ExitCode> {
    let active = server.stats().streams_active;
    let most = args.drain;
    manager.stopping(&format!("drains {active} streams, for at most {most:?}"));
    if active > 0 {
        warn!(active, drain = ?args.drain, "stopping; another signal ends the streams at once");
    }
    let (done_sender, done) = mpsc::channel();
    let stopping = (server.clone(), flight.clone());
    let drain = args.drain;
    let elsewhere = args.redirect.clone();
    std::thread::Builder::new()
        .name("dipc-stop".to_owned())
        .spawn(move || {
            let (server, flight) = stopping;
            let deadline = Instant::now() + drain;
            if let Some(flight) = &flight {
                flight.begin_stop();
            }
            drain_until(&server, &elsewhere, deadline);
            let outcome = server.stop(deadline.saturating_duration_since(Instant::now()));
            if let Some(flight) = &flight {
                flight.stop(deadline.saturating_duration_since(Instant::now()));
            }
            let _ = done_sender.send(outcome);
        })
        .context("cannot start a thread to stop on")?;
    let outcome = loop {
        match done.recv_timeout(Duration::from_millis(20)) {
            Ok(outcome) => break outcome,
            Err(mpsc::RecvTimeoutError::Timeout) if stops.try_recv().is_ok() => {
                if let Some(flight) = &flight {
                    flight.stop(Duration::ZERO);
                }
                break server.stop(Duration::ZERO);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break server.stop(Duration::ZERO),
        }
    };
    let stats = server.stats();
    if args.json {
        let mut stopped = json!({
            "streams": stats.streams_served,
            "batches": stats.batches,
            "bytes_lent": stats.bytes_lent,
            "bytes_copied": stats.bytes_copied,
            "bytes_sent": stats.bytes_sent,
            "bytes_copied_on_device": stats.bytes_copied_on_device,
            "bytes_staged": stats.bytes_staged,
        });
        if let Some(flight) = flight {
            let (streams, bytes_sent) = flight.figures();
            stopped["flight"] = json!({ "streams": streams, "bytes_sent": bytes_sent });
        }
        output::print_json(&json!({ "stopped": stopped }))?;
    }
    info!(
        streams = stats.streams_served,
        batches = stats.batches,
        lent = bytes_text(stats.bytes_lent),
        copied = bytes_text(stats.bytes_copied),
        sent = bytes_text(stats.bytes_sent),
        staged = bytes_text(stats.bytes_staged),
        "stopped"
    );
    outcome.context("a source did not stop in time")?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses requests, and tells clients where else to ask, while streams are under way.
fn drain_until(server: &Server, elsewhere: &[String], deadline: Instant) {
    const PAUSE: Duration = Duration::from_millis(10);
    let elsewhere: Vec<_> = elsewhere.iter().map(String::as_str).collect();
    if let Err(error) = server.drain(&elsewhere).or_else(|_| server.drain(&[])) {
        error!(%error, "requests are served on until the server stops");
    }
    while server.stats().streams_active > 0 && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}
