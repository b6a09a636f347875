//! Who a certificate is for.

use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::error::{Error, Result, Status};
use crate::transport::peer::PeerCertificate;

impl PeerCertificate {
    /// What a certificate in DER says. Whether it is sound is another question.
    ///
    /// # Errors
    ///
    /// `Permission` when it cannot be read.
    #[doc(hidden)]
    pub fn from_der(certificate: &[u8]) -> Result<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| {
            Error::new(
                Status::Permission,
                format!("showed a certificate that cannot be read: {error}"),
            )
        })?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.iter().filter_map(name).collect());
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Ok(Self {
            subject: parsed.subject().to_string(),
            names: names.unwrap_or_default(),
            fingerprint: digest
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        })
    }
}

/// A name, with its kind before a colon; `None` for kinds that name no peer.
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
        GeneralName::URI(uri) => Some(format!("URI:{uri}")),
        GeneralName::RFC822Name(mail) => Some(format!("email:{mail}")),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| format!("IP:{ip}")),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}
