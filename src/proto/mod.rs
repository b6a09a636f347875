//! The Dissociated IPC protocol as state machines: no unsafe code, clock, I/O or threads.
//!
//! [`Session`] is one end of a connection. [`Sender`] is its producing side. [`Receiver`] is the
//! consuming side of one stream. [`FreeQueue`] gathers the returns of one connection. None of these
//! reads payload bytes: they pass on the caller's descriptions and handles.
//!
//! Call order: call `handle_*` for each input, or a command. After each such call, call
//! `poll_transmit` until `None`, then `poll_event` until `None`, then `poll_timeout` of a receiver.
//!
//! Comments cite rules by their numbers in `docs/protocol.md`. `docs/wire.md` has the bytes of our
//! extension.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
// A panic in a test shows a failure.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

#[macro_use]
mod error;

mod advice;
mod body;
mod control;
mod extension;
mod free;
mod header;
mod headers;
mod ledger;
mod prefix;
mod receiver;
mod request;
mod selection;
mod sender;
mod session;
mod tag;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod testing;
mod time;
mod uri;
mod verb;
mod window;
mod wire;

pub use body::{AddressList, Bytes, Span, Spans, decode_frees, encode_frees};
pub use control::{
    BODY_KIND_LIST, BODY_KIND_PACKED, Control, Grant, IPC_HANDLE_BYTES, MOST_RESULT, StreamInfo,
};
pub use error::ProtocolError;
pub use extension::{
    Credit, FEATURE_HEADERS, FEATURE_IN_PLACE, FEATURE_PENDING, FEATURE_REPEAT, FEATURE_RETURN,
    FEATURE_STREAMS, UUID_BYTES, VERSION,
};
pub use free::{FreeMessage, FreeQueue, Return};
pub use header::{BodySpan, Header, HeaderKind, HeaderParser, verifier_options};
pub use headers::{Headers, MAX_ANSWER_HEADERS, MAX_REQUEST_HEADERS};
pub use ledger::Ledger;
pub use prefix::{Prefix, PrefixKind};
pub use receiver::{
    AnswerLimit, Body, ExpectedBody, InBody, Message, Receiver, ReceiverConfig, ReceiverEvent,
    ReceiverState, ReceiverTransmit, Side, SideConfig,
};
pub use request::{MAX_TICKET_BYTES, Request, ensure_ticket_fits};
pub use selection::{MAX_SELECTION_BYTES, MOST_COLUMNS, Selection};
pub(crate) use sender::is_answer;
pub use sender::{OutBody, Sender, SenderConfig, SenderEvent, SenderState, Transmit, WindowRoom};
pub use session::{
    ArrivedRequest, BodiesWork, Handled, HostResult, InMessage, IncomingStream, PutProgress,
    PutStage, QuietTimes, Rest, Session, SessionEvent, SessionStream, StreamMessage,
};
pub use tag::{BodyKind, Role, RoleTags, Tags, body_of_tag, body_tag, parse_body_tag};
pub use time::Timestamp;
pub use uri::Uri;
pub(crate) use uri::escape_zone;
pub use verb::Verb;
pub(crate) use wire::Fields;

#[cfg(test)]
#[path = "tests/link.rs"]
mod link;
#[cfg(test)]
#[path = "tests/wires.rs"]
mod wires;
