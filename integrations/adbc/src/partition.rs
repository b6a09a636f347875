//! Partition descriptors: which part, and where it is.

use adbc_core::error::Result;

use crate::error::invalid;

/// The first bytes of a descriptor: its format and the version of the format.
const MAGIC: &[u8; 6] = b"dipc\0\x01";

/// A part of a result set that any process can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The server that was asked, which has the part if `uris` is empty.
    pub(crate) asked: String,
    /// Servers that have the part, best first.
    pub(crate) uris: Vec<String>,
    pub(crate) ticket: Vec<u8>,
}

impl Partition {
    /// The texts and the ticket, each behind its length as a little-endian u64.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let texts = std::iter::once(&self.asked).chain(&self.uris);
        let parts = std::iter::once(self.ticket.as_slice()).chain(texts.map(String::as_bytes));
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// # Errors
    ///
    /// `InvalidArguments`: the bytes are none that [`encode`](Self::encode) gives.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes)
            .ok_or_else(|| invalid("the partition is not one that this driver has described"))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let ticket = part(&mut rest)?.to_vec();
        let asked = text(&mut rest)?;
        let mut uris = Vec::new();
        while !rest.is_empty() {
            uris.push(text(&mut rest)?);
        }
        Some(Self {
            asked,
            uris,
            ticket,
        })
    }
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (part, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(part(rest)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_read_back() {
        for uris in [vec![], vec!["tls://a:1".to_owned(), "shm:@b".to_owned()]] {
            let partition = Partition {
                asked: "tcp://127.0.0.1:1".to_owned(),
                uris,
                ticket: b"\0part\xff".to_vec(),
            };
            let bytes = partition.encode();
            assert_eq!(Partition::decode(&bytes).unwrap(), partition);
            // A descriptor that was cut is refused, or has fewer URIs.
            for end in 0..bytes.len() {
                let cut = Partition::decode(&bytes[..end]);
                assert!(cut.is_err() || cut.unwrap().uris.len() < partition.uris.len());
            }
        }
    }

    #[test]
    fn other_bytes_are_no_partitions() {
        let mut huge = MAGIC.to_vec();
        huge.extend_from_slice(&u64::MAX.to_le_bytes());
        for bytes in [&b""[..], b"dipc", b"lineitem", &huge] {
            assert!(Partition::decode(bytes).is_err());
        }
    }
}
