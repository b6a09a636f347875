//! What servers tell each other of a call that goes on.

use super::Refusal;

/// The header with the number of hops that a call has left which comes from another server.
pub const HOPS: &str = "function-hops";

/// Begins the text of an error of another server.
const AT: &str = "where the function went on, at ";

/// Reads the value of [`HOPS`], if the request has one.
///
/// # Errors
///
/// [`Refusal::Malformed`].
pub fn hops(value: Option<&[u8]>) -> Result<Option<u32>, Refusal> {
    let Some(value) = value else {
        return Ok(None);
    };
    let text = str::from_utf8(value).ok();
    match text.and_then(|text| text.parse().ok()) {
        Some(hops) => Ok(Some(hops)),
        None => Err(Refusal::Malformed(format!(
            "the header `{HOPS}` is no number of hops"
        ))),
    }
}

/// The text of an error of the server at this URI. A text that names a server already names no other:
/// of a chain that one counts where the error arose.
pub fn arose_at(uri: &str, text: &str) -> String {
    match text.find(AT) {
        Some(begin) => text[begin..].to_owned(),
        None => format!("{AT}{}: {text}", bare(uri)),
    }
}

/// A URI without its parameters, which name tags of a connection.
pub(super) fn bare(uri: &str) -> &str {
    uri.split_once('?').map_or(uri, |(bare, _)| bare)
}
