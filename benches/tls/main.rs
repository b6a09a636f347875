//! Bodies by TLS (`src/transport/tcp/tls/records.rs`), beside the kernel's TLS and none.
//!
//! Bodies pass the same channels over loopback TCP, from one thread to another. Only the wire below
//! differs, with one cipher and one provider. The ways take turns in each round, and the direction
//! changes from round to round.
//!
//! `cargo bench -p libdipc --bench tls`; `-- --quick` for a first look.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "in benchmarks a panic is how a failure shows"
)]

mod kernel;

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use dipc::proto::{BodyKind, ExpectedBody, body_tag};
use dipc::transport::measured::{Channel, Handshake, HandshakeProgress, Wire, config};
use dipc::transport::{Incoming, Outgoing, Payload, TlsFiles};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use rustls::{ClientConfig, ServerConfig};

const SIZES: [usize; 2] = [2 << 20, 64 << 10];
/// Bytes of one way in one round.
const ROUND_BYTES: usize = 128 << 20;
/// Bodies lie in as much memory at the sender: more than a processor's own cache has.
const SOURCE_BYTES: usize = 64 << 20;
/// As many bodies a consumer has.
const WINDOW: usize = 16;

/// The wires of a client and a server.
type Wires = (Box<dyn Wire>, Box<dyn Wire>);

/// Shakes hands over two ends of a connection.
type Shake = fn(&Configs, [&TcpStream; 2]) -> Result<Wires, String>;

const OURS: &str = "libdipc";

const WAYS: [(&str, Shake); 3] = [
    (OURS, ours),
    ("the kernel", kernel::shake),
    ("no TLS", |_, _| {
        Ok((Box::new(kernel::Plain), Box::new(kernel::Plain)))
    }),
];

pub struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Configs {
    /// The library's own, with a certificate for `localhost`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let client = TlsFiles {
            ca: Some(certificate.clone()),
            ..TlsFiles::default()
        };
        let server = TlsFiles {
            identity: Some((certificate, key)),
            ..TlsFiles::default()
        };
        Self {
            client: Arc::new(config::client(&client).unwrap()),
            server: Arc::new(config::server(&server).unwrap()),
        }
    }
}

fn ours(configs: &Configs, sockets: [&TcpStream; 2]) -> Result<Wires, String> {
    let [at_client, at_server] = sockets.map(|it| Arc::new(OwnedFd::from(it.try_clone().unwrap())));
    let mut client = Handshake::ask(Arc::clone(&configs.client), "localhost", at_client).unwrap();
    let mut server = Handshake::answer(Arc::clone(&configs.server), at_server).unwrap();
    while client.turn().unwrap() != HandshakeProgress::Done {
        server.turn().unwrap();
    }
    while server.turn().unwrap() != HandshakeProgress::Done {}
    let (client, server) = (client.finish("server"), server.finish("client"));
    Ok((Box::new(client.unwrap().0), Box::new(server.unwrap().0)))
}

/// Two connected, non-blocking sockets.
fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ends = [here, listener.accept().unwrap().0];
    for end in &ends {
        end.set_nodelay(true).unwrap();
        end.set_nonblocking(true).unwrap();
    }
    ends
}

struct End {
    channel: Channel<dyn Wire>,
    sent: u32,
    received: u32,
}

impl End {
    fn new(socket: TcpStream, wire: Box<dyn Wire>) -> Self {
        let socket = Arc::new(OwnedFd::from(socket));
        Self {
            channel: Channel::new(socket, "the other end".to_owned(), 0, wire),
            sent: 0,
            received: 0,
        }
    }

    fn send(&mut self, bodies: &[Arc<[u8]>], count: usize) {
        for body in bodies.iter().cycle().take(count) {
            let message = Outgoing::Tagged {
                tag: body_tag(self.sent, BodyKind::Packed),
                payload: Payload::Shared(Arc::clone(body)),
            };
            self.sent += 1;
            self.channel.queue(0, message).unwrap();
            while !self.channel.flush().unwrap() {
                self.wait(PollFlags::OUT);
            }
        }
    }

    fn receive(&mut self, bodies: &[Arc<[u8]>], count: usize, is_checked: bool) {
        for seq in (self.received..).take(count) {
            let expected = ExpectedBody::new(seq, bodies[0].len() as u64, 0);
            self.channel.reader.post(0, expected);
        }
        self.received += count as u32;
        let mut window = VecDeque::with_capacity(WINDOW);
        for body in bodies.iter().cycle().take(count) {
            let came = loop {
                match self.channel.receive().unwrap() {
                    Some((_, Incoming::Body { memory, .. })) => break memory,
                    Some((_, other)) => panic!("{other:?} came"),
                    None => self.wait(PollFlags::IN),
                }
            };
            assert!(
                !is_checked || came.as_slice() == &**body,
                "other bytes came"
            );
            if window.len() == WINDOW {
                window.pop_front();
            }
            window.push_back(came);
        }
    }

    fn wait(&self, events: PollFlags) {
        let mut polled = [PollFd::from_borrowed_fd(
            self.channel.socket.as_fd(),
            events,
        )];
        poll(&mut polled, None).unwrap();
    }
}

/// What one way took for the bytes of one round, in seconds.
#[derive(Clone, Copy)]
struct Taken {
    time: f64,
    processor: f64,
}

fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn carry(ends: &mut [End; 2], bodies: &[Arc<[u8]>], count: usize, is_checked: bool) -> Taken {
    let (started, processor) = (Instant::now(), processor_time());
    let [from, to] = ends;
    std::thread::scope(|scope| {
        scope.spawn(|| from.send(bodies, count));
        to.receive(bodies, count, is_checked);
    });
    Taken {
        time: started.elapsed().as_secs_f64(),
        processor: processor_time() - processor,
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure(ways: &mut [(&str, [End; 2])], size: usize, rounds: usize) {
    let body = |seed| (0..size).map(move |at| ((seed + at * 31) >> 7) as u8);
    let bodies: Vec<Arc<[u8]>> = (0..SOURCE_BYTES / size)
        .map(|seed| body(seed).collect())
        .collect();
    let mut order: Vec<_> = (0..ways.len()).collect();
    let mut taken: Vec<Vec<Taken>> = vec![Vec::new(); ways.len()];
    for (_, ends) in &mut *ways {
        for _ in 0..2 {
            carry(ends, &bodies, 8, true);
            ends.swap(0, 1);
        }
    }
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &way in &order {
            let ends = &mut ways[way].1;
            taken[way].push(carry(ends, &bodies, ROUND_BYTES / size, false));
            ends.swap(0, 1);
        }
    }
    let kib = size >> 10;
    println!("\nBodies of {kib} KiB, {rounds} rounds, medians; ratios are those of the rounds");
    println!("{:44} {:>9} {:>9}  processor time", "", "MiB/s", "rate");
    for ((name, _), own) in ways.iter().zip(&taken) {
        let mib = (ROUND_BYTES >> 20) as f64;
        let rate = median(own.iter().map(|it| mib / it.time));
        let pairs = || own.iter().zip(&taken[0]);
        let ratio = median(pairs().map(|(it, ours)| ours.time / it.time));
        let processor = median(pairs().map(|(it, ours)| it.processor / ours.processor));
        println!("{name:44} {rate:9.0} {ratio:9.3} {processor:9.3}");
    }
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let configs = Configs::new();
    let mut ways = Vec::new();
    for (name, shake) in WAYS {
        let [at_client, at_server] = sockets();
        match shake(&configs, [&at_client, &at_server]) {
            Ok((client, server)) => {
                let ends = [End::new(at_client, client), End::new(at_server, server)];
                ways.push((name, ends));
            }
            Err(why) => println!("{name} is left out: {why}"),
        }
    }
    assert_eq!(ways[0].0, OURS, "the ratios are to the first");
    for size in SIZES {
        measure(&mut ways, size, if is_quick { 6 } else { 40 });
    }
}
