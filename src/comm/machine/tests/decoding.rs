//! Promises of the decoders: no bytes cause a panic, and bytes have one meaning.

use super::Dice;
use crate::comm::machine::{Card, Failure, Message};
use crate::error::Status;

/// Other bytes: random, or these with some changed, cut or added.
pub(super) fn damaged(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match dice.roll(4) {
        0 => return dice.bytes(40),
        1 => bytes.truncate(dice.roll(bytes.len() + 1)),
        2 => bytes.extend(dice.bytes(5)),
        _ => {
            for _ in 0..=dice.roll(3) {
                let at = dice.roll(bytes.len());
                bytes[at] = u8::try_from(dice.roll(256)).unwrap();
            }
        }
    }
    bytes
}

fn messages() -> Vec<Message> {
    let failure = |rank, text: &str| Failure {
        rank,
        status: Status::Timeout,
        text: text.to_owned(),
    };
    vec![
        Message::Beat,
        Message::Left,
        Message::Failed(failure(Some(7), "rank 7 stopped")),
        Message::Failed(failure(Some(0), "")),
        Message::Failed(failure(None, "größer")),
    ]
}

fn cards() -> Vec<Card> {
    let card = |rank, uris: &[&str]| Card {
        rank,
        size: 8,
        host: "host".to_owned(),
        uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
        secret: "open sesame".to_owned(),
    };
    vec![card(None, &[]), card(Some(7), &["shm:@a", "tcp://h:1"])]
}

/// Promise of [`Message::decode`] and [`Card::decode`]: they give the value that was encoded.
#[test]
fn what_was_encoded_comes_back() {
    for message in messages() {
        assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    }
    for card in cards() {
        assert_eq!(Card::decode(&card.encode()).unwrap(), card);
    }
}

/// Promise of [`Message::decode`] and [`Card::decode`]: any other bytes than those of
/// `encode` are an error.
#[test]
fn any_bytes_are_safe() {
    let (messages, cards) = (messages(), cards());
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let message = messages[dice.roll(messages.len())].encode();
        let bytes = damaged(&mut dice, &message);
        match Message::decode(&bytes) {
            Ok(message) => assert_eq!(message.encode(), bytes),
            Err(error) => assert_eq!(error.status(), Status::Protocol),
        }
        let card = cards[dice.roll(cards.len())].encode();
        let bytes = damaged(&mut dice, &card);
        match Card::decode(&bytes) {
            Ok(card) => assert_eq!(card.encode(), bytes),
            Err(error) => assert_eq!(error.status(), Status::Protocol),
        }
    }
}

/// Promise of [`Message::encode`] and [`Card::encode`]: long texts are cut at a character, and the
/// peer takes the rest.
#[test]
fn long_texts_are_cut() {
    let failure = Failure {
        rank: None,
        status: Status::Poisoned,
        text: "ü".repeat(5001),
    };
    let bytes = Message::Failed(failure).encode();
    assert!(bytes.len() < 4200);
    let Message::Failed(failure) = Message::decode(&bytes).unwrap() else {
        panic!("another message");
    };
    assert_eq!(failure.text, "ü".repeat(2048));
    assert_eq!(failure.status, Status::Disconnected, "a status for peers");
    let mut card = cards().remove(0);
    card.host = "ü".repeat(5001);
    card.uris = vec!["tcp://h:1".to_owned(); 100];
    let card = Card::decode(&card.encode()).unwrap();
    assert_eq!((card.host.len(), card.uris.len()), (4096, 64));
}

/// Promise of [`Card::decode`]: the rank is below the size, and the size is one of a communicator.
#[test]
fn cards_without_sense_are_refused() {
    for (rank, size) in [(Some(8), 8), (None, 0), (Some(0), 0), (None, u32::MAX)] {
        let card = Card {
            rank,
            size,
            ..cards().remove(0)
        };
        assert_eq!(
            Card::decode(&card.encode()).unwrap_err().status(),
            Status::Protocol
        );
    }
}

/// Promise of [`Card`]: logs do not show the secret.
#[test]
fn debug_output_has_no_secret() {
    assert!(!format!("{:?}", cards()).contains("sesame"));
}
