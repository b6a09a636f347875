//! Why TLS came to nothing, in words that go behind the peer's name.

use rustls::{AlertDescription, CertificateError, Error as TlsError, PeerIncompatible};

use crate::error::{Error, Status};

/// `Permission` where one side does not trust the other, otherwise `Disconnected`: the connection
/// of one peer.
pub fn explain(error: &TlsError) -> Error {
    match error {
        TlsError::InvalidCertificate(why) => Error::new(
            Status::Permission,
            format!("cannot be trusted: {}", of_certificate(why)),
        ),
        TlsError::NoCertificatesPresented => Error::new(
            Status::Permission,
            "showed no certificate, and this server asks for one",
        ),
        TlsError::AlertReceived(alert) => of_alert(*alert),
        TlsError::NoApplicationProtocol => {
            Error::disconnected("offered other protocols than libdipc's (ALPN `dipc/1`)")
        }
        TlsError::PeerIncompatible(why) => Error::disconnected(match why {
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => {
                "speaks an older TLS than 1.3, which is needed".to_owned()
            }
            other => format!("and this side have no way of TLS in common ({other:?})"),
        }),
        TlsError::InvalidMessage(why) => Error::disconnected(format!(
            "does not speak TLS (it sent what is none: {why:?})"
        )),
        TlsError::DecryptError => Error::disconnected(
            "sent bytes that were changed on the way, or are not its own (TLS does not open them)",
        ),
        TlsError::HandshakeNotComplete => {
            Error::disconnected("ended the connection before TLS was agreed on")
        }
        other => Error::disconnected(format!("broke a rule of TLS: {other}")),
    }
}

/// [`explain`] for a handshake; `authorities` names the option with the authorities that this side
/// trusts.
pub fn of_handshake(error: &TlsError, authorities: &str) -> Error {
    let explained = explain(error);
    match error {
        TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Error::new(
            explained.status(),
            format!(
                "{}; name that authority's file ({authorities}, in the command --tls-ca FILE)",
                explained.text()
            ),
        ),
        _ => explained,
    }
}

fn of_certificate(why: &CertificateError) -> String {
    use CertificateError as Why;
    let text = match why {
        Why::Expired | Why::ExpiredContext { .. } => "its certificate has expired",
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "its certificate is not valid yet; are the clocks right?"
        }
        // An authority may have the name of another, as one has after a new key.
        Why::UnknownIssuer
        | Why::BadSignature
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is of an authority that is not trusted here"
        }
        Why::NotValidForName => "its certificate is for another name than it was called by",
        Why::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
            let (names, expected) = (names.join(", "), expected.to_str());
            return format!("its certificate is for {names}, not for {expected}");
        }
        Why::Revoked => "its certificate has been revoked",
        Why::InvalidPurpose | Why::InvalidPurposeContext { .. } => {
            "its certificate is for another purpose"
        }
        // rustls passes on what it has no name for.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own, as `openssl req -x509` makes them; make it again \
             with -addext basicConstraints=critical,CA:FALSE, or have the authority sign another one \
             for the server"
        }
        other => return format!("its certificate is not sound ({other})"),
    };
    text.to_owned()
}

/// A name in a certificate, which rustls gives with its kind, as in `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, name)| name.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// What the peer's word for the end means.
pub fn of_alert(alert: AlertDescription) -> Error {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::CertificateRequired => {
            "asks for this side's certificate; give one and its key (tls, in the command --tls-cert \
             FILE --tls-key FILE)"
        }
        Alert::UnknownCA => "does not know the authority of this side's certificate",
        Alert::CertificateExpired => "says that this side's certificate has expired",
        Alert::CertificateRevoked => "says that this side's certificate has been revoked",
        Alert::BadCertificate
        | Alert::DecryptError
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::AccessDenied => {
            let text = format!("does not accept this side's certificate ({alert:?})");
            return Error::new(Status::Permission, text);
        }
        Alert::NoApplicationProtocol => {
            let text = "speaks TLS, but not libdipc's protocol (ALPN `dipc/1`)";
            return Error::disconnected(text);
        }
        Alert::ProtocolVersion => {
            return Error::disconnected("speaks another TLS than 1.3, which is needed");
        }
        other => return Error::disconnected(format!("ended TLS: {other:?}")),
    };
    Error::new(Status::Permission, text)
}
