//! Views of strings and bytes, each checked by itself (level `full` of rule A8).

use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::noted::Noted;
use crate::error::{Error, Result};

/// Bytes of a view: its length, then the bytes themselves, or a prefix of 4 bytes, the number of a
/// data buffer and an offset in it.
pub(super) const VIEW: usize = 16;
/// Strings up to this length lie inside their view.
const INLINE: usize = 12;

pub(super) fn utf8_of(bytes: &[u8]) -> Result<&str> {
    simdutf8::compat::from_utf8(bytes)
        .map_err(|error| Error::invalid_data(format!("a string is not UTF-8: {error}")))
}

/// How the bytes of long views are known to be text.
pub(super) enum Texts {
    /// They need not be.
    Any,
    /// Each view is read.
    Each,
    /// Each data buffer was read once.
    Known(Vec<BufferText>),
}

/// What is known of a data buffer.
pub(super) enum BufferText {
    /// It is ASCII: text wherever one begins and ends in it.
    Ascii,
    /// It is text: whatever begins and ends with a character of it is, too.
    Text,
    /// It is not, and each view into it is read.
    Other,
    /// Where it is text, as ranges in their order: many views have the same bytes.
    Ranges(Vec<(usize, usize)>),
}

impl Texts {
    /// What takes no more time than to read the data buffers a few times: views may all name the
    /// same bytes, so that to read each one could take days.
    pub(super) fn of(views: &[u8], data: &[&[u8]], budget: &DecodeBudget<'_>) -> Result<Self> {
        let lengths = views
            .as_chunks::<VIEW>()
            .0
            .iter()
            .map(|view| u64::from(word(view, 0).cast_unsigned()));
        let asked = lengths.fold(0, u64::saturating_add);
        let there = data.iter().fold(views.len() as u64, |sum, buffer| {
            sum.saturating_add(buffer.len() as u64)
        });
        if asked < there / 4 {
            // A few strings of buffers that are much larger.
            return Ok(Self::Each);
        }
        let known = |buffer: &&[u8]| {
            Ok(match () {
                () if buffer.is_ascii() => BufferText::Ascii,
                () if utf8_of(buffer).is_ok() => BufferText::Text,
                () if asked <= there => BufferText::Other,
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

/// Checks the bytes from `offset` to `end` of a data buffer that is text in `ranges`.
fn check_in(ranges: &[(usize, usize)], data: &[u8], offset: usize, end: usize) -> Result<()> {
    let at = ranges.partition_point(|&(start, _)| start <= offset);
    let range = at.checked_sub(1).and_then(|at| ranges.get(at));
    // A view that is text by itself lies in one range: its first byte begins a character, and
    // such a byte is never the rest of what is not text.
    match range {
        Some(&(_, stop))
            if end <= stop && begins(data, offset) && (end == stop || begins(data, end)) =>
        {
            Ok(())
        }
        _ => Err(not_utf8()),
    }
}

/// Where bytes are text.
fn ranges(bytes: &[u8], budget: &DecodeBudget<'_>) -> Result<Vec<(usize, usize)>> {
    let mut start = 0;
    let mut found = Noted::new(budget);
    for chunk in bytes.utf8_chunks() {
        let end = start + chunk.valid().len();
        if end > start {
            found.add((start, end))?;
        }
        start = end + chunk.invalid().len();
    }
    Ok(found.rows)
}

/// Whether a character begins at a place of what is text, or nothing.
#[inline]
fn begins(data: &[u8], place: usize) -> bool {
    data.get(place).is_none_or(|byte| byte & 0xc0 != 0x80)
}

#[cold]
fn not_utf8() -> Error {
    Error::invalid_data("a string is not UTF-8")
}

/// The four bytes at a place of a view, as a number.
fn word(view: &[u8; VIEW], at: usize) -> i32 {
    let bytes = view.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
    i32::from_le_bytes(bytes.copied().unwrap_or_default())
}

/// Checks one view, against the data buffers of its array.
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

/// Checks a view of `count` bytes that stand in it.
#[inline]
fn check_short(view: &[u8; VIEW], count: usize, texts: &Texts) -> Result<()> {
    const NOT_ASCII: u128 = u128::from_ne_bytes([0x80; VIEW]);
    // The bytes and what fills them up, as one number of which the first byte is the lowest.
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

    /// Rule A8: what many views are told of shared bytes is what each would be told alone, wherever
    /// in the bytes it begins and ends, and whatever lies between texts.
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

    /// Rule A8: views that are longer together than their data do not have it read once for each,
    /// nor do buffers of ASCII; a few short strings do not have large buffers read.
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
        let is_ascii = |texts: Texts| matches!(texts, Texts::Known(known) if matches!(known[..], [BufferText::Ascii]));
        assert!(is_ascii(known(&ascii, 40)) && is_ascii(known(&ascii, 1000)));
        let is_text = |texts: Texts| matches!(texts, Texts::Known(known) if matches!(known[..], [BufferText::Text]));
        assert!(is_text(known(&text, 40)) && is_text(known(&text, 1000)));
        assert!(
            matches!(known(&other, 40), Texts::Known(known) if matches!(known[..], [BufferText::Other]))
        );
        let Texts::Known(known) = known(&other, 1000) else {
            panic!("each view would be read");
        };
        assert!(matches!(&known[..], [BufferText::Ranges(ranges)] if ranges == &[(0, 1000)]));
    }

    /// Rule A8: a string that stands in its view is text, and followed by zeros.
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

    /// What is known of bytes counts: two bytes may have an entry.
    #[test]
    fn ranges_are_counted() {
        let bytes = b"a\xff".repeat(10_000);
        assert!(ranges(&bytes, &DecodeBudget::new(400_000, &[])).is_ok());
        assert!(ranges(&bytes, &DecodeBudget::new(200_000, &[])).is_err());
    }
}
