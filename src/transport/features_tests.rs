use super::*;
use crate::proto::Control;

const JOIN: Join = Join {
    group: 0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10,
    index: 1,
    count: 4,
};

/// docs/wire.md: each message is read as it was written; others are others'.
#[test]
fn messages_are_read_as_they_were_written() {
    for (scheme, feature, length) in [
        (Scheme::Tcp, Feature::Join(JOIN), 21),
        (Scheme::Shm, Feature::AskRing(ConnectionEnd::Server), 1),
        (Scheme::Shm, Feature::AskRing(ConnectionEnd::Client), 1),
        (Scheme::Shm, Feature::Ring(ConnectionEnd::Server, 69_632), 9),
        (Scheme::Shm, Feature::Ring(ConnectionEnd::Client, 69_632), 9),
        (Scheme::Any, Feature::Checksums, 1),
    ] {
        let bytes = feature.encode();
        assert_eq!(bytes.len(), length);
        assert_eq!(Feature::decode(scheme, &bytes).unwrap(), Some(feature));
        assert_eq!(Control::decode(&bytes).unwrap(), None);
        let brings = matches!(feature, Feature::Ring(..));
        assert_eq!(Feature::is_ring_with_descriptor(&bytes), brings);
    }
    let join = Feature::Join(JOIN).encode();
    for other in [Control::GoAway.encode(), Vec::new(), join] {
        assert_eq!(Feature::decode(Scheme::Shm, &other).unwrap(), None);
    }
}

/// Rule E3: a message of another length is refused, and so is a JOIN that makes no sense.
#[test]
fn malformed_messages_are_refused() {
    for (scheme, feature) in [
        (Scheme::Tcp, Feature::Join(JOIN)),
        (Scheme::Shm, Feature::Ring(ConnectionEnd::Server, 1)),
        (Scheme::Shm, Feature::Ring(ConnectionEnd::Client, 1)),
        (Scheme::Any, Feature::Checksums),
    ] {
        let mut longer = feature.encode();
        longer.push(0);
        let error = Feature::decode(scheme, &longer).unwrap_err();
        assert!(error.text().contains("makes no sense"), "{error}");
    }
    for (index, count) in [(4, 4), (0, 1), (0, 65)] {
        let wrong = Join {
            index,
            count,
            ..JOIN
        };
        let bytes = Feature::Join(wrong).encode();
        assert!(Feature::decode(Scheme::Tcp, &bytes).is_err());
    }
}
