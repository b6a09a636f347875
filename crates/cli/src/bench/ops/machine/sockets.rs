//! Messages through a Unix socket between two processes.

use std::io::{IoSlice, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rustix::event::epoll;

use crate::bench::base::case::Case;
use crate::bench::base::message::{Outcome, Parent};
use crate::bench::base::streams::event_loop;
use crate::bench::base::timing::{many, measure_times, nanoseconds, repeat};

/// The first byte on a socket: the service that the client asks for.
const SINK: u8 = b's';
const ECHO: u8 = b'e';
/// Connections of TCP, at a port that is sent first.
pub const CONNECTIONS: u8 = b'c';
/// The same within TLS.
pub const TLS_CONNECTIONS: u8 = b't';

/// Reads what comes on a socket, or sends messages of `size` bytes back.
pub fn answer(mut socket: UnixStream, wanted: [u8; 1], size: usize) -> Result<()> {
    if wanted == [SINK] {
        let mut memory = vec![0; 1 << 20];
        while socket.read(&mut memory)? > 0 {}
        return Ok(socket.write_all(&[0])?);
    }
    let mut memory = vec![0; size];
    let readiness = Readiness::of(&socket)?;
    loop {
        readiness.read(&mut socket, &mut memory)?;
        socket.write_all(&memory)?;
    }
}

/// Sleeps until a socket is readable, as an event loop does.
struct Readiness(std::os::fd::OwnedFd);

impl Readiness {
    fn of(socket: &UnixStream) -> Result<Self> {
        Ok(Self(event_loop(socket)?))
    }

    /// Reads until `memory` is full.
    fn read(&self, socket: &mut UnixStream, memory: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < memory.len() {
            let mut events = Vec::with_capacity(1);
            epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), None)?;
            match socket.read(&mut memory[done..])? {
                0 => bail!("the socket was closed"),
                bytes => done += bytes,
            }
        }
        Ok(())
    }
}

pub fn open(name: &str, wanted: u8) -> Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let mut socket = UnixStream::connect_addr(&address).context("cannot connect to the server")?;
    socket.write_all(&[wanted])?;
    Ok(socket)
}

/// Sends messages, one system call each; the other process reads and discards them.
pub fn write(case: &Case, size: usize, name: &str, parent: &Parent) -> Result<()> {
    let message = vec![1_u8; size];
    let mut socket = open(name, SINK)?;
    if !parent.ready()? {
        return Ok(());
    }
    let start = Instant::now();
    let outcome = repeat(case, many(case), || {
        let written = socket.write_vectored(&[IoSlice::new(&message)])?;
        // A large message is sent in parts.
        Ok(socket.write_all(&message[written..])?)
    })?;
    socket.shutdown(std::net::Shutdown::Write)?;
    socket.read_exact(&mut [0])?;
    parent.say(Outcome {
        // The answer shows that the other process has read everything.
        seconds: start.elapsed().as_secs_f64(),
        ..outcome
    })
}

/// A message there and back, between two sleeping processes.
pub fn round_trip(case: &Case, size: usize, name: &str, parent: &Parent) -> Result<()> {
    let mut memory = vec![1_u8; size];
    let mut socket = open(name, ECHO)?;
    let readiness = Readiness::of(&socket)?;
    measure_times(case, parent, || {
        thread::sleep(case.interval);
        let start = Instant::now();
        socket.write_all(&memory)?;
        readiness.read(&mut socket, &mut memory)?;
        Ok(nanoseconds(start.elapsed()))
    })
}
