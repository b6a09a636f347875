//! Who calls `dipc serve --flight`, what that client may do, and an audit line for each call, like
//! those that libdipc writes about its own requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dipc::{PeerCertificate, Verb};
use tonic::{Request, Status};
use tracing::info;

use crate::access::{Access, Asker};
use crate::flight::caller::refusal;
use crate::trust::AUTHORIZATION;

/// The longest part of a ticket that a line shows, in bytes.
const TICKET_BYTES: usize = 128;

/// The client of one call.
pub(super) struct Visitor {
    access: Option<Arc<Access>>,
    authorization: Option<Vec<u8>>,
    certificate: Option<PeerCertificate>,
    peer: Option<SocketAddr>,
    since: Instant,
}

impl Visitor {
    /// The client of `request`, who may do what `access` says; `None`: everything.
    pub(super) fn of<T>(request: &Request<T>, access: Option<Arc<Access>>) -> Self {
        let authorization = request.metadata().get(AUTHORIZATION);
        let shown = request.peer_certs();
        let shown = shown.as_ref().and_then(|chain| chain.first());
        Self {
            access,
            authorization: authorization.map(|value| value.as_bytes().to_vec()),
            certificate: shown.and_then(|der| PeerCertificate::from_der(der).ok()),
            peer: request.remote_addr(),
            since: Instant::now(),
        }
    }

    /// The name of the client, if it may do this and has one.
    ///
    /// # Errors
    ///
    /// `Permission`.
    fn check(&self, verb: Verb, ticket: &[u8]) -> Result<Option<String>, dipc::Error> {
        let asker = Asker {
            authorization: self.authorization.as_deref(),
            certificate: self.certificate.as_ref(),
            uid: None,
        };
        let access = self.access.as_deref();
        access
            .map(|access| access.check(&asker, verb, ticket))
            .transpose()
    }

    /// Whether the client may do this. No line is written.
    pub(super) fn may(&self, verb: Verb, ticket: &[u8]) -> bool {
        self.check(verb, ticket).is_ok()
    }

    /// Admits a call of Flight's `method`.
    ///
    /// # Errors
    ///
    /// The client may not do this. The line says so.
    pub(super) fn admit(
        &self,
        method: &'static str,
        verb: Verb,
        ticket: &[u8],
    ) -> Result<Audit, Status> {
        let checked = self.check(verb, ticket);
        let mut audit = Audit {
            method,
            verb,
            ticket: ticket.to_vec(),
            peer: self
                .peer
                .map_or_else(|| "unknown".to_owned(), |it| it.to_string()),
            subject: self.certificate.as_ref().map(|it| it.subject.clone()),
            principal: None,
            since: self.since,
            bytes: Arc::default(),
            is_over: false,
        };
        match checked {
            Ok(principal) => {
                audit.principal = principal;
                Ok(audit)
            }
            Err(error) => {
                audit.write("is refused", error.status().symbol(), error.text());
                Err(match self.authorization {
                    Some(_) => Status::permission_denied(error.text()),
                    None => Status::unauthenticated(error.text()),
                })
            }
        }
    }
}

/// A call that was admitted. Its line is written at its end, or at the drop.
pub(super) struct Audit {
    method: &'static str,
    verb: Verb,
    ticket: Vec<u8>,
    peer: String,
    subject: Option<String>,
    principal: Option<String>,
    since: Instant,
    /// Bytes of bodies so far.
    bytes: Arc<AtomicU64>,
    is_over: bool,
}

impl Audit {
    /// Counts bytes of bodies.
    pub(super) fn carried(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The call has ended.
    pub(super) fn end<T>(mut self, outcome: &Result<T, Status>) {
        match outcome {
            Ok(_) => self.write("has ended", "DIPC_OK", ""),
            Err(status) => {
                let error = refusal(status);
                self.write("has ended", error.status().symbol(), error.text());
            }
        }
    }

    fn write(&mut self, what: &str, status: &str, text: &str) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let (start, cut) = match self.ticket.get(..TICKET_BYTES) {
            Some(start) if self.ticket.len() > TICKET_BYTES => (start, "…"),
            _ => (self.ticket.as_slice(), ""),
        };
        let ticket = format!("{}{cut}", start.escape_ascii());
        let colon = if text.is_empty() { "" } else { ": " };
        let Self { method, peer, .. } = &*self;
        info!(
            target: "dipc::audit",
            verb = self.verb.name(),
            method,
            ticket,
            peer,
            subject = self.subject,
            principal = self.principal,
            bytes = self.bytes.load(Ordering::Relaxed),
            time_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            status,
            "{method} for `{ticket}` of {peer} {what}: {status}{colon}{text}"
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.write("has ended", "DIPC_ERR_DISCONNECTED", "the client has gone");
    }
}
