//! Errors of a peer that broke a rule.

use std::fmt;

use crate::error::Error;

/// The [`ProtocolError`] of a peer that broke a rule: `broken!("D6", "text {value}")`.
macro_rules! broken {
    ($rule:literal, $($text:tt)*) => {
        $crate::proto::ProtocolError::new($rule, format!($($text)*))
    };
}

/// An error of the peer against a rule of the protocol. The error names the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError {
    rule: &'static str,
    text: String,
}

impl ProtocolError {
    /// The peer broke `rule`. `text` says what the peer did and, if possible, the remedy.
    pub fn new(rule: &'static str, text: impl Into<String>) -> Self {
        Self {
            rule,
            text: text.into(),
        }
    }

    /// The name of the rule, as in `D6`.
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// The fault of the peer, without the name of the rule.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Error {
    fn from(error: ProtocolError) -> Self {
        Self::of_rule(error.rule, error.text)
    }
}
