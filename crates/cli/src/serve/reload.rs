//! Files that are read again at SIGHUP.

use std::sync::Arc;

use anyhow::Result;
use dipc::server::ServerHandle;
use tracing::{error, info};

use super::args::Args;
use super::validity;
use crate::access::Access;
use crate::service::Manager;
use crate::signals::Hangups;

/// Reads certificates and tokens again at each SIGHUP.
pub(super) fn reload_at_hangups(
    hangups: Hangups,
    args: &Args,
    server: &Arc<ServerHandle>,
    access: Option<Arc<Access>>,
    manager: &Arc<Manager>,
) -> Result<()> {
    let (server, manager) = (Arc::clone(server), Arc::clone(manager));
    let certificate = args.tls.tls_cert.clone();
    let reload = move || {
        let mut failed = None;
        match server.reload_tls() {
            Ok(()) => {
                if let Some(certificate) = &certificate {
                    info!("certificates are read again");
                    validity::warn_of(certificate);
                }
            }
            Err(error) => {
                error!(%error, "certificates stay as they were");
                failed = Some(format!("certificates stay as they were: {error}"));
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
