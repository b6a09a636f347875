//! Replays broken files to a client. It must end soon, with an error or a valid result, and never
//! crash.

use std::time::{Duration, Instant};

use arrow::array::{Array, StructArray};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use dipc::arrow::abi::ArrowArray;
use dipc::arrow::decode::Level;
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{OwnedDeviceArray, OwnedSchema};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::{Error, Result, Status};
use dipc::proto::Credit;

use crate::files::{Message, golden, split, vectors};
use crate::peer::{Manner, Peer};

/// Far longer than any of these cases takes, even on a busy machine: only a hang reaches it.
const SOON: Duration = Duration::from_secs(20);

/// Fetches the peer's table like a consumer.
fn fetch(messages: Vec<Message>, manner: Manner, level: Level) -> Result<u64> {
    let peer = Peer::start(messages, manner);
    let client = Client::new(ClientOptions::default()).unwrap();
    let options = GetOptions {
        level: Some(level),
        stall_timeout: Some(SOON),
        window: Credit {
            batches: 1000,
            bytes: 1 << 30,
        },
        ..Default::default()
    };
    let mut stream = client.get(&[peer.uri()], b"any", &options, None)?;
    let schema = stream.schema()?;
    let mut batches = 0;
    while let Some(array) = stream.next()? {
        // Level structure does not check values, so the test must not read them.
        if level == Level::Full {
            valid(array, &schema);
        }
        batches += 1;
    }
    Ok(batches)
}

/// Rule A8: at level full the arrays are valid by arrow-rs's rules.
fn valid(array: OwnedDeviceArray, schema: &OwnedSchema) {
    // SAFETY: both are Arrow's C structure, whose layout its document fixes.
    let array =
        unsafe { std::mem::transmute::<ArrowArray, FFI_ArrowArray>(array.into_raw().array) };
    // SAFETY: as above; the reference does not outlive the schema.
    let schema = unsafe { &*std::ptr::from_ref(schema.raw()).cast::<FFI_ArrowSchema>() };
    // SAFETY: the array comes from a decoder at level full, which promises an array that follows
    // the C data interface; this test checks that promise.
    match unsafe { from_ffi(array, schema) } {
        Ok(data) => {
            if let Err(error) = data.validate_full() {
                // arrow-rs requires more than the format: run ends are never null, but the format
                // allows a nullable field for them.
                let text = error.to_string();
                assert!(text.contains("nullable should be set to false"), "{text}");
            }
            let _ = StructArray::from(data).len();
        }
        // Types that arrow-rs cannot import, such as unknown time zones.
        Err(error) => println!("arrow-rs does not import it: {error}"),
    }
}

/// Tries every manner and both levels; gives the errors.
fn survives(name: &str, messages: &[Message]) -> Vec<Error> {
    let mut errors = Vec::new();
    for manner in Manner::ALL {
        for level in [Level::Structure, Level::Full] {
            let start = Instant::now();
            let outcome = fetch(messages.to_vec(), manner, level);
            let took = start.elapsed();
            assert!(took < SOON, "{name}, {manner:?}, {level:?}: {took:?}");
            if let Err(error) = outcome {
                // A caught panic is a bug too.
                let status = error.status();
                let blamed = [
                    Status::Protocol,
                    Status::InvalidData,
                    Status::Unsupported,
                    Status::OutOfMemory,
                ];
                assert!(
                    blamed.contains(&status),
                    "{name}, {manner:?}, {level:?}: {status:?} {error}"
                );
                errors.push(error);
            }
        }
    }
    errors
}

/// Rule A8: a fuzzer's inputs that broke Arrow's own readers.
#[test]
fn fuzzed_files_are_survived() {
    let mut refused = 0;
    for file in golden("fuzz") {
        let mut messages = file.messages();
        assert!(!messages.is_empty(), "{} has no message", file.name);
        refused += survives(&file.name, &messages).len();
        // Again with bodies of the length in the headers, to get past rule D3.
        if messages.iter().any(|message| message.cut) {
            for message in &mut messages {
                message.pad();
            }
            survives(&format!("{}, padded", file.name), &messages);
        }
    }
    println!("{refused} refused");
}

/// A small generator of numbers, equal in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// Changes a few bytes of a message, mostly to extreme values of numbers.
fn mutate(bytes: &mut [u8], draw: &mut Draw) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len());
        bytes[at] = match draw.below(4) {
            0 => [0, 1, 0x7F, 0x80, 0xFF][draw.below(5)],
            1 => bytes[at].wrapping_add(1),
            2 => bytes[at] ^ (1 << draw.below(8)),
            _ => u8::try_from(draw.below(256)).unwrap(),
        };
    }
}

/// The number of changed copies of each vector; `DIPC_MUTATIONS` sets another number.
fn rounds() -> usize {
    std::env::var("DIPC_MUTATIONS").map_or(12, |rounds| rounds.parse().unwrap())
}

/// Rule A8: every vector with a few bytes of its headers or bodies changed.
#[test]
fn mutated_vectors_are_survived() {
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    let mut refused = 0;
    for file in vectors() {
        let original = file.messages();
        // A header of two thousand columns repeats itself, so it is left out.
        let rounds = if file.name == "wide.arrows" {
            rounds() / 6
        } else {
            rounds()
        };
        for round in 0..rounds {
            let mut messages = original.clone();
            let chosen = draw.below(messages.len());
            let message = &mut messages[chosen];
            if round % 3 == 2 {
                mutate(&mut message.body, &mut draw);
            } else {
                mutate(&mut message.header, &mut draw);
            }
            refused += survives(&format!("{}, round {round}", file.name), &messages).len();
        }
    }
    // Most changes hit a checked value. Without any refusal the test would prove nothing.
    assert!(refused > 200, "{refused} refused");
}

/// Rules A6, A8: the streams of `tests/cases` are refused from any peer, each for its own fault,
/// and false lengths are not allocated.
#[test]
fn cases_are_refused() {
    for (name, said) in [
        ("bigendian-int32-1.arrows", "big-endian"),
        ("feather-0.17-lz4.feather", "Arrow 0.17"),
        ("lz4-claims-1TiB.arrows", "1099511627776"),
        ("schema_v6.arrow", "V6"),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
        let bytes = std::fs::read(path.join(name)).unwrap();
        // A file is a stream after 8 bytes.
        let bytes = bytes.strip_prefix(b"ARROW1\0\0").unwrap_or(&bytes);
        let errors = survives(name, &split(bytes));
        assert_eq!(errors.len(), 2 * Manner::ALL.len(), "{name}: {errors:?}");
        for error in errors {
            // Rule A4: a compressed body is not lent.
            let text = error.text();
            assert!(
                text.contains(said) || text.contains("compressed"),
                "{name}: {text}"
            );
        }
    }
}
