//! The body of the fuzz target `frames`.

use crate::proto::ExpectedBody;
use crate::transport::Incoming;
use crate::transport::stream::frame::FrameReader;

/// The first two bytes say how the others are split and how large an unexpected body may be; the
/// others are what a peer sends. However they are split, the same frames must come out, and an
/// error must stay (rule A8).
pub fn frames(data: &[u8]) {
    let Some((&[split, unexpected], stream)) = data.split_first_chunk::<2>() else {
        return;
    };
    let limit = u64::from(unexpected) << 4;
    let whole = cut(stream, usize::MAX, limit);
    let pieces = cut(stream, usize::from(split).max(1), limit);
    assert_eq!(whole, pieces, "frames depend on how the bytes are split");
}

/// The frames in `stream`, as text, if the reader gets it in pieces of `size` bytes.
fn cut(stream: &[u8], size: usize, limit: u64) -> Vec<String> {
    let mut reader = FrameReader::new(limit);
    // A body that is posted in both kinds, with lengths that short inputs can reach.
    reader.post(0, ExpectedBody::new(3, 40, 48));
    let mut seen = Vec::new();
    for mut piece in stream.chunks(size.min(stream.len().max(1))) {
        loop {
            match reader.read(&mut piece) {
                Ok(Some((number, Incoming::Body { seq, memory }))) => {
                    seen.push(format!("body {number}.{seq}: {:?}", memory.as_slice()));
                }
                Ok(Some(frame)) => seen.push(format!("{frame:?}")),
                Ok(None) => match reader.waiting() {
                    Some(number) => {
                        seen.push(format!("waiting {number}"));
                        reader.clear_posted(number);
                    }
                    None => break,
                },
                Err(error) => {
                    assert_eq!(reader.read(&mut piece).err(), Some(error.clone()));
                    seen.push(error.to_string());
                    return seen;
                }
            }
        }
        assert!(
            piece.is_empty(),
            "bytes were left while nothing was waited for"
        );
    }
    seen
}
