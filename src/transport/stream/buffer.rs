//! Buffers that sockets and rings are read into.

use parking_lot::Mutex;

/// Bytes read at once beyond the body that is under way: many small frames per system call.
const BUFFER_BYTES: usize = 64 << 10;
/// Most buffers that are kept.
const MOST_SPARE: usize = 8;

/// Buffers that hold nothing. The one given back last is taken first: it still lies in a
/// processor's cache, and where many connections are read by turns they read into the same few.
///
/// No caller waits for the lock. If another thread holds it, the caller does without, so that a
/// forked child never waits for a thread of its parent.
static SPARE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer with any contents.
fn take_spare() -> Box<[u8]> {
    let spare = SPARE.try_lock().and_then(|mut spare| spare.pop());
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

/// Gives a buffer back.
fn keep_spare(buffer: Box<[u8]>) {
    if buffer.len() == BUFFER_BYTES
        && let Some(mut spare) = SPARE.try_lock()
        && spare.len() < MOST_SPARE
    {
        spare.push(buffer);
    }
}

/// Bytes read and not yet looked at. While there are none it has no memory.
#[derive(Default)]
pub(super) struct ReadBuffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// The bytes not looked at yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Leaves the last `len` of these.
    pub(super) fn leave(&mut self, len: usize) {
        self.start = self.end - len;
    }

    /// Room for what is read next. What was unread is lost.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = take_spare();
        }
        (self.start, self.end) = (0, 0);
        &mut self.bytes
    }

    /// Says that `len` bytes were read into the [`space`](Self::space).
    pub(super) fn filled(&mut self, len: usize) {
        (self.start, self.end) = (0, len);
    }

    /// Lets go of the memory, if there is nothing in it.
    pub(super) fn rest(&mut self) {
        if self.start < self.end || self.bytes.is_empty() {
            return;
        }
        (self.start, self.end) = (0, 0);
        keep_spare(std::mem::take(&mut self.bytes));
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        (self.start, self.end) = (0, 0);
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unread_stays_and_an_empty_one_has_no_memory() {
        let mut buffer = ReadBuffer::default();
        assert_eq!(buffer.space().len(), BUFFER_BYTES);
        buffer.space()[..5].copy_from_slice(b"frame");
        buffer.filled(5);
        buffer.leave(2);
        buffer.rest();
        assert_eq!(buffer.unread(), b"me");
        buffer.leave(0);
        buffer.rest();
        assert!(buffer.unread().is_empty() && buffer.bytes.is_empty());
        assert_eq!(buffer.space().len(), BUFFER_BYTES);
    }
}
