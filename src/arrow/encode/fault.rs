//! What is wrong with a producer's array, and where.

use crate::error::{Error, Status};

/// An error under way: each level of the walk adds the name of its field on the way up, so that
/// arrays without fault pay nothing for the path.
#[derive(Debug)]
pub(super) struct Fault {
    status: Status,
    text: String,
    /// Innermost name first.
    path: Vec<String>,
}

/// The result of a step of the walk over an array.
pub(super) type Checked<T> = Result<T, Box<Fault>>;

impl Fault {
    /// The array breaks the C data interface, or is not what its schema says.
    #[cold]
    pub(super) fn invalid(text: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            status: Status::InvalidData,
            text: text.into(),
            path: Vec::new(),
        })
    }

    /// The same fault, found in the field `name`.
    #[cold]
    pub(super) fn inside(mut self: Box<Self>, name: &str) -> Box<Self> {
        self.path.push(name.to_owned());
        self
    }
}

impl From<Error> for Box<Fault> {
    fn from(error: Error) -> Self {
        Box::new(Fault {
            status: error.status(),
            text: error.text().to_owned(),
            path: Vec::new(),
        })
    }
}

impl From<Box<Fault>> for Error {
    fn from(fault: Box<Fault>) -> Self {
        if fault.path.is_empty() {
            return Self::new(fault.status, fault.text);
        }
        let path: Vec<&str> = fault.path.iter().rev().map(String::as_str).collect();
        Self::new(
            fault.status,
            format!("field `{}`: {}", path.join("."), fault.text),
        )
    }
}
