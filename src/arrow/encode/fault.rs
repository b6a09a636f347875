//! A fault of a producer's array, with the path of its field.

use crate::error::{Error, Status};

/// An error of the walk over an array. Each level adds its field's name as the error returns, so
/// that a valid array needs no path.
#[derive(Debug)]
pub(super) struct Fault {
    status: Status,
    text: String,
    /// The innermost name first.
    path: Vec<String>,
}

/// The result of a step of the walk over an array.
pub(super) type Checked<T> = Result<T, Box<Fault>>;

impl Fault {
    /// The array breaks the C data interface, or does not match its schema.
    #[cold]
    pub(super) fn invalid(text: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            status: Status::InvalidData,
            text: text.into(),
            path: Vec::new(),
        })
    }

    /// The same fault, inside the field `name`.
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
