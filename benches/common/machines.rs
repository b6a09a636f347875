//! The protocol's machines in the middle of a stream.

use std::sync::Arc;

use dipc::proto::{
    AddressList, BODY_KIND_LIST, BodyKind, Bytes, Control, Credit, Headers, InBody, Message,
    OutBody, Prefix, PrefixKind, Receiver, ReceiverConfig, Request, Role, Sender, SenderConfig,
    Side, SideConfig, Span, Spans, StreamInfo, Tags, Timestamp, Transmit, VERSION, body_tag,
};

use super::Arrived;

const NOW: Timestamp = Timestamp::from_nanos(1);
/// More than any run uses up, and small enough to be counted.
const CREDIT: Credit = Credit {
    batches: 1 << 40,
    bytes: 1 << 60,
};

/// A receiver that has the schema, and the messages of the batch that comes again and again.
pub struct ReceiverStep {
    receiver: Receiver<Arc<[u8]>>,
    next: u32,
    metadata: Vec<u8>,
    list: Bytes,
}

impl ReceiverStep {
    /// A stream of `arrived`'s batch, lent.
    pub fn new(arrived: &Arrived) -> Self {
        let side = SideConfig::extended(Tags::default_for(Role::Both));
        let request = Request::new("ticket", CREDIT);
        let mut receiver = Receiver::new(ReceiverConfig::new(request, side)).unwrap();
        receiver.start(NOW);
        let info = StreamInfo {
            version: VERSION,
            features: 0,
            device_type: 1,
            device_id: -1,
            body_kinds: BODY_KIND_LIST,
        };
        receiver
            .handle_control(
                NOW,
                Side::Metadata,
                &Control::Stream(info, Headers::new()).encode(),
            )
            .unwrap();
        let mut step = Self {
            receiver,
            next: 0,
            metadata: metadata(&arrived.schema_header),
            list: AddressList::new(spans(arrived)).unwrap().encode(),
        };
        step.receiver.handle_metadata(NOW, &step.metadata).unwrap();
        step.drain();
        step.metadata = metadata(&arrived.message.header);
        step.next = 1;
        step
    }

    /// One batch: its header, its body, taken by the consumer; the outputs drained after each.
    pub fn run(&mut self) -> Message<Arc<[u8]>> {
        self.metadata[1..5].copy_from_slice(&self.next.to_le_bytes());
        self.receiver.handle_metadata(NOW, &self.metadata).unwrap();
        self.drain();
        let tag = body_tag(self.next, BodyKind::List);
        self.receiver
            .handle_body(NOW, tag, InBody::List(&self.list))
            .unwrap();
        self.drain();
        self.next += 1;
        let message = self.receiver.next_message().unwrap();
        self.drain();
        message
    }

    fn drain(&mut self) {
        while self.receiver.poll_transmit().is_some() {}
        while self.receiver.poll_event().is_some() {}
    }
}

/// A sender that has sent the schema.
pub struct SenderStep {
    sender: Sender<(), ()>,
    header: Arc<[u8]>,
    body_len: u64,
    spans: Spans,
}

impl SenderStep {
    /// A stream of `arrived`'s batch, lent.
    pub fn new(arrived: &Arrived) -> Self {
        let mut sender = Sender::new(SenderConfig::default());
        let tags = Tags::default_for(Role::Both);
        sender
            .handle_tagged(tags.dipc_want, &Request::new("ticket", CREDIT).encode())
            .unwrap();
        sender
            .accept(StreamInfo {
                version: VERSION,
                features: 0,
                device_type: 1,
                device_id: -1,
                body_kinds: BODY_KIND_LIST,
            })
            .unwrap();
        sender.send_schema(arrived.schema_header.clone()).unwrap();
        let spans = Spans::from_vec(spans(arrived));
        let mut step = Self {
            sender,
            header: Arc::clone(&arrived.message.header),
            body_len: arrived.message.body_len,
            spans,
        };
        step.drain();
        step
    }

    /// One batch goes out, and its memory comes back.
    pub fn run(&mut self) {
        let body = OutBody::Lent {
            spans: Spans::from_slice(&self.spans),
            hold: (),
            in_place: true,
        };
        let seq = self.sender.next_seq();
        self.sender
            .send_batch(Arc::clone(&self.header), self.body_len, body)
            .map_err(|_| "refused")
            .unwrap();
        self.drain();
        let returned = Control::Return {
            stream: 0,
            seqs: vec![seq],
        };
        self.sender.handle_control(&returned.encode()).unwrap();
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit() {
            assert!(!matches!(transmit, Transmit::Disconnect { .. }));
        }
        while self.sender.poll_event().is_some() {}
    }
}

fn metadata(header: &[u8]) -> Vec<u8> {
    let prefix = Prefix {
        kind: PrefixKind::Metadata,
        seq: 0,
    };
    [&prefix.encode(), header].concat()
}

/// The buffers as if each lay in lent memory.
fn spans(arrived: &Arrived) -> Vec<Span> {
    let mut address = 1 << 32;
    arrived
        .message
        .buffers
        .iter()
        .map(|buffer| {
            let length = buffer.len as u64;
            let span = Span {
                address: if length == 0 { 0 } else { address },
                length,
            };
            address += length.next_multiple_of(64);
            span
        })
        .collect()
}
