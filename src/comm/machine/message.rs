//! Messages of control streams, by which ranks watch each other.

use super::layout::Rank;
use super::text::{bounded, put_text, take_text};
use crate::error::{Error, Status};
use crate::proto::Fields;

/// Most bytes of the text of a failure.
const MOST_TEXT: usize = 4096;

const BEAT: u8 = 1;
const FAILED: u8 = 2;
const LEFT: u8 = 3;

/// Why a communicator has failed, equal at all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The rank that failed; `None` if the cause is not a rank.
    pub rank: Option<Rank>,
    /// The status of every pending and later call.
    pub status: Status,
    /// The text for people. The text names the rank and the cause.
    pub text: String,
}

impl Failure {
    /// A failure whose text has at most 4096 bytes. A status that concerns the pointers, handles
    /// and process of one rank alone becomes [`Status::Disconnected`].
    pub(super) fn new(rank: Option<Rank>, status: Status, text: &str) -> Self {
        Self {
            rank,
            status: for_peers(status),
            text: bounded(text, MOST_TEXT).to_owned(),
        }
    }

    /// The error of every pending and later call.
    pub fn to_error(&self) -> Error {
        Error::new(self.status, self.text.as_str())
    }
}

/// A message between neighbours of the tree of control streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The sender is alive.
    Beat,
    /// The communicator has failed.
    Failed(Failure),
    /// The sender has left the communicator, and sends no more.
    Left,
}

impl Message {
    /// The bytes of the message; at most about 4 KiB. A longer text is cut.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Beat => vec![BEAT],
            Self::Left => vec![LEFT],
            Self::Failed(failure) => {
                let mut bytes = vec![FAILED, u8::from(failure.rank.is_some())];
                let rank = failure.rank.unwrap_or_default();
                bytes.extend_from_slice(&rank.to_le_bytes());
                let status = for_peers(failure.status).code();
                bytes.extend_from_slice(&status.to_le_bytes());
                put_text(&mut bytes, &failure.text, MOST_TEXT);
                bytes
            }
        }
    }

    /// The message with these bytes.
    ///
    /// # Errors
    ///
    /// Protocol: [`encode`](Self::encode) does not give these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse(bytes)
            .ok_or_else(|| Error::protocol("a message of a control stream is malformed"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let message = match fields.take::<u8>()? {
            BEAT => Self::Beat,
            LEFT => Self::Left,
            FAILED => {
                let named = fields.take::<u8>()?;
                let rank = fields.take()?;
                let status = Status::from_code(fields.take()?)?;
                Self::Failed(Failure {
                    rank: match (named, rank) {
                        (0, 0) => None,
                        (1, rank) => Some(rank),
                        _ => return None,
                    },
                    status: status.is_for_peers().then_some(status)?,
                    text: take_text(&mut fields, MOST_TEXT)?,
                })
            }
            _ => return None,
        };
        fields.end()?;
        Some(message)
    }
}

fn for_peers(status: Status) -> Status {
    match status.is_for_peers() {
        true => status,
        false => Status::Disconnected,
    }
}
