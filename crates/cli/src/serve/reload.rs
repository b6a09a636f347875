//! Files that are read again at SIGHUP.

use std::sync::Arc;

use anyhow::Result;
use dipc::Server;
use tracing::{error, info};

use super::args::Args;
use super::validity;
use crate::access::Access;
use crate::flight::Certificates;
use crate::service::Manager;
use crate::signals::Hangups;

/// Reads certificates and tokens again at each SIGHUP.
pub(super) fn reload_at_hangups(
    hangups: Hangups,
    args: &Args,
    server: &Server,
    (access, flight): (Option<Arc<Access>>, Option<Arc<Certificates>>),
    manager: &Arc<Manager>,
) -> Result<()> {
    let (server, manager) = (server.clone(), Arc::clone(manager));
    let certificate = args.tls.tls_cert.clone();
    let reload = move || {
        let mut failed = None;
        let of_flight = || flight.as_ref().map_or(Ok(()), |flight| flight.reload());
        match server
            .reload_tls()
            .map_err(Into::into)
            .and_then(|()| of_flight())
        {
            Ok(()) => {
                if let Some(certificate) = &certificate {
                    info!("certificates are read again");
                    validity::warn_of(certificate);
                }
            }
            Err(error) => {
                let text = format!("certificates stay as they were: {error:#}");
                error!("{text}");
                failed = Some(text);
            }
        }
        if let Some(Err(error)) = access.as_ref().map(|access| access.reload()) {
            let text = format!("tokens stay as they were: {error:#}");
            error!("{text}");
            failed = Some(text);
        }
        failed
    };
    hangups.watch(move || manager.reloading(&reload))
}
