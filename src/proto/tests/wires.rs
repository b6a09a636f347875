//! What random schedules of two ends have in common: the dice, and the messages under way.

use std::collections::VecDeque;

use crate::error::Error;
use crate::proto::*;

/// A small random generator: schedules need variety, not quality.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }
}

/// The memory of a packed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestBody {
    /// Number of its item.
    pub(super) item: usize,
    pub(super) len: u64,
}

/// An end whose lends are numbers of items.
pub(super) type TestEnd = Session<TestBody, usize, TestBody>;

/// A message under way.
#[derive(Debug, Clone)]
pub(super) enum Wire {
    Metadata(Vec<u8>),
    Control(Vec<u8>),
    Tagged(u64, Vec<u8>),
    Body(u64, TestBody),
}

impl Wire {
    /// `Err`: the reason why the connection is to be cut.
    pub(super) fn of_transmit(transmit: Transmit<TestBody>) -> Result<Self, String> {
        Ok(match transmit {
            Transmit::Metadata { prefix, header } => {
                Self::Metadata([&prefix[..], header.as_deref().unwrap_or_default()].concat())
            }
            Transmit::Control { bytes, .. } => Self::Control(bytes),
            Transmit::Request { tag, bytes } | Transmit::List { tag, bytes } => {
                Self::Tagged(tag, bytes.into_vec())
            }
            Transmit::Body { tag, packed } => Self::Body(tag, packed),
            Transmit::Disconnect { reason } => return Err(reason),
        })
    }

    pub(super) fn of_free(message: FreeMessage) -> Self {
        match message {
            FreeMessage::Tagged { tag, bytes } => Self::Tagged(tag, bytes),
            FreeMessage::Control { bytes, .. } => Self::Control(bytes),
        }
    }

    /// Whether it may overtake others on a connection without order: control messages, requests
    /// and returns do not, on every transport.
    pub(super) fn is_loose(&self) -> bool {
        match self {
            Self::Metadata(_) | Self::Body(..) => true,
            Self::Tagged(tag, _) => body_of_tag(*tag).is_some(),
            Self::Control(_) => false,
        }
    }

    fn message(self) -> InMessage<Bytes, TestBody> {
        match self {
            Self::Metadata(bytes) => InMessage::Metadata(bytes.into()),
            Self::Control(bytes) => InMessage::Control(bytes.into()),
            Self::Tagged(tag, bytes) => InMessage::Tagged {
                tag,
                bytes: bytes.into(),
            },
            Self::Body(tag, memory) => InMessage::Body {
                seq: body_of_tag(tag).unwrap().0,
                len: memory.len,
                memory,
            },
        }
    }
}

/// The messages of one end that are under way.
pub(super) struct Line {
    messages: VecDeque<Wire>,
    ordered: bool,
}

impl Line {
    pub(super) fn new(ordered: bool) -> Self {
        let messages = VecDeque::new();
        Self { messages, ordered }
    }

    pub(super) fn push(&mut self, message: Wire) {
        self.messages.push_back(message);
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// A message arrives. Returns false if there is none.
    pub(super) fn deliver(&mut self, dice: &mut Dice, now: Timestamp, end: &mut TestEnd) -> bool {
        let mut index = 0;
        if !self.ordered && self.len() > 1 {
            index = dice.roll(self.len());
            if !self.messages[index].is_loose() {
                index = (self.messages.iter().position(|wire| !wire.is_loose())).unwrap();
            }
        }
        let Some(wire) = self.messages.remove(index) else {
            return false;
        };
        match hand_in(end, now, wire.message()).unwrap() {
            Handled::Done => {}
            Handled::Expect(body) => assert!(body.packed % 64 == 0 && body.list >= 16),
            Handled::Memory(memory) => panic!("{memory:?}"),
        }
        true
    }
}

/// Hands a message of its own bytes to a session.
pub(super) fn hand_in<P, K, B>(
    session: &mut Session<P, K, B>,
    now: Timestamp,
    message: InMessage<Bytes, B>,
) -> Result<Handled, Error> {
    let message = match message {
        InMessage::Metadata(ref bytes) => InMessage::Metadata(&**bytes),
        InMessage::Tagged { tag, ref bytes } => InMessage::Tagged {
            tag,
            bytes: &**bytes,
        },
        InMessage::Body { seq, len, memory } => InMessage::Body { seq, len, memory },
        InMessage::Control(ref bytes) => InMessage::Control(&**bytes),
    };
    session.handle(now, 0, message)
}

/// Hands a message of a stream to a session.
pub(super) fn hand_in_at(end: &mut TestEnd, number: u32, wire: Wire) -> Result<Handled, Error> {
    let now = Timestamp::default();
    match wire {
        Wire::Metadata(bytes) => end.handle(now, number, InMessage::Metadata(&bytes)),
        Wire::Control(bytes) => end.handle(now, number, InMessage::Control(&bytes)),
        Wire::Tagged(tag, bytes) => {
            let bytes = &bytes[..];
            end.handle(now, number, InMessage::Tagged { tag, bytes })
        }
        Wire::Body(tag, memory) => {
            let (seq, _) = body_of_tag(tag).unwrap();
            let len = memory.len;
            end.handle(now, number, InMessage::Body { seq, len, memory })
        }
    }
}
