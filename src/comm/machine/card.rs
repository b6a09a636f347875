//! How a process introduces itself at a meeting.

use std::fmt;

use super::layout::{MOST_RANKS, Rank};
use super::text::{put_text, take_text};
use crate::error::Error;
use crate::proto::Fields;

/// First byte of a card: the format.
const FORMAT: u8 = 1;

/// Most bytes of a host, of a URI and of a secret.
const MOST_TEXT: usize = 4096;

/// Most URIs of a card.
const MOST_URIS: usize = 64;

/// What other ranks must know of a process. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Card {
    /// The rank that the process wants; `None` for any.
    pub rank: Option<Rank>,
    /// The number of ranks that the process expects.
    pub size: u32,
    /// The identity of its host: processes with equal texts share memory.
    pub host: String,
    /// Where the process listens, best first.
    pub uris: Vec<String>,
    /// What a rank must say to be let in by the process.
    pub secret: String,
}

impl Card {
    /// The bytes of the card. A text after its first 4096 bytes, and URIs after the first 64, are
    /// left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, u8::from(self.rank.is_some())];
        bytes.extend_from_slice(&self.rank.unwrap_or_default().to_le_bytes());
        bytes.extend_from_slice(&self.size.to_le_bytes());
        put_text(&mut bytes, &self.host, MOST_TEXT);
        put_text(&mut bytes, &self.secret, MOST_TEXT);
        for uri in self.uris.iter().take(MOST_URIS) {
            put_text(&mut bytes, uri, MOST_TEXT);
        }
        bytes
    }

    /// The card with these bytes.
    ///
    /// # Errors
    ///
    /// Protocol: [`encode`](Self::encode) does not give these bytes, the size is 0 or over
    /// [`MOST_RANKS`], or the rank is not below the size.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse(bytes).ok_or_else(|| Error::protocol("the card of a rank is malformed"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        (fields.take::<u8>()? == FORMAT).then_some(())?;
        let named = fields.take::<u8>()?;
        let rank: Rank = fields.take()?;
        let size: u32 = fields.take()?;
        let rank = match (named, rank) {
            (0, 0) => None,
            (1, rank) if rank < size => Some(rank),
            _ => return None,
        };
        (1..=MOST_RANKS).contains(&size).then_some(())?;
        let host = take_text(&mut fields, MOST_TEXT)?;
        let secret = take_text(&mut fields, MOST_TEXT)?;
        let mut uris = Vec::new();
        while fields.len() > 0 {
            (uris.len() < MOST_URIS).then_some(())?;
            uris.push(take_text(&mut fields, MOST_TEXT)?);
        }
        Some(Self {
            rank,
            size,
            host,
            uris,
            secret,
        })
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("host", &self.host)
            .field("uris", &self.uris)
            .finish_non_exhaustive()
    }
}
