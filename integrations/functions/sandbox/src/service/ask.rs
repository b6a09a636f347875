use std::fmt;
use std::str::FromStr;

use super::Refusal;
use crate::module;

/// The header that makes a request one for functions. Its value is `call HASH FUNCTION`,
/// `alone HASH FUNCTION` or `module HASH`.
pub const HEADER: &str = "function";
/// The header, with [`HEADER`] as its value, by which a server that runs no functions refuses the
/// request (libdipc's rule Q13).
pub const NEEDS: &str = "needs-middleware";
/// The header with the arguments of a call.
pub const ARGUMENTS: &str = "function-arguments";
/// The header with the signature of a module: Ed25519 over [`signed_bytes`].
pub const SIGNATURE: &str = "function-signature";

/// The SHA-256 of a module's bytes, which names the module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of these bytes.
    pub fn of(wasm: &[u8]) -> Self {
        Self(module::hash(wasm))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let malformed = || Refusal::Malformed(format!("{text:?} is not a hash: 64 hex digits"));
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = str::from_utf8(pair).map_err(|_| malformed())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| malformed())?;
        }
        Ok(Self(hash))
    }
}

/// The bytes that a module's signature signs.
pub fn signed_bytes(hash: &Hash) -> Vec<u8> {
    [b"libdipc function module 1\0".as_slice(), &hash.0].concat()
}

/// A function that shall run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The module.
    pub module: Hash,
    /// The function of the module.
    pub function: String,
    /// Bytes for the function.
    pub arguments: Vec<u8>,
}

/// What a request for functions asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A function on the request's table.
    Call(Call),
    /// A function without a table.
    Alone(Call),
    /// To keep a module, whose bytes the request's table has.
    Module(Hash),
}

impl Ask {
    /// Reads the headers of a request: the values of [`HEADER`] and [`ARGUMENTS`].
    ///
    /// # Errors
    ///
    /// [`Refusal::Malformed`].
    pub fn parse(value: &[u8], arguments: Option<&[u8]>) -> Result<Self, Refusal> {
        let malformed = || {
            Refusal::Malformed(format!(
                "the header `{HEADER}` is none of `call HASH FUNCTION`, `alone HASH FUNCTION` and \
                 `module HASH`"
            ))
        };
        let text = str::from_utf8(value).map_err(|_| malformed())?;
        let mut words = text.splitn(3, ' ');
        let (kind, hash) = (words.next(), words.next().ok_or_else(malformed)?.parse()?);
        match (kind, words.next()) {
            (Some("module"), None) => Ok(Self::Module(hash)),
            (Some(kind @ ("call" | "alone")), Some(function)) => {
                let call = Call {
                    module: hash,
                    function: function.to_owned(),
                    arguments: arguments.unwrap_or_default().to_vec(),
                };
                Ok(match kind {
                    "call" => Self::Call(call),
                    _ => Self::Alone(call),
                })
            }
            _ => Err(malformed()),
        }
    }

    /// The value of [`HEADER`] that asks so.
    pub fn header(&self) -> String {
        match self {
            Self::Call(call) => format!("call {} {}", call.module, call.function),
            Self::Alone(call) => format!("alone {} {}", call.module, call.function),
            Self::Module(hash) => format!("module {hash}"),
        }
    }
}
