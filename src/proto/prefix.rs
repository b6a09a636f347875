//! The 5 bytes before each metadata message.

use crate::proto::ProtocolError;
use crate::proto::wire::Fields;

/// Kinds of metadata messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrefixKind {
    /// The stream ends; nothing follows the prefix (rule M5).
    EndOfStream,
    /// One Arrow IPC header follows (rule M2).
    Metadata,
    /// The message has the same header as the message before, and nothing follows the prefix. Our
    /// extension: only if both ends support [`FEATURE_REPEAT`](crate::proto::FEATURE_REPEAT).
    Repeat,
}

/// The prefix of a metadata message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Kind of the message.
    pub kind: PrefixKind,
    /// Sequence number.
    pub seq: u32,
}

impl Prefix {
    /// The bytes (rule M3).
    pub const fn encode(self) -> [u8; 5] {
        // Rule M3: kind, then the number, little-endian.
        let [a, b, c, d] = self.seq.to_le_bytes();
        let kind = match self.kind {
            PrefixKind::EndOfStream => 0,
            PrefixKind::Metadata => 1,
            PrefixKind::Repeat => 2,
        };
        [kind, a, b, c, d]
    }

    /// Splits a message into its prefix and the flatbuffer bytes after it.
    ///
    /// # Errors
    ///
    /// The message is shorter than a prefix (rule M2), has an unknown kind (rule M3), or has bytes
    /// after a prefix that ends the stream (rule M5) or repeats a header (rule M3).
    pub fn split(message: &[u8]) -> Result<(Self, &[u8]), ProtocolError> {
        let mut fields = Fields::new(message);
        let (Some(kind), Some(seq)) = (fields.take::<u8>(), fields.take::<u32>()) else {
            return Err(broken!(
                "M2",
                "metadata message of {} bytes: it starts with 5 of prefix",
                message.len()
            ));
        };
        let header = fields.rest();
        let kind = match kind {
            // Rule M5: exactly 5 bytes.
            0 if !header.is_empty() => {
                return Err(broken!(
                    "M5",
                    "end of stream of {} bytes: it has exactly 5",
                    message.len()
                ));
            }
            0 => PrefixKind::EndOfStream,
            1 => PrefixKind::Metadata,
            2 if header.is_empty() => PrefixKind::Repeat,
            2 => {
                return Err(broken!(
                    "M3",
                    "message of {} bytes that repeats a header: it has exactly 5",
                    message.len()
                ));
            }
            kind => {
                return Err(broken!(
                    "M3",
                    "metadata message of unknown kind {kind}: 0 and 1 are known"
                ));
            }
        };
        Ok((Self { kind, seq }, header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule M3: kind in byte 0, number little-endian in bytes 1..5.
    #[test]
    fn layout() {
        let metadata = Prefix {
            kind: PrefixKind::Metadata,
            seq: 0x0403_0201,
        };
        assert_eq!(metadata.encode(), [1, 1, 2, 3, 4]);
        let end = Prefix {
            kind: PrefixKind::EndOfStream,
            seq: u32::MAX,
        };
        assert_eq!(end.encode(), [0, 255, 255, 255, 255]);
        assert_eq!(Prefix::split(&end.encode()), Ok((end, &[][..])));
        let repeat = Prefix {
            kind: PrefixKind::Repeat,
            seq: 7,
        };
        assert_eq!(repeat.encode(), [2, 7, 0, 0, 0]);
        assert_eq!(Prefix::split(&repeat.encode()), Ok((repeat, &[][..])));
        assert_eq!(
            Prefix::split(&[1, 1, 2, 3, 4, 9, 8]),
            Ok((metadata, &[9, 8][..]))
        );
    }

    /// Rules M2, M3, M5: a short message, an unknown kind, and bytes after an end of stream.
    #[test]
    fn malformed_prefixes_are_rejected() {
        for len in 0..5 {
            assert_eq!(Prefix::split(&vec![1; len]).unwrap_err().rule(), "M2");
        }
        assert_eq!(Prefix::split(&[2, 0, 0, 0, 0, 0]).unwrap_err().rule(), "M3");
        for kind in 3..=255 {
            assert_eq!(Prefix::split(&[kind, 0, 0, 0, 0]).unwrap_err().rule(), "M3");
        }
        assert_eq!(Prefix::split(&[0, 0, 0, 0, 0, 0]).unwrap_err().rule(), "M5");
    }
}
