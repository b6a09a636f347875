//! Reads the messages of Arrow streams and files, and their batches.
//!
//! libdipc's own decoder reads them, at level full. It refuses data that the reader of the `arrow`
//! crate misreads, such as big-endian numbers, or panics on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};

use dipc::ipc::{Body, Header};
use dipc::{Error, Result};

/// The marker before the length of a message since Arrow 0.15.
const MARKER: u32 = u32::MAX;

/// A file of messages, and the position in it.
pub struct Input {
    file: BufReader<File>,
    at: u64,
    /// The end of the messages: the end of the file, or the start of a footer. [`ENDLESS`]: a pipe.
    end: u64,
}

/// The end of a pipe, whose length nobody knows.
const ENDLESS: u64 = u64::MAX;

impl Input {
    /// Reads the first `end` bytes of `file`, which is at its start.
    pub fn new(file: File, end: u64) -> Self {
        Self {
            file: BufReader::with_capacity(1 << 16, file),
            at: 0,
            end,
        }
    }

    /// Reads a pipe.
    pub fn of_pipe(pipe: File) -> Self {
        Self::new(pipe, ENDLESS)
    }

    /// Checks the first bytes of a stream.
    ///
    /// # Errors
    ///
    /// `InvalidData` for other formats; the system's error.
    pub fn ensure_stream(&mut self) -> Result<()> {
        let first = self.file.fill_buf();
        let first = first.map_err(|error| Error::io("cannot read the stream", &error))?;
        match first.is_empty() || first.iter().take(4).all(|byte| *byte == 0xff) {
            true => Ok(()),
            false => Err(Error::invalid_data(
                "this is no Arrow stream, which `-` stands for: name other files",
            )),
        }
    }

    /// The offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Moves to an offset, to read from there to `end`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn seek(&mut self, at: u64, end: u64) -> Result<()> {
        self.file
            .seek(SeekFrom::Start(at))
            .map_err(|error| Error::io("cannot read the file", &error))?;
        self.at = at;
        self.end = end;
        Ok(())
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file ends before; the system's error.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len() as u64;
        self.ensure_there(len)?;
        self.file
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                // The file was longer when it was opened.
                ErrorKind::UnexpectedEof => self.cut(len),
                _ => Error::io("cannot read the file", &error),
            })?;
        self.at += len;
        Ok(())
    }

    /// The next header; `None` at the end of the stream. Its body follows.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file is cut off; the errors of [`Header::parse`].
    pub fn header(&mut self) -> Result<Option<Header>> {
        // A writer may end a stream without a marker.
        if self.at == self.end {
            return Ok(None);
        }
        let mut length = self.word()?;
        if length == MARKER {
            length = self.word()?;
        }
        if length == 0 {
            return Ok(None);
        }
        self.ensure_there(length.into())?;
        // Checked against the file's size before the allocation.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.read(&mut bytes)?;
        Header::parse(&bytes).map(Some)
    }

    /// The body of the header just read.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file is cut off; `OutOfMemory`.
    pub fn body(&mut self, header: &Header) -> Result<Body> {
        self.ensure_there(header.body_len())?;
        Body::read(header, |bytes| self.read(bytes))
    }

    /// Skips the body of the header just read.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the file is cut off; the system's error.
    pub fn pass(&mut self, header: &Header) -> Result<()> {
        let len = header.body_len();
        self.ensure_there(len)?;
        // Bodies are checked against the file, and no file has more bytes than that.
        self.file
            .seek_relative(i64::try_from(len).unwrap_or(i64::MAX))
            .map_err(|error| Error::io("cannot read the file", &error))?;
        self.at += len;
        Ok(())
    }

    /// Checks that the file ends with the stream.
    ///
    /// # Errors
    ///
    /// `InvalidData` for bytes after the stream.
    pub fn ensure_ended(&mut self) -> Result<()> {
        if self.end == ENDLESS {
            let rest = self.file.fill_buf();
            let rest = rest.map_err(|error| Error::io("cannot read the stream", &error))?;
            return match rest.is_empty() {
                true => Ok(()),
                false => Err(Error::invalid_data(
                    "more bytes follow the end of the stream",
                )),
            };
        }
        match self.end - self.at {
            0 => Ok(()),
            rest => Err(Error::invalid_data(format!(
                "{rest} bytes follow the end of the stream; if they are another stream, write it \
                 to a file of its own"
            ))),
        }
    }

    fn word(&mut self) -> Result<u32> {
        let mut word = [0; 4];
        self.read(&mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn ensure_there(&self, len: u64) -> Result<()> {
        if len <= self.end - self.at {
            return Ok(());
        }
        Err(self.cut(len))
    }

    fn cut(&self, len: u64) -> Error {
        if self.end == ENDLESS {
            return Error::invalid_data(
                "it is cut off: it ends before its end marker, so its writer may have failed",
            );
        }
        Error::invalid_data(format!(
            "it is cut off: {len} bytes are asked for at offset {}, and {} are there",
            self.at,
            self.end - self.at
        ))
    }
}
