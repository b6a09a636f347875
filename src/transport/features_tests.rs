use super::*;
use crate::proto::Control;

const JOIN: Join = Join {
    group: 0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10,
    index: 1,
    count: 4,
};

const RINGS: [(RingMessage, usize); 4] = [
    (ring(ConnectionEnd::Server, None), 1),
    (ring(ConnectionEnd::Client, None), 1),
    (ring(ConnectionEnd::Server, Some(69_632)), 9),
    (ring(ConnectionEnd::Client, Some(69_632)), 9),
];

const fn ring(writer: ConnectionEnd, length: Option<u64>) -> RingMessage {
    RingMessage { writer, length }
}

/// docs/wire.md: each message is read as it was written; messages of other kinds give `None`.
#[test]
fn messages_are_read_as_they_were_written() {
    let join = JOIN.encode();
    assert_eq!(join.len(), 21);
    assert_eq!(Join::decode(&join).unwrap(), Some(JOIN));
    assert_eq!(Control::decode(&join).unwrap(), None);
    for (ring, length) in RINGS {
        let bytes = ring.encode();
        assert_eq!(bytes.len(), length);
        assert_eq!(RingMessage::decode(&bytes).unwrap(), Some(ring));
        assert_eq!(Control::decode(&bytes).unwrap(), None);
        let brings = RingMessage::brings_descriptor(&bytes);
        assert_eq!(brings, ring.length.is_some());
        assert_eq!(Join::decode(&bytes).unwrap(), None);
    }
    assert!(is_checksums(&[CHECKSUMS_KIND]).unwrap());
    assert_eq!(Control::decode(&[CHECKSUMS_KIND]).unwrap(), None);
    for other in [Control::GoAway.encode(), Vec::new(), join] {
        assert_eq!(RingMessage::decode(&other).unwrap(), None);
        assert!(!is_checksums(&other).unwrap());
    }
}

/// Rule E3: a message of another length is refused, and so is a JOIN with impossible numbers.
#[test]
fn malformed_messages_are_refused() {
    let longer = |mut bytes: Vec<u8>| {
        bytes.push(0);
        bytes
    };
    let of_rings = RINGS.map(|(ring, _)| RingMessage::decode(&longer(ring.encode())).err());
    let join = Join::decode(&longer(JOIN.encode())).err();
    let checksums = is_checksums(&[CHECKSUMS_KIND, 0]).err();
    for error in of_rings.into_iter().chain([join, checksums]) {
        let error = error.unwrap();
        assert!(error.text().contains("makes no sense"), "{error}");
    }
    for (index, count) in [(4, 4), (0, 1), (0, 65)] {
        let wrong = Join {
            index,
            count,
            ..JOIN
        };
        assert!(Join::decode(&wrong.encode()).is_err());
    }
}
