//! Clients that break the rules of put, byte by byte: the server's host sees the table fail, never
//! end, and the server goes on.

use std::sync::mpsc;
use std::time::Duration;

use dipc::arrow::{EncodeOptions, Encoder};
use dipc::error::{Error, Result, Status};
use dipc::proto::{
    BodyKind, Control, Credit, Headers, Prefix, PrefixKind, Request, StreamInfo, Tags, Uri,
    VERSION, Verb, body_tag,
};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{self, Connection, Incoming, LinkOptions, Outgoing, Payload};

use crate::common::{FnTaker, batch, export, export_schema, read_all, schema};
use crate::{SUBJECTS, Subject, client, eventually, server};

/// A client without a state machine, and the messages of an honest table.
pub(crate) struct Raw {
    pub(crate) connection: Box<dyn Connection>,
    schema: Vec<u8>,
    header: Vec<u8>,
    body_len: usize,
}

pub(crate) const MARK: u64 = 7;

impl Raw {
    pub(crate) fn connect(subject: Subject, uri: &str) -> Self {
        let uri = Uri::parse(uri).unwrap();
        let transport = transport::by_scheme(subject.scheme).unwrap();
        let connection = transport.connect(&uri, &LinkOptions::default()).unwrap();
        let mut encoder = Encoder::new(
            &export_schema(&schema()),
            EncodeOptions { compression: None },
        )
        .unwrap();
        let schema = encoder.schema_header().to_vec();
        let encoded = encoder.encode(export(&batch(0, 10)), None).unwrap();
        let message = encoded.into_iter().next().unwrap();
        Self {
            connection,
            schema,
            header: message.header.to_vec(),
            body_len: usize::try_from(message.body_len).unwrap(),
        }
    }

    fn asks(&mut self) {
        self.asks_for(&Self::request());
    }

    /// The request of an honest put.
    pub(crate) fn request() -> Request {
        let credit = Credit {
            batches: 1,
            bytes: 1,
        };
        Request {
            verb: Verb::Put,
            stream_id: MARK.into(),
            source: Some(StreamInfo {
                version: VERSION,
                features: 0,
                device_type: 1,
                device_id: -1,
                body_kinds: 3,
            }),
            ..Request::new(*b"t", credit)
        }
    }

    pub(crate) fn asks_for(&mut self, request: &Request) {
        self.tagged(Tags::DEFAULT.dipc_want, request.encode());
    }

    pub(crate) fn metadata(&mut self, kind: PrefixKind, seq: u32, header: Option<Vec<u8>>) {
        let prefix = Prefix { kind, seq }.encode();
        let header = header.map(Into::into);
        let _ = self.connection.send(Outgoing::Metadata { prefix, header });
    }

    fn schema(&mut self) {
        self.metadata(PrefixKind::Metadata, 0, Some(self.schema.clone()));
    }

    pub(crate) fn batch(&mut self, seq: u32) {
        self.metadata(PrefixKind::Metadata, seq, Some(self.header.clone()));
        self.body(seq, self.body_len);
    }

    fn body(&mut self, seq: u32, len: usize) {
        self.tagged(body_tag(seq, BodyKind::Packed), vec![0; len]);
    }

    pub(crate) fn end(&mut self, seq: u32) {
        self.metadata(PrefixKind::EndOfStream, seq, None);
    }

    pub(crate) fn tagged(&mut self, tag: u64, bytes: Vec<u8>) {
        let payload = Payload::Bytes(bytes.into());
        let _ = self.connection.send(Outgoing::Tagged { tag, payload });
    }

    pub(crate) fn control(&mut self, control: &Control) {
        let (bytes, fd) = (control.encode(), None);
        let _ = self.connection.send(Outgoing::Control { bytes, fd });
    }

    /// Reads until the server has granted the stream.
    fn is_granted(&mut self) {
        eventually("the server grants", || {
            let _ = self.connection.flush();
            matches!(
                self.connection.receive_any(),
                Ok(Some(Incoming::Control { bytes, .. }))
                    if matches!(Control::decode(&bytes), Ok(Some(Control::Grant { .. })))
            )
        });
    }

    pub(crate) fn starts(&mut self) {
        self.asks();
        self.schema();
        self.is_granted();
    }

    /// Reads what the server says until it says its last word or ends the connection. Gives an
    /// error that the server has told.
    pub(crate) fn is_answered(&mut self) -> Option<(i32, String)> {
        let mut told = None;
        eventually("the server answers", || {
            let _ = self.connection.flush();
            match self.connection.receive_any() {
                Ok(Some(Incoming::Control { bytes, .. })) => match Control::decode(&bytes) {
                    Ok(Some(Control::Error { status, text, .. })) => {
                        told = Some((status, text));
                        true
                    }
                    Ok(Some(Control::End { .. })) => true,
                    _ => false,
                },
                Ok(_) => false,
                Err(_) => true,
            }
        });
        told
    }
}

/// What a client does that it may not, and its name.
type Wrong = (&'static str, fn(&mut Raw));

const WRONGS: [Wrong; 12] = [
    ("no schema, and gone", Raw::asks),
    ("a schema that is none", |raw| {
        raw.asks();
        raw.metadata(PrefixKind::Metadata, 0, Some(vec![7; 100]));
    }),
    ("a batch before the schema", |raw| {
        raw.asks();
        raw.batch(0);
    }),
    ("half a table, and gone", |raw| {
        raw.starts();
        raw.batch(1);
    }),
    ("a body that no header announces", |raw| {
        raw.starts();
        raw.body(5, 64);
        raw.end(1);
    }),
    ("a body of another length", |raw| {
        raw.starts();
        raw.metadata(PrefixKind::Metadata, 1, Some(raw.header.clone()));
        raw.body(1, raw.body_len + 8);
        raw.end(2);
    }),
    ("batches without credit", |raw| {
        raw.starts();
        for seq in 1..5000 {
            raw.batch(seq);
        }
    }),
    (
        "a message that is missing before the end, and gone",
        |raw| {
            raw.starts();
            raw.batch(1);
            raw.end(3);
        },
    ),
    ("a message behind ABORT", |raw| {
        raw.starts();
        raw.control(&Control::Abort {
            stream: MARK,
            status: Status::InvalidData.code(),
            seq: 1,
            text: "mine".into(),
        });
        raw.batch(1);
    }),
    ("a second request", |raw| {
        raw.starts();
        raw.asks();
    }),
    ("a list of memory that was not lent", |raw| {
        raw.starts();
        raw.metadata(PrefixKind::Metadata, 1, Some(raw.header.clone()));
        raw.tagged(body_tag(1, BodyKind::List), vec![9; 24]);
    }),
    ("messages of a server", |raw| {
        raw.starts();
        raw.control(&Control::Pending { stream: MARK });
        raw.control(&Control::End {
            stream: MARK,
            seq: 0,
            batches: 1,
            headers: dipc::proto::Headers::new(),
        });
    }),
];

fn take_by(server: &ServerHandle, outcomes: mpsc::Sender<Result<usize>>) {
    let take = move |request: &dipc::server::ServerRequest| {
        let read = request
            .source()
            .and_then(|mut source| read_all(&mut source));
        let _ = outcomes.send(read.as_ref().map(Vec::len).map_err(Error::clone));
        read.map(drop)
    };
    let handler = server.set_handler(Box::new(FnTaker(take)));
    handler.map_err(|(error, _)| error).unwrap();
}

/// Rules Q3, Q10, E4, E5, D1, M4: whatever a client does, its table fails at the server's host; the
/// server, and an honest client beside it, go on.
#[test]
fn a_table_of_a_client_that_breaks_the_rules_fails() {
    for subject in SUBJECTS {
        // Over several sockets a client is a group, which only the transport makes.
        if subject.options().connections > 1 {
            continue;
        }
        let (server, uri) = server(subject, ServerOptions::default());
        let (sender, outcomes) = mpsc::channel();
        take_by(&server, sender);
        for (what, wrong) in WRONGS {
            // Over UCX nobody asks for such a body, so that nobody sees it.
            if subject.scheme == "ucx" && what.contains("no header announces") {
                continue;
            }
            let mut raw = Raw::connect(subject, &uri);
            wrong(&mut raw);
            if !what.ends_with("gone") {
                raw.is_answered();
            }
            drop(raw);
            let outcome = outcomes.recv_timeout(Duration::from_secs(10));
            let outcome =
                outcome.unwrap_or_else(|_| panic!("{}: {what}: it hangs", subject.scheme));
            assert!(outcome.is_err(), "{}: {what}: {outcome:?}", subject.scheme);
            eventually("no stream is active", || server.stats().streams_active == 0);
        }
        let honest = client();
        let described = (&export_schema(&schema()), 1);
        let mut put = honest
            .put(
                &[&uri],
                b"t",
                described,
                &dipc::client::PutOptions::default(),
                None,
            )
            .unwrap();
        put.push(export(&batch(0, 10)), None, None)
            .map_err(|(error, _)| error)
            .unwrap();
        assert_eq!(put.finish(None).unwrap(), 1);
        assert_eq!(outcomes.recv().unwrap().unwrap(), 1);
    }
}

/// Rule A8: a body that is longer than a client's may be is refused by its header, before the
/// server has memory for it. The client hears the reason.
#[test]
fn a_body_past_its_limit_is_refused() {
    for subject in SUBJECTS {
        if subject.options().connections > 1 {
            continue;
        }
        let mut options = ServerOptions::default();
        options.take.message_limit = Some(64 << 10);
        let (server, uri) = server(subject, options);
        let (sender, outcomes) = mpsc::channel();
        take_by(&server, sender);
        let mut raw = Raw::connect(subject, &uri);
        raw.starts();
        // 32 times the limit is 2 MiB; each row has 8 bytes at least.
        let mut encoder = Encoder::new(
            &export_schema(&schema()),
            EncodeOptions { compression: None },
        )
        .unwrap();
        let encoded = encoder.encode(export(&batch(0, 300_000)), None).unwrap();
        let message = encoded.into_iter().next().unwrap();
        assert!(message.body_len > 2 << 20);
        raw.metadata(PrefixKind::Metadata, 1, Some(message.header.to_vec()));
        let (status, text) = raw.is_answered().unwrap_or_default();
        let name = subject.scheme;
        assert_eq!(status, Status::OutOfMemory.code(), "{name}: {text}");
        assert!(text.contains("past the limit for a body"), "{name}: {text}");
        let outcome = outcomes.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(outcome.unwrap_err().status(), Status::OutOfMemory);
    }
}

/// Rule Q11: of a client that has broken a rule the server reads no more, though its host is busy.
#[test]
fn clients_that_break_a_rule_are_not_read_without_end() {
    const HEADER: usize = 1 << 20;
    const HEADERS: u32 = 200;
    for subject in SUBJECTS {
        // Memory and UCX have no socket that could be full.
        let has_socket = ["shm", "tcp"].contains(&subject.scheme);
        if !has_socket || subject.options().connections > 1 {
            continue;
        }
        let mut options = ServerOptions::default();
        options.take.window.bytes = 4 << 20;
        let (server, uri) = server(subject, options);
        let (go_on, waits) = mpsc::channel::<()>();
        let waits = std::sync::Mutex::new(waits);
        let take = move |request: &dipc::server::ServerRequest| {
            let mut source = request.source()?;
            let _ = waits.lock().unwrap().recv();
            read_all(&mut source).map(drop)
        };
        let handler = server.set_handler(Box::new(FnTaker(take)));
        handler.map_err(|(error, _)| error).unwrap();
        let mut raw = Raw::connect(subject, &uri);
        raw.starts();
        for seq in 1..=HEADERS {
            raw.metadata(PrefixKind::Metadata, seq, Some(vec![0; HEADER]));
        }
        let mut left = u64::MAX;
        let mut same = 0;
        eventually("the server reads no more", || {
            let _ = raw.connection.flush();
            let now = raw.connection.traffic().queued;
            same = if now == left { same + 1 } else { 0 };
            left = now;
            same > 200
        });
        let read = u64::from(HEADERS) * HEADER as u64 - left;
        // What a turn reads, and what the system's buffers hold.
        assert!(
            read < 32 << 20,
            "{}: {read} bytes were read",
            subject.scheme
        );
        drop(raw);
        drop(go_on);
    }
}

/// Rule E3: a client that breaks a rule is told which, where what the server said last can be read
/// after its close.
#[test]
fn who_breaks_a_rule_is_told_which() {
    for subject in SUBJECTS {
        // Over several sockets a client is a group, which only the transport makes.
        if subject.options().connections > 1 || subject.scheme == "ucx" {
            continue;
        }
        let (server, uri) = server(subject, ServerOptions::default());
        let handler = server.set_handler(Box::new(FnTaker(
            move |request: &dipc::server::ServerRequest| read_all(&mut request.source()?).map(drop),
        )));
        handler.map_err(|(error, _)| error).unwrap();
        let mut raw = Raw::connect(subject, &uri);
        raw.starts();
        raw.control(&Control::End {
            stream: MARK,
            seq: 0,
            batches: 0,
            headers: Headers::new(),
        });
        let (status, text) = raw.is_answered().expect(subject.scheme);
        assert_eq!(status, Status::Protocol.code(), "{text}");
        assert!(text.contains("END message from a client"), "{text}");
    }
}
