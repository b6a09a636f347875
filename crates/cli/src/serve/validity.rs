//! Warns of a certificate of the server's own that clients will refuse for its dates.

use std::path::Path;

use tracing::warn;
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;

/// Warns if the server's certificate, the first one of a PEM file, is not valid now. Other code
/// reports a file that cannot be read.
pub fn warn_of(file: &Path) {
    let Ok(pem) = std::fs::read(file) else { return };
    if let Some(text) = of(&pem, ASN1Time::now()) {
        warn!("{} {text}", file.display());
    }
}

/// Why the first certificate of a PEM file is not valid at a time.
fn of(pem: &[u8], now: ASN1Time) -> Option<String> {
    let first = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|part| part.label == "CERTIFICATE")?;
    let dates = first.parse_x509().ok()?.validity().clone();
    if now > dates.not_after {
        let until = dates.not_after;
        return Some(format!(
            "is a certificate that was valid until {until}: clients refuse it; put a new one \
             there, and send SIGHUP"
        ));
    }
    if now < dates.not_before {
        let from = dates.not_before;
        return Some(format!(
            "is a certificate that is valid from {from} on: clients refuse it until then, if this \
             machine's clock is right"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// The warning comes before the first and after the last day of a certificate, and names that
    /// day.
    #[test]
    fn dates_are_named() {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2030, 1, 2);
        params.not_after = date_time_ymd(2030, 3, 4);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let pem = format!("{}{pem}", key.serialize_pem());
        let at = |(year, month, day)| {
            let at = date_time_ymd(year, month, day).unix_timestamp();
            of(pem.as_bytes(), ASN1Time::from_timestamp(at).unwrap())
        };
        let early = at((2030, 1, 1)).unwrap();
        assert!(early.contains("valid from Jan  2"), "{early}");
        assert_eq!(at((2030, 2, 1)), None);
        let late = at((2030, 3, 5)).unwrap();
        assert!(late.contains("valid until Mar  4"), "{late}");
        assert_eq!(of(b"nothing", ASN1Time::now()), None);
    }
}
