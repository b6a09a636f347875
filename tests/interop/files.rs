//! The files of the tests, and their messages.

use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;

/// A stream file.
pub struct File {
    /// Its name, without the folder.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl File {
    /// Its content, read by arrow-rs.
    pub fn read(&self) -> (SchemaRef, Vec<RecordBatch>) {
        let reader = StreamReader::try_new(self.bytes.as_slice(), None)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let schema = reader.schema();
        let batches = reader
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        (schema, batches)
    }

    /// Its messages.
    pub fn messages(&self) -> Vec<Message> {
        split(&self.bytes)
    }
}

/// The folder of the project's vectors.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The project's vectors.
pub fn vectors() -> Vec<File> {
    let files: Vec<_> = read(&folder())
        .into_iter()
        .filter(|file| file.name.ends_with(".arrows"))
        .collect();
    assert!(files.len() > 30, "vectors are missing");
    files
}

/// Arrow's golden files: `streams` or `fuzz`. None without the folder; prints a line then.
pub fn golden(kind: &str) -> Vec<File> {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    let folder = root.join(kind);
    if !folder.is_dir() {
        println!(
            "skipped: there is no folder {}; DIPC_GOLDEN names another",
            folder.display()
        );
        return Vec::new();
    }
    let files = read(&folder);
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn read(folder: &Path) -> Vec<File> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| File {
            name: entry.file_name().into_string().unwrap(),
            bytes: fs::read(entry.path()).unwrap(),
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// The parts of an encapsulated message, unchecked.
#[derive(Debug, Clone)]
pub struct Message {
    /// The flatbuffer.
    pub header: Vec<u8>,
    /// The body, with the length in the header if the file has so many bytes.
    pub body: Vec<u8>,
    /// Whether the file has fewer bytes.
    pub cut: bool,
}

impl Message {
    /// Whether to send a body message with it: all messages but the schema have one. Invalid
    /// messages have one too, so that they are refused for their header.
    pub fn has_body(&self) -> bool {
        arrow::ipc::root_as_message(&aligned(&self.header)).map_or(true, |message| {
            message.header_type() != arrow::ipc::MessageHeader::Schema
        })
    }

    /// Pads the body to the length in the header, if that is not absurd.
    pub fn pad(&mut self) {
        let asked = arrow::ipc::root_as_message(&aligned(&self.header))
            .map_or(0, |message| message.bodyLength());
        if let Ok(asked @ ..=0x100_0000) = usize::try_from(asked) {
            self.body.resize(asked, 0);
        }
    }
}

/// A flatbuffer may have any place in a file, and must be read from aligned memory.
fn aligned(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    copy
}

/// Splits a stream into messages, as far as possible: a fuzzer's files are cut and have false
/// lengths.
pub fn split(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        bytes = rest;
        let mut length = u32::from_le_bytes(*length);
        if length == u32::MAX {
            let Some((second, rest)) = bytes.split_first_chunk::<4>() else {
                break;
            };
            length = u32::from_le_bytes(*second);
            bytes = rest;
        }
        if length == 0 {
            break;
        }
        let (header, rest) = bytes.split_at(bytes.len().min(length as usize));
        let asked = arrow::ipc::root_as_message(&aligned(header))
            .map_or(0, |message| message.bodyLength())
            .max(0);
        let have = usize::try_from(asked).unwrap().min(rest.len());
        let (body, rest) = rest.split_at(have);
        bytes = rest;
        messages.push(Message {
            header: header.to_vec(),
            body: body.to_vec(),
            cut: (have as i64) < asked,
        });
    }
    messages
}
