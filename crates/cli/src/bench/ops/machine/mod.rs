//! The speed of the machine without libdipc, for comparison.

mod ciphers;
mod connecting;

use std::io::{IoSlice, Read as _, Write as _};
use std::mem;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use arrow::array::{Int64Array, RecordBatch, RecordBatchIterator};
use arrow::buffer::ScalarBuffer;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use dipc::arrow::OwnedStream;
use dipc::arrow::abi::ArrowArrayStream;
use dipc::arrow::stream::{ArrayReader as _, StreamReader};
use rustix::event::epoll;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::getpid;

use crate::bench::base::case::{Case, Shape, Values as Kind, What};
use crate::bench::base::gpu;
use crate::bench::base::message::{Latency, Outcome, Parent, Ready, Usage};
use crate::bench::base::timing::{histogram, many, nanoseconds, repeat};
use crate::bench::base::values::{Values, sum};

/// The first byte on a socket: the service that the client asks for.
const SINK: u8 = b's';
const ECHO: u8 = b'e';
/// Connections of TCP, at a port that is said first.
pub(super) const CONNECTIONS: u8 = b'c';
/// The same within TLS.
pub(super) const TLS_CONNECTIONS: u8 = b't';

/// Serves the other end of the sockets until the command ends.
pub fn serve(case: &Case, parent: &Parent) -> Result<()> {
    let name = format!("dipc-bench-machine-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address).context("cannot listen at a socket")?;
    let size = size_of(case)?;
    let folder = case.certificate.clone();
    thread::Builder::new()
        .name("bench-peer".to_owned())
        .spawn(move || {
            for socket in listener.incoming() {
                // The client reports an early end of the connection.
                let _ = socket.map(|socket| answer(socket, size, folder.as_deref()));
            }
        })
        .context("cannot start a thread")?;
    parent.say(Ready {
        uri: name,
        ..Ready::default()
    })?;
    while parent.go()? {
        parent.say(Usage::now()?)?;
    }
    Ok(())
}

fn answer(mut socket: UnixStream, size: usize, folder: Option<&Path>) -> Result<()> {
    let mut wanted = [0];
    socket.read_exact(&mut wanted)?;
    if let [CONNECTIONS | TLS_CONNECTIONS] = wanted {
        let folder = folder.filter(|_| wanted == [TLS_CONNECTIONS]);
        return connecting::answer(socket, size, folder);
    }
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
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
        Ok(Self(epoll))
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

/// Measures the case.
pub fn run(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    let size = size_of(case)?;
    match case.what {
        What::Memcpy => memcpy(case, size, parent),
        What::ProcessVmReadv => process_vm_readv(case, size, parent),
        What::Sum => sums(case, size, parent),
        What::ArrowStream => stream_sums(case, size, parent),
        What::SocketWrite => socket_write(case, size, &ready.uri, parent),
        What::SocketRoundTrip => socket_round_trip(case, size, &ready.uri, parent),
        What::Aes128Gcm => ciphers::seal(case, size, parent),
        What::TlsHandshake => ciphers::handshake(case, parent),
        What::TcpConnection | What::TlsConnection | What::TlsResumption => {
            connecting::run(case, size, &ready.uri, parent)
        }
        What::PinnedToDevice | What::DeviceToPinned | What::DeviceToDevice => {
            gpu::copies(case, size, parent)
        }
    }
}

fn size_of(case: &Case) -> Result<usize> {
    Ok(usize::try_from(case.batch_bytes())?)
}

/// The position of a walk through memory, in pieces.
struct Walk {
    memory: usize,
    size: usize,
    next: usize,
}

impl Walk {
    /// A walk through as much memory as the distinct batches may take, or through one piece.
    fn new(case: &Case, size: usize) -> Result<Self> {
        let memory = usize::try_from(case.ring_bytes)?.max(size);
        Ok(Self {
            // A multiple of the size of a number.
            memory: memory.next_multiple_of(8),
            size,
            next: 0,
        })
    }

    fn step(&mut self) -> Range<usize> {
        if self.next + self.size > self.memory {
            self.next = 0;
        }
        let start = self.next;
        self.next += self.size;
        start..start + self.size
    }
}

/// `memcpy` from this process's memory into a memfd. Both were touched before.
fn memcpy(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let memory = walk.memory;
    let source = vec![1_u8; memory];
    let file = memfd_create("dipc-bench", MemfdFlags::CLOEXEC).context("no file in memory")?;
    ftruncate(&file, memory as u64)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, at an address that the system chooses, of a file that only this
    // process has and never shortens. It stays until the process ends.
    let mapped = unsafe { mmap(ptr::null_mut(), memory, access, MapFlags::SHARED, &file, 0) };
    let mapped = mapped.context("cannot map a file in memory")?.cast::<u8>();
    // SAFETY: the mapping has `memory` bytes, which hold zeros, and nobody else knows of it.
    let target = unsafe { slice::from_raw_parts_mut(mapped, memory) };
    target.copy_from_slice(&source);
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, many(case), || {
        let piece = walk.step();
        target[piece.clone()].copy_from_slice(&source[piece]);
        std::hint::black_box(&mut *target);
        Ok(())
    })?;
    parent.say(outcome)
}

/// `process_vm_readv` within this process, into one buffer. Both were touched before. The copy is
/// the same as between processes, which the system may forbid.
fn process_vm_readv(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let mut source = vec![1_u8; walk.memory];
    let mut target = vec![0_u8; size];
    let own = getpid().as_raw_nonzero().get();
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, many(case), || {
        let (mut done, piece) = (0, walk.step());
        while done < size {
            let to = iovec(&mut target[done..]);
            let from = iovec(&mut source[piece.start + done..piece.end]);
            // SAFETY: both describe memory of this process that is there and that nobody else uses
            // meanwhile. Plain bytes are written.
            let copied =
                unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
            // A large message is sent in parts.
            done += usize::try_from(copied).map_err(|_| std::io::Error::last_os_error())?;
        }
        Ok(())
    })?;
    parent.say(outcome)
}

fn iovec(memory: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: memory.as_mut_ptr().cast(),
        iov_len: memory.len(),
    }
}

/// Adds up memory of this process.
fn sums(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let numbers = vec![1_u64; walk.memory / 8];
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, many(case), || {
        let piece = walk.step();
        let total = sum(&numbers[piece.start / 8..piece.end / 8]);
        std::hint::black_box(total);
        Ok(())
    })?;
    parent.say(outcome)
}

/// Adds up batches that come through another library's C stream, without a move between processes.
/// Each batch is exported, read like a batch of libdipc, and released.
fn stream_sums(case: &Case, size: usize, parent: &Parent) -> Result<()> {
    let mut walk = Walk::new(case, size)?;
    let shape = Shape {
        columns: 1,
        values: Kind::Int64,
    };
    let schema = Arc::new(shape.schema());
    let numbers = ScalarBuffer::from(vec![1_i64; walk.memory / 8]);
    let batch = |piece: Range<usize>| {
        let values = numbers.slice(piece.start / 8, piece.len() / 8);
        RecordBatch::try_new(
            Arc::clone(&schema),
            vec![Arc::new(Int64Array::new(values, None))],
        )
    };
    let pieces = (0..walk.memory / size.max(8)).map(|_| walk.step());
    let batches = pieces.map(batch).collect::<Result<Vec<_>, _>>()?;
    let endless = batches.into_iter().cycle().map(Ok);
    let reader = RecordBatchIterator::new(endless, Arc::clone(&schema));
    let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
    // SAFETY: both types are the struct of the C stream interface, and have one size (asserted
    // below). Nobody else has it.
    let stream = unsafe { OwnedStream::take((&raw mut stream).cast()) };
    let mut stream = StreamReader::new(stream);
    let values = Values::of(&mut stream, shape)?;
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, many(case), || {
        let array = stream.next()?.context("the stream ended")?;
        // SAFETY: the array is of the stream that `values` was made of.
        let total = unsafe { values.sum(&array) }?;
        std::hint::black_box(total);
        Ok(())
    })?;
    parent.say(outcome)
}

const _: () = assert!(mem::size_of::<FFI_ArrowArrayStream>() == mem::size_of::<ArrowArrayStream>());

pub(super) fn open(name: &str, wanted: u8) -> Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(name)?;
    let mut socket = UnixStream::connect_addr(&address).context("cannot connect to the server")?;
    socket.write_all(&[wanted])?;
    Ok(socket)
}

/// Sends messages, one system call each; the other process reads and discards them.
fn socket_write(case: &Case, size: usize, name: &str, parent: &Parent) -> Result<()> {
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
fn socket_round_trip(case: &Case, size: usize, name: &str, parent: &Parent) -> Result<()> {
    let mut memory = vec![1_u8; size];
    let mut socket = open(name, ECHO)?;
    let readiness = Readiness::of(&socket)?;
    let mut times = histogram()?;
    if !parent.ready()? {
        return Ok(());
    }
    let outcome = repeat(case, 1, || {
        thread::sleep(case.interval);
        let start = Instant::now();
        socket.write_all(&memory)?;
        readiness.read(&mut socket, &mut memory)?;
        times.saturating_record(nanoseconds(start.elapsed()).max(1));
        Ok(())
    })?;
    parent.say(Outcome {
        latency: Some(Latency::of(&times)),
        ..outcome
    })
}
