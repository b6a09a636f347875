//! URIs (rules U1 to U5).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Status};
use crate::proto::{Role, Tags};

/// A parsed URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// Scheme without the colon.
    pub scheme: String,
    /// Place of the server: `/path`, `@name` or `host:port`.
    pub address: String,
    /// The tags that the URI names, or the defaults.
    pub tags: Tags,
    /// Whether the server speaks our extension.
    pub extension: bool,
    /// A bare address, which says nothing of the extension: the server's messages show whether it
    /// is libdipc's (rule U5).
    pub is_bare: bool,
    /// The role that the URI names, if any.
    pub role: Option<Role>,
    /// Data that the transport needs to reach lent memory.
    pub remote_handle: Option<Vec<u8>>,
    /// UCX version of the server.
    pub ucx_version: Option<String>,
    /// The host of a server that only its own host can reach.
    pub host: Option<String>,
}

/// Characters to escape in a path or name, beside controls and non-ASCII: characters that end the
/// address (`?`, `#`) or that the URL parser changes (`\`, space at the end), and `%` itself.
const ADDRESS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// Characters to escape in the value of a parameter.
const VALUE: &AsciiSet = &ADDRESS.add(b'&').add(b'=').add(b'+').add(b'\'');

/// Rule U2: both alphabets are read, with or without padding. `base64` maps standard to URL-safe.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Status::InvalidUri, text)
}

impl Uri {
    /// The URI of a libdipc server at `address` with the default tags of `role` (rule U5).
    pub fn new(scheme: &str, address: &str, role: Role) -> Self {
        Self {
            scheme: scheme.to_owned(),
            address: address.to_owned(),
            tags: Tags::default_for(role),
            extension: true,
            is_bare: false,
            role: (role != Role::Both).then_some(role),
            remote_handle: None,
            ucx_version: None,
            host: None,
        }
    }

    /// Reads one URI of any scheme: the transports say which schemes they know.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, with a text that names the part at fault and the remedy.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_as(text, None)
    }

    /// Reads the URIs of one stream: one URI for both roles, or one for each role (rule U3). The
    /// result has the metadata's URI first, whatever the order of `texts`.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), or the URIs together do not serve both roles once.
    pub fn parse_all(texts: &[&str]) -> Result<Vec<Self>, Error> {
        match texts {
            [one] => {
                let uri = Self::parse(one)?;
                match uri.role {
                    None | Some(Role::Both) => Ok(vec![uri]),
                    Some(role) => Err(invalid(format!(
                        // Rule U3.
                        "`{one}` serves the {} stream only: give the URI of the other stream too",
                        role.as_str()
                    ))),
                }
            }
            [first, second] => {
                // Rule U3: without dipc_role, the first URI is metadata's and the second is data's.
                let first = Self::parse_as(first, Some(Role::Metadata))?;
                let other = match first.role {
                    Some(Role::Data) => Role::Metadata,
                    _ => Role::Data,
                };
                let second = Self::parse_as(second, Some(other))?;
                match (first.role, second.role) {
                    (Some(Role::Metadata), Some(Role::Data)) => Ok(vec![first, second]),
                    (Some(Role::Data), Some(Role::Metadata)) => Ok(vec![second, first]),
                    _ => Err(invalid(
                        // Rule U3.
                        "two URIs must serve metadata and data, one each: check their dipc_role",
                    )),
                }
            }
            _ => Err(invalid(format!(
                "{} URIs given: a stream has one, or two (metadata, then data)",
                texts.len()
            ))),
        }
    }

    /// The URI without its query: the address to listen at or connect to.
    pub fn bare(&self) -> String {
        if is_host_and_port(&self.address) {
            return format!("{}://{}", self.scheme, escape_zone(&self.address));
        }
        // Two slashes would start a host, so the second slash is escaped.
        let (start, rest) = match self.address.strip_prefix("//") {
            Some(rest) => ("/%2F", rest),
            None => ("", self.address.as_str()),
        };
        format!(
            "{}:{start}{}",
            self.scheme,
            utf8_percent_encode(rest, ADDRESS)
        )
    }

    fn parse_as(text: &str, role: Option<Role>) -> Result<Self, Error> {
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(invalid(format!(
                "`{}` has the control character U+{:04X}: write it escaped, as in %20",
                text.escape_debug(),
                u32::from(control)
            )));
        }
        let (plain, zone) = split_zone(text.trim())?;
        let url = url::Url::parse(&plain).map_err(|error| {
            invalid(format!(
                "`{text}` is not a URI ({error}): write it as in `shm:@name`, `shm:/path` or \
                 `tcp://host:port`"
            ))
        })?;
        if url.fragment().is_some() {
            return Err(invalid(format!(
                "`{text}` has a part after `#`: write `%23` in a path"
            )));
        }
        let mut address = address(text, &url)?;
        if let Some(zone) = zone {
            address = address.replacen(']', &format!("%{zone}]"), 1);
        }
        let parameters = Parameters::read(url.query().unwrap_or_default())
            .map_err(|error| error.context(format_args!("`{text}`")))?;
        let scheme = url.scheme().to_owned();
        parameters
            .into_uri(scheme, address, role)
            .map_err(|error| error.context(format_args!("`{text}`")))
    }
}

/// Takes the zone out of an IPv6 address (`[fe80::1%eth0]`), because the URL parser refuses zones.
/// A URI has the `%` before the zone as `%` or as `%25` (RFC 6874).
fn split_zone(text: &str) -> Result<(Cow<'_, str>, Option<String>), Error> {
    let is_scheme = |scheme: &str| !scheme.contains([':', '/', '?', '#']);
    let parts = text
        .split_once("://[")
        .filter(|(scheme, _)| is_scheme(scheme))
        .and_then(|(scheme, rest)| {
            let (host, behind) = rest.split_once(']')?;
            let (ip, zone) = host.split_once('%')?;
            Some((scheme, ip, zone, behind))
        });
    let Some((scheme, ip, zone, behind)) = parts else {
        return Ok((Cow::Borrowed(text), None));
    };
    let bare = zone.strip_prefix("25").filter(|zone| !zone.is_empty());
    let zone = percent_decode_str(bare.unwrap_or(zone)).decode_utf8();
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/@[]%?#".contains(c);
    match zone {
        Ok(zone) if !zone.is_empty() && !zone.contains(odd) => {
            let plain = format!("{scheme}://[{ip}]{behind}");
            Ok((Cow::Owned(plain), Some(zone.into_owned())))
        }
        _ => Err(invalid(format!(
            "`{text}` has no usable zone behind the `%` of its address: write the name or number \
             of an interface, as in `{scheme}://[fe80::1%25eth0]:4000`"
        ))),
    }
}

/// The `host:port` of a URI, with the `%` before a zone escaped.
pub(crate) fn escape_zone(address: &str) -> Cow<'_, str> {
    match address.split_once('%') {
        Some((ip, rest)) if address.starts_with('[') => {
            Cow::Owned(format!("{ip}%25{}", utf8_percent_encode(rest, ADDRESS)))
        }
        _ => Cow::Borrowed(address),
    }
}

/// The address part of a URI. The scheme says what form it has (rule U1).
fn address(text: &str, url: &url::Url) -> Result<String, Error> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(format!(
            "`{text}` names a user: the protocol has none, remove it"
        )));
    }
    let path = percent_decode_str(url.path())
        .decode_utf8()
        .map_err(|_| invalid(format!("the path of `{text}` is not UTF-8 once unescaped")))?;
    if path.chars().any(char::is_control) {
        return Err(invalid(format!(
            "the path of `{text}` has a control character"
        )));
    }
    let host = url.host_str().filter(|host| !host.is_empty());
    match (url.scheme(), host) {
        ("shm", Some(_)) => Err(invalid(format!(
            "`{text}` names a host: shm stays on one; write `shm:/path` with one slash"
        ))),
        ("shm", None) => match path.as_bytes() {
            [b'@', _, ..] | [b'/', _, ..] => Ok(path.into_owned()),
            _ => Err(invalid(format!(
                "`{text}` has no usable address: write an absolute path, as in `shm:/run/demo`, or \
                 an abstract name, as in `shm:@demo`"
            ))),
        },
        ("tcp" | "tls" | "ucx", host) => match (host, url.port(), &*path) {
            (Some(host), Some(port), "" | "/") => Ok(format!("{host}:{port}")),
            (Some(_), Some(_), _) => Err(invalid(format!(
                "`{text}` has a path: write `{}://host:port`",
                url.scheme()
            ))),
            _ => Err(invalid(format!(
                "`{text}` lacks a host or a port: write `{}://host:port`",
                url.scheme()
            ))),
        },
        // A transport that knows the scheme reads all others.
        (_, Some(host)) => match url.port() {
            Some(port) => Ok(format!("{host}:{port}{path}")),
            None => Ok(format!("{host}{path}")),
        },
        (_, None) if is_host_and_port(&path) => Err(invalid(format!(
            "`{text}` lacks the slashes before its host: write `{}://host:port`",
            url.scheme()
        ))),
        (_, None) => Ok(path.into_owned()),
    }
}

/// Whether the address is `host:port`, which follows `//` in a URI.
fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', '@']) && port.parse::<u16>().is_ok()
    })
}

/// The parameters that the protocol knows. Each occurs at most once.
#[derive(Default)]
struct Parameters {
    want_data: Option<u64>,
    free_data: Option<u64>,
    remote_handle: Option<Vec<u8>>,
    dipc: Option<u64>,
    dipc_want: Option<u64>,
    dipc_role: Option<Role>,
    dipc_ucx: Option<String>,
    dipc_host: Option<String>,
}

impl Parameters {
    fn read(query: &str) -> Result<Self, Error> {
        let mut all = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let malformed =
                |remedy: &str| invalid(format!("parameter {name} is malformed: {remedy}"));
            let value = || {
                let value = percent_decode_str(value).decode_utf8();
                value.map_err(|_| malformed("it is not UTF-8 once unescaped"))
            };
            let number = || {
                let value = value()?;
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let parsed = if digits {
                    u64::from_str(&value).ok()
                } else {
                    None
                };
                parsed.ok_or_else(|| malformed("it is a decimal number below 2^64"))
            };
            let first = match name {
                "want_data" => all.want_data.replace(number()?).is_none(),
                "free_data" => all.free_data.replace(number()?).is_none(),
                "dipc" => all.dipc.replace(number()?).is_none(),
                "dipc_want" => all.dipc_want.replace(number()?).is_none(),
                "remote_handle" => {
                    let handle = base64(&value()?).ok_or_else(|| malformed("it is base64"))?;
                    all.remote_handle.replace(handle).is_none()
                }
                "dipc_role" => {
                    let value = value()?;
                    let role = [Role::Both, Role::Metadata, Role::Data]
                        .into_iter()
                        .find(|role| role.as_str() == value)
                        .ok_or_else(|| malformed("it is both, metadata or data"))?;
                    all.dipc_role.replace(role).is_none()
                }
                "dipc_ucx" | "dipc_host" => {
                    let (place, remedy) = match name {
                        "dipc_ucx" => (&mut all.dipc_ucx, "it is a version, as in 1.13.1"),
                        _ => (
                            &mut all.dipc_host,
                            "copy the whole URI that the server printed",
                        ),
                    };
                    let value = value()?;
                    if value.is_empty() || value.chars().any(char::is_control) {
                        return Err(malformed(remedy));
                    }
                    place.replace(value.into_owned()).is_none()
                }
                // Rule U1: unknown parameters are ignored, with any value.
                _ => continue,
            };
            if !first {
                return Err(invalid(format!(
                    "parameter {name} is given twice: remove one"
                )));
            }
        }
        if all.dipc == Some(0) {
            return Err(invalid("parameter dipc is malformed: it is 1, or absent"));
        }
        Ok(all)
    }

    fn into_uri(self, scheme: String, address: String, role: Option<Role>) -> Result<Uri, Error> {
        let role = self.dipc_role.or(role);
        let defaults = Tags::default_for(role.unwrap_or(Role::Both));
        let bare = self.want_data.is_none() && self.dipc.is_none();
        let stray = [
            ("free_data", self.free_data.is_some()),
            ("remote_handle", self.remote_handle.is_some()),
            ("dipc_want", self.dipc_want.is_some()),
            ("dipc_ucx", self.dipc_ucx.is_some()),
            ("dipc_host", self.dipc_host.is_some()),
        ];
        if let Some((name, _)) = stray.iter().find(|(_, given)| bare && *given) {
            return Err(invalid(format!(
                // Rule U1.
                "parameter want_data is missing, though {name} is given: copy the whole URI that \
                 the server printed"
            )));
        }
        // Rules U1, U5: without want_data and dipc, the server is libdipc's, with its defaults.
        let extension = bare || self.dipc.is_some();
        let tags = Tags {
            want_data: self.want_data.unwrap_or(defaults.want_data),
            // Rule U2: without free_data no address list may come, unless all tags are defaults.
            free_data: if bare {
                defaults.free_data
            } else {
                self.free_data
            },
            // Has no meaning for a server without our extension.
            dipc_want: self
                .dipc_want
                .filter(|_| extension)
                .unwrap_or(defaults.dipc_want),
        };
        if extension {
            tags.validate()?
        } else {
            tags.validate_baseline()?
        }
        Ok(Uri {
            scheme,
            address,
            tags,
            extension,
            is_bare: bare,
            role,
            remote_handle: self.remote_handle,
            ucx_version: self.dipc_ucx,
            host: self.dipc_host,
        })
    }
}

/// Rule U2: base64 in either alphabet, with or without padding.
fn base64(value: &str) -> Option<Vec<u8>> {
    BASE64
        .decode(value.replace('+', "-").replace('/', "_"))
        .ok()
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// The whole URI. For a bare address it has the tags that are assumed for the server.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}?want_data={}", self.bare(), self.tags.want_data)?;
        if let Some(free_data) = self.tags.free_data {
            write!(f, "&free_data={free_data}")?;
        }
        if let Some(handle) = &self.remote_handle {
            write!(f, "&remote_handle={}", BASE64.encode(handle))?;
        }
        if self.extension {
            write!(f, "&dipc=1&dipc_want={}", self.tags.dipc_want)?;
        }
        if let Some(role) = self.role {
            write!(f, "&dipc_role={}", role.as_str())?;
        }
        if let Some(version) = &self.ucx_version {
            write!(f, "&dipc_ucx={}", utf8_percent_encode(version, VALUE))?;
        }
        if let Some(host) = &self.host {
            write!(f, "&dipc_host={}", utf8_percent_encode(host, VALUE))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/uri.rs"]
mod tests;
