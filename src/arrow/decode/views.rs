//! Views of strings and bytes, each checked by itself (level `full` of rule A8).

use crate::arrow::decode::values::utf8_of;
use crate::error::{Error, Result};

/// Bytes of a view: its length, then the bytes themselves, or a prefix of 4 bytes, the number of a data
/// buffer and an offset in it.
pub(super) const VIEW: usize = 16;
/// Strings up to this length lie inside their view.
const INLINE: usize = 12;

/// How the bytes of long views are known to be text.
pub(super) enum Texts {
    /// They need not be.
    Any,
    /// Each view is read.
    Each,
    /// Each data buffer was read once, since many views have the same bytes: where it is text, as ranges in
    /// their order.
    Known(Vec<Vec<(usize, usize)>>),
}

impl Texts {
    /// What takes no more time than to read the data buffers once: views may all name the same bytes, so
    /// that to read each one could take days.
    pub(super) fn of(views: &[u8], data: &[&[u8]]) -> Self {
        let lengths = views
            .as_chunks::<VIEW>()
            .0
            .iter()
            .map(|view| u64::from(word(view, 0).cast_unsigned()));
        let asked = lengths.fold(0, u64::saturating_add);
        let there = data.iter().fold(views.len() as u64, |sum, buffer| {
            sum.saturating_add(buffer.len() as u64)
        });
        if asked <= there {
            return Self::Each;
        }
        Self::Known(data.iter().map(|buffer| ranges(buffer)).collect())
    }

    fn check(&self, buffer: usize, data: &[u8], offset: usize, count: usize) -> Result<()> {
        let bytes = &data[offset..offset + count];
        match self {
            Self::Any => Ok(()),
            Self::Each => utf8_of(bytes).map(|_| ()),
            Self::Known(known) => {
                let ranges = known.get(buffer).map_or(&[][..], Vec::as_slice);
                let at = ranges.partition_point(|&(start, _)| start <= offset);
                let range = at.checked_sub(1).and_then(|at| ranges.get(at));
                let end = offset + count;
                let boundary =
                    |place: usize| data.get(place).is_none_or(|byte| !is_continuation(*byte));
                // A view that is text by itself lies in one range: its first byte begins a character, and
                // such a byte is never the rest of what is not text.
                match range {
                    Some(&(_, stop))
                        if end <= stop && boundary(offset) && (end == stop || boundary(end)) =>
                    {
                        Ok(())
                    }
                    _ => Err(Error::invalid_data("a string is not UTF-8")),
                }
            }
        }
    }
}

/// Where bytes are text.
fn ranges(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut start = 0;
    let mut found = Vec::new();
    for chunk in bytes.utf8_chunks() {
        let end = start + chunk.valid().len();
        if end > start {
            found.push((start, end));
        }
        start = end + chunk.invalid().len();
    }
    found
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The four bytes at a place of a view, as a number.
fn word(view: &[u8; VIEW], at: usize) -> i32 {
    let bytes = view.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
    i32::from_le_bytes(bytes.copied().unwrap_or_default())
}

/// Checks one view, against the data buffers of its array.
pub(super) fn check_view(view: &[u8; VIEW], data: &[&[u8]], texts: &Texts) -> Result<()> {
    let length = word(view, 0);
    let wrong = || {
        Error::invalid_data(format!(
            "a view of {length} bytes at {} of data buffer {} is not inside it",
            word(view, 12),
            word(view, 8)
        ))
    };
    let count = usize::try_from(length).map_err(|_| wrong())?;
    if count <= INLINE {
        let (bytes, padding) = view[4..].split_at(count);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::invalid_data("a short view is not padded with zeros"));
        }
        return match texts {
            Texts::Any => Ok(()),
            Texts::Each | Texts::Known(_) => utf8_of(bytes).map(|_| ()),
        };
    }
    let number = usize::try_from(word(view, 8)).map_err(|_| wrong())?;
    let offset = usize::try_from(word(view, 12)).map_err(|_| wrong())?;
    let buffer = *data.get(number).ok_or_else(wrong)?;
    let bytes = buffer
        .get(offset..)
        .and_then(|rest| rest.get(..count))
        .ok_or_else(wrong)?;
    if bytes[..4] != view[4..8] {
        return Err(Error::invalid_data(
            "the prefix of a view differs from its data",
        ));
    }
    texts.check(number, buffer, offset, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(bytes: &[u8], offset: i32) -> [u8; VIEW] {
        let mut view = [0; VIEW];
        view[..4].copy_from_slice(&i32::try_from(bytes.len()).unwrap().to_le_bytes());
        view[4..8].copy_from_slice(&bytes[..4]);
        view[12..].copy_from_slice(&offset.to_le_bytes());
        view
    }

    /// Rule A8: what many views are told of shared bytes is what each would be told alone, wherever in the
    /// bytes it begins and ends, and whatever lies between texts.
    #[test]
    fn shared_bytes_are_judged_as_each_view_would_be() {
        let mut data = "plain text, then äöü and 漢字 and 🦀🦀🦀 to the end"
            .as_bytes()
            .to_vec();
        data.extend([0xff, 0xe6, 0xbc, b'a', 0xc3]);
        data.extend("more text after what is none: 漢字漢字漢字".as_bytes());
        data.extend([0xf0, 0x9f]);
        let known = Texts::Known(vec![ranges(&data)]);
        for offset in 0..data.len() - INLINE {
            for end in offset + INLINE + 1..=data.len() {
                let bytes = &data[offset..end];
                let view = view(bytes, i32::try_from(offset).unwrap());
                let alone = check_view(&view, &[&data], &Texts::Each);
                let shared = check_view(&view, &[&data], &known);
                assert_eq!(alone.is_ok(), shared.is_ok(), "{bytes:?}");
            }
        }
    }

    /// Rule A8: views that are longer together than their data do not have it read once for each.
    #[test]
    fn bytes_that_views_share_are_read_once() {
        let data = vec![b'a'; 100];
        let views = |count: usize| -> Vec<u8> { (0..count).flat_map(|_| view(&data, 0)).collect() };
        assert!(matches!(Texts::of(&views(1), &[&data]), Texts::Each));
        let Texts::Known(known) = Texts::of(&views(1000), &[&data]) else {
            panic!("each view would be read");
        };
        assert_eq!(known, [[(0, 100)]]);
    }
}
