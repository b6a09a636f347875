//! Address lists and free lists.

use smallvec::SmallVec;

use crate::proto::ProtocolError;
use crate::proto::wire::Fields;

/// The bytes of a message. Most messages are short, such as a list of two buffers or a repeated
/// header, and need no allocation.
pub type Bytes = SmallVec<[u8; SHORT_BYTES]>;
/// Longest message that needs no allocation, in bytes.
const SHORT_BYTES: usize = 48;

/// The lent spans of one body. Most bodies have two buffers: a bitmap and values.
pub type Spans = SmallVec<[Span; 2]>;

/// A piece of lent memory, as on the wire. The default is an empty buffer (rule A1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Address or offset, as the transport defines it; 0 when `length` is 0.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The body of a message as a list of memory that the peer fetches (rule D4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressList {
    /// Sum of the lengths.
    pub total: u64,
    /// One span for each buffer of the header (rule A1).
    pub spans: Vec<Span>,
}

impl AddressList {
    /// The list of these spans.
    ///
    /// # Errors
    ///
    /// The sum of the lengths does not fit in a u64, or a span breaks rule A1 or F3 (as
    /// [`decode`](Self::decode)).
    pub fn new(spans: Vec<Span>) -> Result<Self, ProtocolError> {
        let total = Self::total_of(&spans)?;
        Ok(Self { total, spans })
    }

    /// The sum of the lengths of these spans.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn total_of(spans: &[Span]) -> Result<u64, ProtocolError> {
        let mut total = 0_u64;
        for (index, span) in spans.iter().enumerate() {
            // Rules A1, F3: an empty buffer is (0, 0), and no lent memory lies at address 0.
            if (span.address == 0) != (span.length == 0) {
                return Err(broken!(
                    "F3",
                    "buffer {index} of an address list is {} bytes at address {:#x}: empty \
                         ones are (0, 0) and nothing else lies at 0",
                    span.length,
                    span.address
                ));
            }
            // Rule A1: the sum must not overflow.
            total = total
                .checked_add(span.length)
                .ok_or_else(|| broken!("A1", "the lengths of an address list overflow 64 bits"))?;
        }
        Ok(total)
    }

    /// The bytes (rule D4).
    pub fn encode(&self) -> Bytes {
        Self::bytes_of(self.total, &self.spans)
    }

    /// The bytes of the list of these spans, whose lengths add up to `total`.
    pub fn bytes_of(total: u64, spans: &[Span]) -> Bytes {
        let pair = |first, second| (u128::from(first) | u128::from(second) << 64).to_le_bytes();
        let mut pairs = SmallVec::<[[u8; 16]; 3]>::with_capacity(spans.len().saturating_add(1));
        pairs.push(pair(total, spans.len() as u64));
        pairs.extend(spans.iter().map(|span| pair(span.address, span.length)));
        if pairs.spilled() {
            return pairs.into_vec().into_flattened().into();
        }
        Bytes::from_slice(pairs.as_flattened())
    }

    /// Reads a list. Checks the count against the bytes before the first allocation.
    ///
    /// # Errors
    ///
    /// The bytes are not a list (rule D4), a span breaks rule F3, or the total is not the sum of
    /// the lengths (rule A1).
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = Fields::new(bytes);
        let (Some(total), Some(count)) = (fields.take::<u64>(), fields.take::<u64>()) else {
            return Err(broken!(
                "D4",
                "address list of {} bytes: it starts with total and count",
                bytes.len()
            ));
        };
        let (pairs, rest) = fields.rest().as_chunks::<16>();
        if !rest.is_empty() || pairs.len() as u64 != count {
            return Err(broken!(
                "D4",
                "address list of {} bytes says {count} buffers: 16 bytes for each, after 16",
                bytes.len()
            ));
        }
        let spans = pairs
            .iter()
            .map(|pair| {
                // The low half is the address, the high half the length.
                let pair = u128::from_le_bytes(*pair);
                let low = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
                Span {
                    address: low(pair),
                    length: low(pair >> 64),
                }
            })
            .collect();
        let list = Self::new(spans)?;
        if list.total != total {
            return Err(broken!(
                "A1",
                "address list says {total} bytes, its lengths add up to {}",
                list.total
            ));
        }
        Ok(list)
    }

    /// The addresses to free after use: one for each span that is not empty (rule F3).
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.spans
            .iter()
            .filter(|span| span.length != 0)
            .map(|span| span.address)
    }
}

/// A free list (rule F1).
pub fn encode_frees(addresses: &[u64]) -> Vec<u8> {
    addresses
        .iter()
        .flat_map(|address| address.to_le_bytes())
        .collect()
}

/// Reads a free list.
///
/// # Errors
///
/// Rule F1: the list is empty, or not a whole number of addresses.
pub fn decode_frees(bytes: &[u8]) -> Result<Vec<u64>, ProtocolError> {
    let (addresses, rest) = bytes.as_chunks::<8>();
    if addresses.is_empty() || !rest.is_empty() {
        return Err(broken!(
            "F1",
            "free list of {} bytes: it has one or more addresses of 8",
            bytes.len()
        ));
    }
    Ok(addresses
        .iter()
        .map(|address| u64::from_le_bytes(*address))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(address: u64, length: u64) -> Span {
        Span { address, length }
    }

    /// Rule D4: total, count, pairs; all u64 little-endian.
    #[test]
    fn lists_have_the_layout_of_the_document() {
        let list = AddressList::new(vec![span(0x0100, 5), span(0, 0), span(7, 6)]).unwrap();
        let words: Vec<u64> = list
            .encode()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        assert_eq!(words, [11, 3, 0x0100, 5, 0, 0, 7, 6]);
        assert_eq!(AddressList::decode(&list.encode()), Ok(list.clone()));
        // Rule F3: the empty pair is never freed.
        assert_eq!(list.addresses().collect::<Vec<_>>(), [0x0100, 7]);
        let empty = AddressList::new(vec![]).unwrap();
        assert_eq!(AddressList::decode(&empty.encode()), Ok(empty));
    }

    fn words(words: &[u64]) -> Vec<u8> {
        encode_frees(words)
    }

    /// Rules D4, A1, F3: a wrong count, total or empty pair, and a count that would allocate much.
    #[test]
    fn malformed_lists_are_rejected() {
        let rule = |bytes: &[u8]| AddressList::decode(bytes).unwrap_err().rule();
        assert_eq!(rule(&[]), "D4");
        assert_eq!(rule(&[0; 15]), "D4");
        assert_eq!(rule(&[0; 17]), "D4");
        assert_eq!(rule(&words(&[0, u64::MAX])), "D4");
        assert_eq!(rule(&words(&[5, 2, 8, 5])), "D4");
        assert_eq!(rule(&words(&[5, 0, 8, 5])), "D4");
        assert_eq!(rule(&words(&[6, 1, 8, 5])), "A1");
        assert_eq!(rule(&words(&[1, 2, 8, u64::MAX, 9, 2])), "A1");
        assert_eq!(rule(&words(&[5, 1, 0, 5])), "F3");
        assert_eq!(rule(&words(&[0, 1, 8, 0])), "F3");
    }

    /// Rule F1: one or more whole addresses.
    #[test]
    fn free_lists() {
        assert_eq!(
            decode_frees(&encode_frees(&[1, u64::MAX, 1])),
            Ok(vec![1, u64::MAX, 1])
        );
        for len in [0, 1, 7, 9] {
            assert_eq!(decode_frees(&vec![0; len]).unwrap_err().rule(), "F1");
        }
    }
}
