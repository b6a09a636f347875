//! Hand-written servers that break the rules, or send at unusual moments: on a connection without a
//! stream, or after the consumer has left.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use dipc::arrow::schema_to_c;
use dipc::arrow::stream::ArrayReader;
use dipc::bare::{BareSender, MessageClass};
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::region::Region;
use dipc::error::Status;
use dipc::proto::{Control, Role, SenderConfig, SenderState, Uri};

use crate::{eventually, frame, name, region_frame, send_with, try_send_with};

/// A server of one connection.
pub struct Scripted {
    pub socket: UnixStream,
    sender: BareSender,
}

/// The URI of a server that runs `script` on its first connection, and its thread.
pub fn with_server(
    script: impl FnOnce(Scripted) + Send + 'static,
) -> (String, std::thread::JoinHandle<()>) {
    let name = name();
    let listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let uri = Uri::new("shm", &format!("@{name}"), Role::Both).to_string();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let sender = BareSender::new(SenderConfig::default(), false).unwrap();
        script(Scripted { socket, sender });
    });
    (uri, server)
}

impl Scripted {
    /// The next frame: class, tag and bytes.
    pub fn read(&mut self) -> std::io::Result<(u8, u64, Vec<u8>)> {
        let mut head = [0; 24];
        self.socket.read_exact(&mut head)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        let mut bytes = vec![0; word(0) as usize];
        self.socket.read_exact(&mut bytes)?;
        Ok((head[16], word(8), bytes))
    }

    /// Reads up to a request, and gives the frames of a stream's start.
    pub fn begin(&mut self) -> Vec<u8> {
        while self.sender.state() != SenderState::Requested {
            let (class, tag, bytes) = self.read().unwrap();
            match class {
                1 => self.sender.handle_tagged(tag, &bytes).unwrap(),
                _ => self.sender.handle_control(&bytes).unwrap(),
            }
        }
        let schema = Schema::new(vec![Field::new("number", DataType::Int64, true)]);
        self.sender
            .start(&schema_to_c(&schema).unwrap(), 1)
            .unwrap();
        self.frames()
    }

    /// The frames that the state machine sends.
    fn frames(&mut self) -> Vec<u8> {
        let messages = std::iter::from_fn(|| self.sender.poll_transmit());
        let frames = messages.map(|message| {
            // SAFETY: the parts lie on the host and live as long as the message.
            let parts = message
                .parts()
                .iter()
                .map(|part| unsafe { part.as_slice() });
            let class = match message.class {
                MessageClass::Metadata => 0,
                MessageClass::Tagged => 1,
                _ => 2,
            };
            frame(class, message.tag, &parts.collect::<Vec<_>>().concat())
        });
        frames.collect::<Vec<_>>().concat()
    }

    /// A whole stream without batches.
    fn empty_stream(&mut self) -> Vec<u8> {
        let mut bytes = self.begin();
        self.sender.end().unwrap();
        bytes.extend(self.frames());
        bytes
    }

    /// Whether the client has disconnected; other messages are skipped.
    fn sees_the_end(&mut self) -> bool {
        loop {
            match self.read() {
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }
}

pub fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

/// Reads a stream to its end.
fn fetch(client: &Client, uri: &str) -> dipc::error::Result<()> {
    let mut stream = client.get(&[uri], b"t", &GetOptions::default(), None)?;
    assert!(stream.next()?.is_none());
    Ok(())
}

/// Rule E3: a REGION_GONE together with the end of a stream is answered, although no stream
/// follows.
#[test]
fn a_region_that_goes_with_the_end_of_a_stream_is_answered() {
    let (uri, server) = with_server(|mut server| {
        let region = Region::create(4096, "dipc-test").unwrap();
        let start = server.begin();
        server.socket.write_all(&start).unwrap();
        send_with(
            &server.socket,
            &region_frame(1, 4096),
            &[region.fd().as_fd()],
        );
        server.sender.end().unwrap();
        let mut end = server.frames();
        end.extend(frame(2, 0, &Control::RegionGone { id: 1 }.encode()));
        server.socket.write_all(&end).unwrap();
        loop {
            let (class, _, bytes) = server.read().expect("the answer");
            if class == 2 && bytes == (Control::RegionForgotten { id: 1 }).encode() {
                break;
            }
        }
    });
    let client = client();
    fetch(&client, &uri).unwrap();
    server.join().unwrap();
}

/// Waits until the peer has read all that was written.
fn until_read(socket: &UnixStream) {
    eventually("all is read", || {
        let mut unread: libc::c_int = 0;
        // SAFETY: the request writes one int, which is there.
        let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
        assert_eq!(asked, 0);
        unread == 0
    });
}

/// Rule E3: a control message of an unknown kind is ignored on an idle connection too.
#[test]
fn unknown_kinds_between_streams_are_ignored() {
    let (watches, watched) = channel();
    let (reads, read) = channel();
    let (uri, server) = with_server(move |mut server| {
        for _ in 0..2 {
            let stream = server.empty_stream();
            server.socket.write_all(&stream).unwrap();
            watched.recv().unwrap();
            let unknown = frame(2, 0, &[0xee, 1, 2, 3]);
            server.socket.write_all(&unknown).unwrap();
            until_read(&server.socket);
            reads.send(()).unwrap();
        }
    });
    let client = client();
    for _ in 0..2 {
        fetch(&client, &uri).unwrap();
        eventually("the connection is watched", || {
            client.stats().connections_idle == 1
        });
        watches.send(()).unwrap();
        read.recv().unwrap();
    }
    assert_eq!(client.stats().connections_made, 1);
    server.join().unwrap();
}

/// A server that never ends a cancelled stream does not keep the connection.
#[test]
fn a_silent_server_of_a_cancelled_stream_is_left() {
    let (uri, server) = with_server(|mut server| {
        let start = server.begin();
        server.socket.write_all(&start).unwrap();
        assert!(server.sees_the_end());
    });
    let client = client();
    let options = GetOptions {
        stall_timeout: Some(Duration::from_secs(1)),
        ..GetOptions::default()
    };
    let stream = client.get(&[&uri], b"t", &options, None).unwrap();
    drop(stream);
    server.join().unwrap();
    assert_eq!(client.stats().connections_idle, 0);
}

/// Rule E4: CANCEL is answered by ERROR. A server that goes on for ever, in whatever small
/// messages, is cut.
#[test]
fn an_endless_server_of_a_cancelled_stream_is_cut() {
    let (uri, server) = with_server(|mut server| {
        let start = server.begin();
        server.socket.write_all(&start).unwrap();
        // An unknown kind, which is ignored (rule E3).
        let some = frame(2, 0, &[255]).repeat(10_000);
        let cut = (0..1000).any(|_| server.socket.write_all(&some).is_err());
        assert!(cut, "the client has read ten million messages");
    });
    let client = client();
    let stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    drop(stream);
    server.join().unwrap();
    assert_eq!(client.stats().connections_idle, 0);
}

/// A server that retires regions without reading the answers cannot fill the client's memory: its
/// stream ends.
#[test]
fn a_flood_of_regions_is_ended() {
    let (uri, server) = with_server(|mut server| {
        let region = Region::create(4096, "dipc-test").unwrap();
        let start = server.begin();
        server.socket.write_all(&start).unwrap();
        let mut bytes = region_frame(1, 4096);
        bytes.extend(frame(2, 0, &Control::RegionGone { id: 1 }.encode()));
        // As long as the client reads.
        while try_send_with(&server.socket, &bytes, &[region.fd().as_fd()]).is_ok() {}
    });
    let client = client();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    let error = stream.next().map(drop).unwrap_err();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("does not read"), "{error}");
    drop(stream);
    server.join().unwrap();
}
