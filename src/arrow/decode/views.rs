//! Checks of views of strings and bytes (level `full` of rule A8).

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::counted::CountedList;
use crate::error::{Error, Result};

/// Bytes of a view: the length, then the string itself, or a prefix of 4 bytes, the number of a
/// data buffer and the offset in that buffer.
pub(super) const VIEW: usize = 16;
/// Strings up to this length are stored in their view.
const INLINE: usize = 12;

pub(super) fn utf8_of(bytes: &[u8]) -> Result<&str> {
    simdutf8::compat::from_utf8(bytes)
        .map_err(|error| Error::invalid_data(format!("a string is not UTF-8: {error}")))
}

/// The method to check that the bytes of long views are text.
pub(super) enum Texts {
    /// No check: the type is not text.
    Any,
    /// Read each view.
    Each,
    /// Each data buffer was read once.
    Known(Vec<BufferText>),
}

/// The result of reading a data buffer once.
pub(super) enum BufferText {
    /// ASCII: every part is text.
    Ascii,
    /// Text: every part from one character boundary to another is text.
    Text,
    /// Not text: read each view.
    Other,
    /// The ranges that are text, in order; for views with many common bytes.
    Ranges(Vec<(usize, usize)>),
}

impl Texts {
    /// Chooses a method that reads the data buffers a few times at most. All views may name the
    /// same bytes, so reading each view could take days.
    pub(super) fn of(views: &[u8], data: &[&[u8]], budget: &DecodeBudget<'_>) -> Result<Self> {
        let lengths = views
            .as_chunks::<VIEW>()
            .0
            .iter()
            .map(|view| u64::from(word(view, 0).cast_unsigned()));
        let viewed_bytes = lengths.fold(0, u64::saturating_add);
        let data_bytes = data.iter().fold(views.len() as u64, |sum, buffer| {
            sum.saturating_add(buffer.len() as u64)
        });
        if viewed_bytes < data_bytes / 4 {
            // A few strings in much larger buffers.
            return Ok(Self::Each);
        }
        let known = |buffer: &&[u8]| {
            Ok(match () {
                () if buffer.is_ascii() => BufferText::Ascii,
                () if utf8_of(buffer).is_ok() => BufferText::Text,
                () if viewed_bytes <= data_bytes => BufferText::Other,
                () => BufferText::Ranges(ranges(buffer, budget)?),
            })
        };
        Ok(Self::Known(data.iter().map(known).collect::<Result<_>>()?))
    }

    #[inline]
    fn check(&self, buffer: usize, data: &[u8], offset: usize, count: usize) -> Result<()> {
        let known = match self {
            Self::Any => return Ok(()),
            Self::Each => &BufferText::Other,
            Self::Known(known) => known.get(buffer).unwrap_or(&BufferText::Other),
        };
        match known {
            BufferText::Ascii => Ok(()),
            BufferText::Text if begins(data, offset) && begins(data, offset + count) => Ok(()),
            BufferText::Text => Err(not_utf8()),
            BufferText::Other => utf8_of(&data[offset..offset + count]).map(|_| ()),
            BufferText::Ranges(ranges) => check_in(ranges, data, offset, offset + count),
        }
    }
}

/// Checks the bytes from `offset` to `end` of a data buffer whose `ranges` are text.
fn check_in(ranges: &[(usize, usize)], data: &[u8], offset: usize, end: usize) -> Result<()> {
    let at = ranges.partition_point(|&(start, _)| start <= offset);
    let range = at.checked_sub(1).and_then(|at| ranges.get(at));
    // A view with valid text lies in one range: its first byte begins a character, and no such byte
    // is in the middle of invalid bytes.
    match range {
        Some(&(_, stop))
            if end <= stop && begins(data, offset) && (end == stop || begins(data, end)) =>
        {
            Ok(())
        }
        _ => Err(not_utf8()),
    }
}

/// The ranges of `bytes` that are text.
fn ranges(bytes: &[u8], budget: &DecodeBudget<'_>) -> Result<Vec<(usize, usize)>> {
    let mut start = 0;
    let mut found = CountedList::new(budget);
    for chunk in bytes.utf8_chunks() {
        let end = start + chunk.valid().len();
        if end > start {
            found.add((start, end))?;
        }
        start = end + chunk.invalid().len();
    }
    Ok(found.rows)
}

/// True if a character begins at `place` of valid text, or the text ends there.
#[inline]
fn begins(data: &[u8], place: usize) -> bool {
    data.get(place).is_none_or(|byte| byte & 0xc0 != 0x80)
}

#[cold]
fn not_utf8() -> Error {
    Error::invalid_data("a string is not UTF-8")
}

/// The four bytes at `at` of a view, as a number.
fn word(view: &[u8; VIEW], at: usize) -> i32 {
    let bytes = view.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
    i32::from_le_bytes(bytes.copied().unwrap_or_default())
}

/// Checks one view against the data buffers of its array.
#[inline]
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
        return check_short(view, count, texts);
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

/// Checks a view that contains its `count` bytes.
#[inline]
fn check_short(view: &[u8; VIEW], count: usize, texts: &Texts) -> Result<()> {
    const NOT_ASCII: u128 = u128::from_ne_bytes([0x80; VIEW]);
    // The bytes and the padding as one number; the first byte is the lowest.
    let bytes = u128::from_le_bytes(*view) >> 32;
    if bytes >> (8 * count) != 0 {
        return Err(Error::invalid_data("a short view is not padded with zeros"));
    }
    match texts {
        Texts::Each | Texts::Known(_) if bytes & NOT_ASCII != 0 => {
            utf8_of(&view[4..4 + count]).map(|_| ())
        }
        _ => Ok(()),
    }
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

    /// Rule A8: the check of shared bytes gives the same result as a check of each view, for all
    /// begins and ends, with any bytes between texts.
    #[test]
    fn shared_bytes_are_judged_as_each_view_would_be() {
        let mut data = "plain text, then äöü and 漢字 and 🦀🦀🦀 to the end"
            .as_bytes()
            .to_vec();
        data.extend([0xff, 0xe6, 0xbc, b'a', 0xc3]);
        data.extend("more text after what is none: 漢字漢字漢字".as_bytes());
        data.extend([0xf0, 0x9f]);
        let known = Texts::Known(vec![BufferText::Ranges(
            ranges(&data, &DecodeBudget::new(1 << 20, &[])).unwrap(),
        )]);
        for offset in 0..data.len() - INLINE {
            for end in offset + INLINE + 1..=data.len() {
                let bytes = &data[offset..end];
                let view = view(bytes, i32::try_from(offset).unwrap());
                let alone = check_view(&view, &[&data], &Texts::Each);
                let shared = check_view(&view, &[&data], &known);
                assert_eq!(alone.is_ok(), shared.is_ok(), "{bytes:?}");
            }
        }
        let data = "ä漢字🦀 and so on".repeat(3).into_bytes();
        for offset in 0..data.len() - INLINE {
            for end in offset + INLINE + 1..=data.len() {
                let view = view(&data[offset..end], i32::try_from(offset).unwrap());
                let alone = check_view(&view, &[&data], &Texts::Each);
                let shared = check_view(&view, &[&data], &Texts::Known(vec![BufferText::Text]));
                assert_eq!(alone.is_ok(), shared.is_ok(), "{offset} to {end}");
            }
        }
    }

    /// Rule A8: views that are longer in total than their data, and views of ASCII, do not cause a
    /// read for each view. A few short strings do not cause a read of a large buffer.
    #[test]
    fn bytes_that_views_share_are_read_once() {
        let views = |data: &[u8], count: usize| -> Vec<u8> {
            (0..count).flat_map(|_| view(&data[..20], 0)).collect()
        };
        let known = |data: &[u8], count: usize| {
            Texts::of(
                &views(data, count),
                &[data],
                &DecodeBudget::new(1 << 20, &[]),
            )
            .unwrap()
        };
        let (ascii, text) = (vec![b'a'; 1000], "ä".repeat(500).into_bytes());
        let other = [&text[..], &[0xff]].concat();
        assert!(matches!(known(&ascii, 3), Texts::Each));
        let only = |texts: Texts, is: fn(&BufferText) -> bool| match texts {
            Texts::Known(known) => known.len() == 1 && is(&known[0]),
            _ => false,
        };
        let is_ascii = |texts| only(texts, |text| matches!(text, BufferText::Ascii));
        assert!(is_ascii(known(&ascii, 40)) && is_ascii(known(&ascii, 1000)));
        let is_text = |texts| only(texts, |text| matches!(text, BufferText::Text));
        assert!(is_text(known(&text, 40)) && is_text(known(&text, 1000)));
        assert!(only(known(&other, 40), |text| matches!(
            text,
            BufferText::Other
        )));
        let Texts::Known(known) = known(&other, 1000) else {
            panic!("each view would be read");
        };
        assert!(matches!(&known[..], [BufferText::Ranges(ranges)] if ranges == &[(0, 1000)]));
    }

    /// Rule A8: a string inside its view is checked as text, and its padding must be zeros.
    #[test]
    fn short_views_are_read_to_their_end() {
        let short = |text: &[u8], padding: &[u8]| {
            let mut view = [0; VIEW];
            view[0] = text.len().try_into().unwrap();
            view[4..4 + text.len()].copy_from_slice(text);
            view[VIEW - padding.len()..].copy_from_slice(padding);
            view
        };
        let check = |view: [u8; VIEW], texts: &Texts| check_view(&view, &[], texts).is_ok();
        for text in ["", "a", "äöü", "exactly 12 b", "漢字漢字"] {
            assert!(check(short(text.as_bytes(), &[]), &Texts::Each), "{text}");
        }
        assert!(!check(short("ä".as_bytes(), &[1]), &Texts::Any));
        assert!(!check(short(b"", &[0x80]), &Texts::Each));
        for wrong in [&[0x80][..], &[b'a', 0xc3], &[0xff; 12]] {
            assert!(!check(short(wrong, &[]), &Texts::Each), "{wrong:?}");
            assert!(check(short(wrong, &[]), &Texts::Any), "{wrong:?}");
        }
    }

    /// The ranges count against the budget, because two bytes may have an entry.
    #[test]
    fn ranges_are_counted() {
        let bytes = b"a\xff".repeat(10_000);
        assert!(ranges(&bytes, &DecodeBudget::new(400_000, &[])).is_ok());
        assert!(ranges(&bytes, &DecodeBudget::new(200_000, &[])).is_err());
    }
}
