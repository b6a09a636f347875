use crate::{Error, Result};

/// A guest's linear memory, which may hold anything.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'m>(pub(crate) &'m [u8]);

impl<'m> Memory<'m> {
    /// `length` bytes at a guest's pointer. No bytes may be anywhere, at NULL too.
    pub(crate) fn bytes(self, pointer: u32, length: u64) -> Result<&'m [u8]> {
        if length == 0 {
            return Ok(&[]);
        }
        let begin = u64::from(pointer);
        let outside = || {
            Error::Data(format!(
                "{length} bytes at {pointer:#x} in a memory of {} bytes",
                self.0.len()
            ))
        };
        if pointer == 0 {
            return Err(outside());
        }
        let end = begin.checked_add(length).ok_or_else(outside)?;
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        range
            .and_then(|(begin, end)| self.0.get(begin..end))
            .ok_or_else(outside)
    }

    /// Bytes up to a NUL, at most so many.
    pub(crate) fn text(self, pointer: u32, most: usize) -> Result<&'m str> {
        let from = usize::try_from(pointer)
            .ok()
            .and_then(|at| self.0.get(at..))
            .unwrap_or(&[]);
        let window = &from[..from.len().min(most.saturating_add(1))];
        let end = window.iter().position(|byte| *byte == 0);
        let Some(bytes) = end.and_then(|end| window.get(..end)) else {
            return Err(Error::Data(format!(
                "a text at {pointer:#x} that does not end"
            )));
        };
        utf8(bytes)
    }

    /// The pointer at an index of an array of pointers; never NULL.
    pub(crate) fn pointer(self, pointers: u32, index: usize) -> Result<u32> {
        let words = self.bytes(pointers, (index as u64 + 1).saturating_mul(4))?;
        match u32_at(words, index * 4) {
            0 => Err(Error::Data(format!(
                "NULL in the pointers at {pointers:#x}"
            ))),
            pointer => Ok(pointer),
        }
    }
}

/// Text of a guest.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::Data("a text that is not UTF-8".into()))
}

/// A word of a struct whose bytes were read whole.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// A double word of a struct whose bytes were read whole.
pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    i64::from_le_bytes(word)
}

/// A count of a guest's struct.
pub(super) fn count_at(bytes: &[u8], at: usize, what: &str) -> Result<u64> {
    let count = i64_at(bytes, at);
    u64::try_from(count).map_err(|_| Error::Data(format!("{what} of {count}")))
}
