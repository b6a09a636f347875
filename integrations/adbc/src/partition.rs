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
    /// The number of URIs, then the ticket and the texts, each after its length. Numbers are
    /// little-endian u64.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(self.uris.len() as u64).to_le_bytes());
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
    /// `InvalidArguments`: [`encode`](Self::encode) does not give such bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes)
            .ok_or_else(|| invalid("the partition is not one that this driver has described"))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let count = number(&mut rest)?;
        let ticket = part(&mut rest)?.to_vec();
        let asked = text(&mut rest)?;
        let uris = (0..count).map(|_| text(&mut rest)).collect::<Option<_>>()?;
        rest.is_empty().then_some(Self {
            asked,
            uris,
            ticket,
        })
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (part, after) = rest.split_at_checked(length)?;
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
            for end in 0..bytes.len() {
                assert!(Partition::decode(&bytes[..end]).is_err(), "{end}");
            }
            let longer = [bytes, vec![0]].concat();
            assert!(Partition::decode(&longer).is_err());
        }
    }

    #[test]
    fn other_bytes_are_no_partitions() {
        let huge = |number: u64| {
            let numbers = [number, u64::MAX, 0].map(u64::to_le_bytes);
            [&MAGIC[..], numbers.as_flattened()].concat()
        };
        for bytes in [&b""[..], b"dipc", b"lineitem", &huge(0), &huge(u64::MAX)] {
            assert!(Partition::decode(bytes).is_err());
        }
    }
}
