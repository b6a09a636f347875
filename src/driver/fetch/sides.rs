//! The connections of a stream, by what they carry.

use crate::proto::Side;

/// One value for each connection of a stream.
#[derive(Debug)]
pub struct Sides<T> {
    /// Of the connection of the headers, and of the bodies where there is no other.
    pub metadata: T,
    /// Of the connection of the bodies, where they have their own.
    pub data: Option<T>,
}

impl<T> Sides<T> {
    /// Of one connection that carries everything.
    pub fn one(metadata: T) -> Self {
        Self {
            metadata,
            data: None,
        }
    }

    /// Of the connection of the bodies.
    pub fn bodies(&self) -> &T {
        self.data.as_ref().unwrap_or(&self.metadata)
    }

    /// Of one connection after the other, that of the headers first.
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

    /// The same of each connection.
    pub fn map<R>(&self, mut map: impl FnMut(&T) -> R) -> Sides<R> {
        Sides {
            metadata: map(&self.metadata),
            data: self.data.as_ref().map(map),
        }
    }
}
