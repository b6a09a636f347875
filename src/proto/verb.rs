//! Verbs of requests (rule Q1).

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// The server sends a table.
    Get,
    /// The client sends a table.
    Put,
    /// The client and the server each send a table.
    Exchange,
    /// The server explains a descriptor.
    Describe,
    /// The server lists its descriptors.
    List,
    /// A verb of a later version.
    Unknown(u8),
}

impl Verb {
    /// The number on the wire.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Get => 1,
            Self::Put => 2,
            Self::Exchange => 3,
            Self::Describe => 4,
            Self::List => 5,
            Self::Unknown(number) => number,
        }
    }

    /// The verb with this number.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Get,
            2 => Self::Put,
            3 => Self::Exchange,
            4 => Self::Describe,
            5 => Self::List,
            other => Self::Unknown(other),
        }
    }

    /// Whether the client sends a stream.
    #[doc(hidden)]
    pub fn has_source(self) -> bool {
        matches!(self, Self::Put | Self::Exchange)
    }

    /// The name, for texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Exchange => "exchange",
            Self::Describe => "describe",
            Self::List => "list",
            Self::Unknown(_) => "an unknown verb",
        }
    }
}
