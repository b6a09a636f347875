//! The connections of a stream, by what they carry.

use crate::proto::Side;

/// One value for each connection of a stream.
#[derive(Debug)]
pub struct Sides<T> {
    /// The value of the connection of the headers. If there is no other one, it carries the bodies
    /// too.
    pub metadata: T,
    /// The value of the connection of the bodies, if they have their own.
    pub data: Option<T>,
}

impl<T> Sides<T> {
    /// The value of one connection that carries everything.
    pub fn one(metadata: T) -> Self {
        Self {
            metadata,
            data: None,
        }
    }

    /// The value of the connection that carries the bodies.
    pub fn bodies(&self) -> &T {
        self.data.as_ref().unwrap_or(&self.metadata)
    }

    /// The values of all connections, that of the headers first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [Some(&self.metadata), self.data.as_ref()]
            .into_iter()
            .flatten()
    }

    /// The same, with what each connection carries.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Side, &mut T)> {
        [
            Some((Side::Metadata, &mut self.metadata)),
            self.data.as_mut().map(|data| (Side::Data, data)),
        ]
        .into_iter()
        .flatten()
    }

    /// Maps the value of each connection.
    pub fn map<R>(&self, mut map: impl FnMut(&T) -> R) -> Sides<R> {
        Sides {
            metadata: map(&self.metadata),
            data: self.data.as_ref().map(map),
        }
    }
}
