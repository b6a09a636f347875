//! A hand-written server: it speaks shm's frames and sends any given messages.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dipc::device::region::Region;
use dipc::proto::{
    AddressList, BodyKind, Control, Header, Headers, Prefix, PrefixKind, Span, StreamInfo, Tags,
    body_tag,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::files::Message;

/// How the peer sends its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Without the extension (rule E1): packed bodies.
    Baseline,
    /// With the extension, packed bodies (rule D3).
    Packed,
    /// With the extension, address lists into its own regions (rule D4). A message without a valid
    /// list of buffers is sent packed.
    Lent,
}

impl Manner {
    /// All manners.
    pub const ALL: [Self; 3] = [Self::Baseline, Self::Packed, Self::Lent];
}

/// A server for one client, with the same messages for each ticket.
pub struct Peer {
    uri: String,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// Starts it.
    pub fn start(messages: Vec<Message>, manner: Manner) -> Self {
        let name = crate::name();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let tags = Tags::DEFAULT;
        let uri = match manner {
            Manner::Baseline => format!("shm:@{name}?want_data={}", tags.want_data),
            Manner::Packed | Manner::Lent => format!("shm:@{name}"),
        };
        let thread = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            // A client may leave early.
            let _ = serve(socket, &messages, manner);
        });
        Self {
            uri,
            thread: Some(thread),
        }
    }

    /// Its URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The client has gone by now, or never came: then this connection ends the wait.
        let name = self.uri.trim_start_matches("shm:@");
        let name = name.split('?').next().unwrap();
        drop(UnixStream::connect_addr(
            &SocketAddr::from_abstract_name(name).unwrap(),
        ));
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

/// A frame of `docs/protocol.md`, "Our transports".
fn frame(class: u8, tag: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&[class, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

fn metadata(kind: PrefixKind, seq: u32, header: &[u8]) -> Vec<u8> {
    let prefix = Prefix { kind, seq }.encode();
    frame(0, 0, &[&prefix[..], header].concat())
}

fn control(message: &Control) -> Vec<u8> {
    frame(2, 0, &message.encode())
}

fn serve(mut socket: UnixStream, messages: &[Message], manner: Manner) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.set_write_timeout(Some(Duration::from_secs(60)))?;
    // The request: only its length, in front, matters here.
    let mut header = [0; 24];
    socket.read_exact(&mut header)?;
    let length = u64::from_le_bytes(header[..8].try_into().unwrap());
    socket.read_exact(&mut vec![0; usize::try_from(length).unwrap()])?;

    if manner != Manner::Baseline {
        let info = StreamInfo {
            version: 1,
            features: 0,
            device_type: 1,
            device_id: -1,
            body_kinds: 3,
        };
        socket.write_all(&control(&Control::Stream(info, Headers::new())))?;
    }
    let mut seq = 0;
    for message in messages {
        socket.write_all(&metadata(PrefixKind::Metadata, seq, &message.header))?;
        if message.has_body() {
            let lent = (manner == Manner::Lent)
                .then(|| lend(&socket, seq, message))
                .flatten();
            let (kind, payload) = match lent {
                Some(list) => (BodyKind::List, list),
                None => (BodyKind::Packed, message.body.clone()),
            };
            socket.write_all(&frame(1, body_tag(seq, kind), &payload))?;
        }
        seq += 1;
    }
    socket.write_all(&metadata(PrefixKind::EndOfStream, seq, &[]))?;
    // Rule F2: the connection stays open until the client goes.
    let mut rest = [0; 4096];
    while socket.read(&mut rest)? > 0 {}
    Ok(())
}

/// Puts a body into a new region, announces the region, and gives the address list.
fn lend(socket: &UnixStream, seq: u32, message: &Message) -> Option<Vec<u8>> {
    let header = Header::parse(&message.header).ok()?;
    // Offset 0 is no valid address, so the body begins one block later.
    let (id, start) = (u16::try_from(seq).ok()?, 64_usize);
    let len = ((start + message.body.len()) as u64).next_multiple_of(4096);
    let region = Region::create(len, "dipc-peer").ok()?;
    // SAFETY: the region is at least as long as `start` plus the body.
    let place = unsafe { region.base().as_ptr().add(start) };
    // SAFETY: as above; the region is new and unshared, so nothing overlaps and nobody reads it
    // meanwhile.
    unsafe { place.copy_from_nonoverlapping(message.body.as_ptr(), message.body.len()) };
    let handle = (region.len() as u64).to_le_bytes().to_vec();
    let announcement = control(&Control::Region { id, handle });
    send_with(socket, &announcement, region.fd().as_fd());
    let spans: Vec<_> = header
        .buffers()
        .map(|buffer| match buffer.length {
            0 => Span {
                address: 0,
                length: 0,
            },
            length => Span {
                address: u64::from(id) << 48 | (start as u64 + buffer.offset),
                length,
            },
        })
        .collect();
    let total = spans.iter().map(|span| span.length).sum();
    Some(AddressList { total, spans }.encode().into_vec())
}

/// Sends bytes and a descriptor, in one system call.
fn send_with(socket: &UnixStream, bytes: &[u8], fd: BorrowedFd<'_>) {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    // If the client has gone, the next write fails.
    let _ = rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    );
}
