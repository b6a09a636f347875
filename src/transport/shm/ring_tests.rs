use rustix::fs::MemfdFlags;

use super::*;

fn pair() -> (RingWriter, RingReader) {
    let made = RingMapping::make().unwrap();
    let mapped = RingMapping::of_server(made.file().unwrap().fd()).unwrap();
    (RingWriter::new(made), RingReader::new(mapped))
}

/// Adds what there is to `got`, and says whether there was something.
fn read(reader: &mut RingReader, got: &mut Vec<u8>) -> Result<bool> {
    let mut bytes = vec![0; CAPACITY];
    let len = reader.read(&mut bytes)?;
    got.extend_from_slice(&bytes[..len]);
    Ok(len > 0)
}

/// `docs/wire.md`, "A ring": where the fields lie that two programs share.
#[test]
fn the_head_is_laid_out_as_the_document_says() {
    assert_eq!(std::mem::offset_of!(Positions, written), 0);
    assert_eq!(std::mem::offset_of!(Positions, read), 64);
    assert_eq!(std::mem::offset_of!(Positions, awake), 128);
    const { assert!(size_of::<Positions>() <= DATA_OFFSET) };
    assert_eq!((DATA_OFFSET, CAPACITY, FILE_BYTES), (4096, 65_536, 69_632));
}

/// Bytes come out as they went in, however they lie across the end of the ring.
#[test]
fn bytes_keep_their_order_across_the_end() {
    let (mut writer, mut reader) = pair();
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for round in 0..200_usize {
        // Sizes that share no factor with the ring's.
        let piece: Vec<u8> = (0..round * 37 % 4001)
            .map(|at| (at ^ round).to_le_bytes()[0])
            .collect();
        while !writer.has_room(piece.len()).unwrap() {
            assert!(
                read(&mut reader, &mut got).unwrap(),
                "full, and nothing to read"
            );
        }
        writer.write(&piece);
        writer.publish();
        sent.extend_from_slice(&piece);
    }
    while read(&mut reader, &mut got).unwrap() {}
    assert!(sent.len() > 4 * CAPACITY);
    assert_eq!(sent, got);
}

/// Bytes are not seen before they are published, and a full ring reports that.
#[test]
fn it_holds_its_capacity_and_shows_what_is_published() {
    let (mut writer, mut reader) = pair();
    assert!(!writer.has_room(CAPACITY + 1).unwrap());
    writer.write(&[7; CAPACITY]);
    let mut got = Vec::new();
    assert!(!read(&mut reader, &mut got).unwrap());
    writer.publish();
    assert!(!writer.has_room(1).unwrap());
    assert!(read(&mut reader, &mut got).unwrap());
    assert_eq!(got, [7; CAPACITY]);
    assert!(writer.has_room(CAPACITY).unwrap());
}

/// A sleeping reader has to be woken, and a reader does not go to sleep if there are bytes.
#[test]
fn sleeping_and_looking_are_told() {
    let (mut writer, mut reader) = pair();
    assert!(!writer.is_awake() && writer.publish(), "it sleeps at first");
    reader.wake();
    writer.write(b"x");
    assert!(writer.is_awake() && !writer.publish());
    assert!(reader.doze(), "there is something");
    read(&mut reader, &mut Vec::new()).unwrap();
    assert!(!reader.doze());
    writer.write(b"y");
    assert!(!writer.is_awake() && writer.publish());
}

/// Both sides notice a peer that writes impossible positions into the head.
#[test]
fn positions_that_cannot_be_are_refused() {
    let nonsense = |reader: &RingReader, read: u64| reader.memory.positions().give_back(read);
    for read in [1, CAPACITY as u64 + 1, u64::MAX] {
        let (mut writer, reader) = pair();
        nonsense(&reader, read);
        // Asked only where there seems to be no room.
        assert!(writer.has_room(CAPACITY).unwrap());
        let error = writer.has_room(CAPACITY + 1).unwrap_err();
        assert_eq!(error.status(), crate::error::Status::Protocol, "{error}");
    }
    // Back from where it has been.
    let (mut writer, mut reader) = pair();
    writer.write(&[0; CAPACITY]);
    writer.publish();
    assert!(read(&mut reader, &mut Vec::new()).unwrap() && writer.has_room(1).unwrap());
    writer.write(&[0; CAPACITY]);
    nonsense(&reader, 5);
    assert!(writer.has_room(1).is_err());
    for written in [CAPACITY as u64 + 1, u64::MAX] {
        let (writer, mut reader) = pair();
        writer.memory.positions().publish(written);
        let mut got = Vec::new();
        let error = read(&mut reader, &mut got).unwrap_err();
        assert_eq!(error.status(), crate::error::Status::Protocol, "{error}");
        assert!(got.is_empty());
    }
}

/// A ring that could shrink under its reader, or run out of memory, is not mapped.
#[test]
fn a_ring_is_a_whole_sealed_file() {
    let make = |len: usize, filled: usize, seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("dipc-test", flags).unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        if filled > 0 {
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, filled as u64).unwrap();
        }
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        RingMapping::of_server(&fd).map(drop)
    };
    make(FILE_BYTES, FILE_BYTES, SEALS).unwrap();
    for (result, text) in [
        (
            make(FILE_BYTES, FILE_BYTES, SealFlags::GROW),
            "lacks the seals",
        ),
        (
            make(FILE_BYTES, FILE_BYTES, SealFlags::empty()),
            "lacks the seals",
        ),
        (make(FILE_BYTES, 4096, SEALS), "nothing at byte 0 of 69632"),
        (make(4096, 4096, SEALS), "sent one of 4096"),
        (
            make(2 * FILE_BYTES, 2 * FILE_BYTES, SEALS),
            "sent one of 139264",
        ),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.status(), crate::error::Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
    }
    let directory = OwnedFd::from(std::fs::File::open("/").unwrap());
    assert!(RingMapping::of_server(&directory).is_err());
}
