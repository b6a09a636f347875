//! A client made of a connection and the receiver's state machine, without a decoder. It shows the
//! places of bodies, and returns them on request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use dipc::arrow::{EncodeOptions, EncodedMessage, Encoder, batch_to_c, schema_to_c};
use dipc::device::cuda::{Device, Event, PinnedMemory, Stream, later, uuids};
use dipc::device::{BufferRef, HostBuffer};
use dipc::error::{Error, Result};
use dipc::proto::{
    Body, Control, Credit, FEATURE_IN_PLACE, Header, InBody, Message, Receiver, ReceiverConfig,
    ReceiverEvent, ReceiverTransmit, Request, Side, SideConfig, StreamInfo, Timestamp, Uri,
    encode_frees,
};
use dipc::transport::{self, Connection, Incoming, LinkOptions, Outgoing, Payload, Unmapped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A connection of a client.
pub struct RawClient {
    pub link: Box<dyn Connection>,
    uri: Uri,
    /// Announced regions with memory, in order.
    pub announced: Vec<u16>,
    /// Retired regions, in order.
    pub retired: Vec<u16>,
    /// Called before a retired region with memory is forgotten.
    pub on_gone: fn(),
    /// Number of READY messages.
    pub ordered: usize,
}

/// A message, and the place of its body.
pub struct Received {
    pub header: Header,
    pub buffers: Vec<BufferRef>,
    pub gpu: Option<(Arc<Device>, Option<Arc<Event>>)>,
    owner: Option<Arc<dyn std::any::Any + Send + Sync>>,
    addresses: Vec<u64>,
    _packed: Option<HostBuffer>,
}

/// The parameters of a request.
pub struct Wanted {
    pub ticket: Vec<u8>,
    pub device_type: i32,
    pub gpus: Vec<[u8; 16]>,
    /// The window.
    pub window: u64,
    pub window_bytes: u64,
}

impl Wanted {
    /// On this process's GPUs.
    pub fn on_gpus(ticket: &str) -> Self {
        Self {
            ticket: ticket.as_bytes().to_vec(),
            device_type: 2,
            gpus: uuids().unwrap(),
            window: 8,
            window_bytes: 1 << 30,
        }
    }
}

/// A running stream.
pub struct RawStream<'a> {
    client: &'a mut RawClient,
    receiver: Receiver<HostBuffer>,
    pub info: Option<StreamInfo>,
    start: Instant,
}

impl RawClient {
    pub fn connect(uri: &str) -> Result<Self> {
        let uri = Uri::parse(uri)?;
        let mut link = transport::by_scheme(&uri.scheme)?.connect(&uri, &LinkOptions::default())?;
        // All its streams as one.
        link.begin_stream(0, 0);
        Ok(Self {
            link,
            uri,
            announced: Vec::new(),
            retired: Vec::new(),
            on_gone: || {},
            ordered: 0,
        })
    }

    pub fn get(&mut self, wanted: Wanted) -> Result<RawStream<'_>> {
        self.link.table().unwrap().accept_gpus(&wanted.gpus);
        let request = Request {
            device_type: wanted.device_type,
            gpus: wanted.gpus,
            // It returns addresses.
            features: FEATURE_IN_PLACE,
            ..Request::new(
                wanted.ticket,
                Credit {
                    batches: wanted.window,
                    bytes: wanted.window_bytes,
                },
            )
        };
        let config = ReceiverConfig::new(request, SideConfig::extended(self.uri.tags));
        let mut receiver = Receiver::new(config)?;
        receiver.start(Timestamp::from_nanos(0));
        let mut stream = RawStream {
            client: self,
            receiver,
            info: None,
            start: Instant::now(),
        };
        stream.pump()?;
        Ok(stream)
    }

    /// Reads a message, handles regions and events; waits a while if there is none.
    pub fn receive(&mut self) -> Result<Option<Incoming>> {
        self.link.flush()?;
        let Some(message) = self.link.receive_any()? else {
            let ready = self.link.identity().readiness.clone();
            let mut fds = [PollFd::new(&ready.fd, PollFlags::IN)];
            let wait = Timespec::try_from(Duration::from_millis(20)).unwrap();
            let _ = poll(&mut fds, Some(&wait));
            return Ok(None);
        };
        let Incoming::Control { bytes, fd } = message else {
            return Ok(Some(message));
        };
        match Control::decode(&bytes)? {
            Some(Control::Region { id, handle }) => {
                self.link.regions().unwrap().map(id, &handle, fd)?;
                self.announced.push(id);
            }
            Some(Control::RegionGone { id }) => {
                (self.on_gone)();
                self.retired.push(id);
                if self.link.regions().unwrap().unmap(id)? == Unmapped::Later {
                    assert!(later::wait(Duration::from_secs(10)));
                }
                let bytes = Control::RegionForgotten { id }.encode();
                self.link.send(Outgoing::Control { bytes, fd: None })?;
            }
            Some(Control::Ready { seq, event, handle }) => {
                self.ordered += 1;
                self.link.table().unwrap().order(seq, event, &handle)?;
            }
            _ => return Ok(Some(Incoming::Control { bytes, fd: None })),
        }
        Ok(None)
    }

    /// Unmaps a body, then returns it.
    pub fn give_back(&mut self, received: Received) -> Result<()> {
        let Received {
            owner, addresses, ..
        } = received;
        drop(owner);
        if addresses.is_empty() {
            return Ok(());
        }
        let tag = self.uri.tags.free_data.unwrap();
        let payload = Payload::Bytes(encode_frees(&addresses).into());
        self.link.send(Outgoing::Tagged { tag, payload })
    }
}

impl RawStream<'_> {
    fn pump(&mut self) -> Result<()> {
        while let Some(transmit) = self.receiver.poll_transmit() {
            let message = match transmit {
                ReceiverTransmit::Tagged { tag, bytes, .. } => Outgoing::Tagged {
                    tag,
                    payload: Payload::Bytes(bytes.into()),
                },
                ReceiverTransmit::Control { bytes, .. } => Outgoing::Control { bytes, fd: None },
            };
            self.client.link.send(message)?;
        }
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Stream { info, .. } => self.info = Some(info),
                ReceiverEvent::Expect(body) => self.client.link.post_body(0, body),
                _ => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap())
    }

    /// The next message; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Received>> {
        loop {
            if let Some(message) = self.receiver.next_message() {
                self.receiver.flush_credit();
                self.pump()?;
                return self.find(message).map(Some);
            }
            if self.receiver.is_complete() {
                return Ok(None);
            }
            self.read()?;
        }
    }

    /// Reads until `count` messages wait.
    pub fn fill(&mut self, count: usize) -> Result<()> {
        while self.receiver.waiting() < count {
            assert!(
                self.start.elapsed() < Duration::from_secs(10),
                "they do not come"
            );
            self.read()?;
        }
        Ok(())
    }

    /// Reads a message, if there is one.
    fn read(&mut self) -> Result<()> {
        if let Some(error) = self.receiver.error() {
            return Err(error.clone());
        }
        let now = self.now();
        match self.client.receive()? {
            None => {}
            Some(Incoming::Metadata(bytes)) => self.receiver.handle_metadata(now, &bytes)?,
            Some(Incoming::Control { bytes, .. }) => {
                // Events of the stream are handled above.
                let _: Result<(), Error> =
                    self.receiver.handle_control(now, Side::Metadata, &bytes);
            }
            Some(Incoming::Tagged { tag, bytes }) => {
                self.receiver.handle_body(now, tag, InBody::List(&bytes))?;
            }
            Some(Incoming::Body { seq, memory }) => {
                let len = memory.len() as u64;
                let body = InBody::Packed { len, memory };
                self.receiver.handle_body(now, u64::from(seq), body)?;
            }
            Some(Incoming::GpuBody { .. }) => panic!("no GPU was named"),
        }
        self.pump()
    }

    fn find(&mut self, message: Message<HostBuffer>) -> Result<Received> {
        let Message { seq, header, body } = message;
        match body {
            Body::Packed(memory) => {
                let whole = memory.as_ref();
                let buffers = header
                    .buffers()
                    .map(|span| BufferRef {
                        data: whole
                            .data
                            .wrapping_add(usize::try_from(span.offset).unwrap()),
                        len: usize::try_from(span.length).unwrap(),
                    })
                    .collect();
                Ok(Received {
                    header,
                    buffers,
                    gpu: None,
                    owner: None,
                    addresses: Vec::new(),
                    _packed: Some(memory),
                })
            }
            Body::Lent(spans) => {
                let resolved =
                    self.client
                        .link
                        .regions()
                        .unwrap()
                        .resolve(0, seq, spans.clone())?;
                let lent = spans.iter().filter(|span| span.length > 0);
                Ok(Received {
                    header,
                    buffers: resolved.buffers,
                    gpu: resolved.gpu.map(|gpu| (gpu.device, gpu.ready)),
                    owner: Some(resolved.owner),
                    addresses: lent.map(|span| span.address).collect(),
                    _packed: None,
                })
            }
        }
    }

    pub fn give_back(&mut self, received: Received) -> Result<()> {
        self.client.give_back(received)
    }
}

impl Received {
    /// The bytes of every buffer, read by the device after its event.
    pub fn read(&self) -> Vec<Vec<u8>> {
        let Some((device, ready)) = &self.gpu else {
            // SAFETY: the owner is held, and the producer writes no more.
            let bytes = self
                .buffers
                .iter()
                .map(|buffer| unsafe { buffer.as_slice() });
            return bytes.map(<[u8]>::to_vec).collect();
        };
        let stream = Stream::new(device).unwrap();
        if let Some(ready) = ready {
            stream.wait(ready).unwrap();
        }
        self.buffers
            .iter()
            .map(|buffer| {
                let target = PinnedMemory::new(device, buffer.len).unwrap();
                // SAFETY: both live until the stream is synchronised.
                unsafe { stream.copy(target.address(), buffer.data as u64, buffer.len) }.unwrap();
                stream.synchronize().unwrap();
                // SAFETY: the work is done.
                let bytes = unsafe { target.as_slice() };
                bytes[..buffer.len].to_vec()
            })
            .collect()
    }
}

/// The messages of batches, made like by a server on the host.
pub struct Expected {
    encoder: Encoder,
}

impl Expected {
    pub fn new(batch: &RecordBatch) -> Self {
        let schema = schema_to_c(&batch.schema()).unwrap();
        Self {
            encoder: Encoder::new(&schema, EncodeOptions::default()).unwrap(),
        }
    }

    /// Asserts that a received body equals the batch, byte for byte.
    pub fn assert_is(&mut self, received: &Received, batch: &RecordBatch) {
        let messages = self
            .encoder
            .encode(batch_to_c(batch.clone()), None)
            .unwrap();
        let [message]: &[EncodedMessage] = &messages else {
            panic!("{} messages", messages.len());
        };
        assert_eq!(
            received.header.bytes(),
            &message.header[..],
            "another header"
        );
        let bytes = received.read();
        assert_eq!(bytes.len(), message.buffers.len());
        for (index, (got, wanted)) in bytes.iter().zip(&message.buffers).enumerate() {
            // SAFETY: the message keeps its memory.
            let wanted = unsafe { wanted.as_slice() };
            assert!(
                got == wanted,
                "buffer {index} of {} bytes differs",
                wanted.len()
            );
        }
    }
}
