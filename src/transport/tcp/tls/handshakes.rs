//! The handshakes that are under way at a listener, bounded in number and in time.
//!
//! A connection comes out of here when it is encrypted and its peer is known: no other part of the
//! server sees one before.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::error::{Error, Result, Status};
use crate::lines::Lines;
use crate::transport::TlsOptions;
use crate::transport::tcp::group::most_waiting;
use crate::transport::tcp::tls::handshake::{Handshake, HandshakeProgress};
use crate::transport::tcp::watched::Connected;
use crate::transport::wait::Timer;

/// The handshakes of one listener.
pub struct Handshakes {
    tls: Arc<TlsOptions>,
    /// How long a handshake may take.
    time: Duration,
    /// How many may be under way.
    most: usize,
    /// Oldest first.
    waiting: VecDeque<WaitingHandshake>,
    /// The number of the next one.
    next: u64,
    /// Readable when a handshake goes on, or the oldest has taken too long.
    pub epoll: Arc<OwnedFd>,
    timer: Timer,
    /// About handshakes that came to nothing, which peers can have any number of.
    said: Lines,
}

struct WaitingHandshake {
    number: u64,
    handshake: Handshake,
    peer: SocketAddr,
    since: Instant,
    /// What the epoll watches its socket for.
    watched: EventFlags,
}

/// The number of the timer among the events.
const TIMER: u64 = u64::MAX;

impl Handshakes {
    /// None yet. Each may take `time`.
    /// Errors: As the files of `tls` have them; the system's.
    pub fn new(tls: &Arc<TlsOptions>, time: Duration) -> Result<Self> {
        tls.server()?;
        let failed = |errno| Error::os("cannot set a listener up", errno);
        let timer = Timer::new().map_err(failed)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(failed)?;
        Ok(Self {
            tls: Arc::clone(tls),
            time,
            most: most_waiting(),
            waiting: VecDeque::new(),
            next: 0,
            epoll: Arc::new(epoll),
            timer,
            said: Lines::default(),
        })
    }

    /// Begins a handshake with a peer that was accepted. Where too many are under way, the oldest
    /// ends: an honest peer's handshake is over soon.
    pub fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<()> {
        let socket = Arc::new(socket);
        let handshake = Handshake::answer(self.tls.server()?, Arc::clone(&socket))
            .map_err(|error| Error::disconnected(format!("no handshake with {peer}: {error}")))?;
        let number = self.next;
        self.next += 1;
        let data = EventData::new_u64(number);
        epoll::add(&self.epoll, &socket, data, EventFlags::IN)
            .map_err(|errno| Error::os("cannot watch a handshake", errno))?;
        self.waiting.push_back(WaitingHandshake {
            number,
            handshake,
            peer,
            since: Instant::now(),
            watched: EventFlags::IN,
        });
        if self.waiting.len() == 1 {
            self.set_timer();
        }
        while self.waiting.len() > self.most {
            self.close_oldest("too many handshakes are under way");
        }
        Ok(())
    }

    /// The next peer with which TLS is agreed on.
    /// Errors: Of one peer, which is refused: `Permission`, `Disconnected`.
    pub fn next(&mut self) -> Result<Option<Connected>> {
        while let Some(oldest) = self.waiting.front()
            && oldest.since.elapsed() >= self.time
        {
            self.close_oldest("the handshake took too long");
        }
        let mut events = Vec::with_capacity(16);
        let now = Timespec::default();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::os("cannot look for handshakes", errno)),
        }
        for event in events {
            let number = event.data.u64();
            if number == TIMER {
                // It may have been early.
                self.set_timer();
            }
            let at = self
                .waiting
                .iter()
                .position(|waiting| waiting.number == number);
            let Some(at) = at else { continue };
            if let Some(secured) = self.turn(at)? {
                return Ok(Some(secured));
            }
        }
        Ok(None)
    }

    fn turn(&mut self, at: usize) -> Result<Option<Connected>> {
        let Some(waiting) = self.waiting.get_mut(at) else {
            return Ok(None);
        };
        let wanted = match waiting.handshake.turn() {
            Ok(HandshakeProgress::Reading) => EventFlags::IN,
            Ok(HandshakeProgress::Writing) => EventFlags::OUT,
            Ok(HandshakeProgress::Done) => return self.finish(at).transpose(),
            Err(error) => {
                let gone = self.remove(at);
                return Err(gone.map_or_else(|| error.clone(), |it| of_peer(it.peer, &error)));
            }
        };
        if wanted != waiting.watched {
            waiting.watched = wanted;
            let data = EventData::new_u64(waiting.number);
            epoll::modify(&self.epoll, &waiting.handshake.socket, data, wanted)
                .map_err(|errno| Error::os("cannot watch a handshake", errno))?;
        }
        Ok(None)
    }

    fn finish(&mut self, at: usize) -> Option<Result<Connected>> {
        let WaitingHandshake {
            handshake, peer, ..
        } = self.remove(at)?;
        let socket = Arc::clone(&handshake.socket);
        let agreed = handshake.finish(&peer.to_string());
        let agreed = agreed.map_err(|error| of_peer(peer, &error));
        Some(agreed.map(|agreed| Connected::securely(socket, peer, agreed)))
    }

    fn remove(&mut self, at: usize) -> Option<WaitingHandshake> {
        let waiting = self.waiting.remove(at)?;
        let _ = epoll::delete(&self.epoll, &waiting.handshake.socket);
        // It is for the oldest.
        if at == 0 {
            self.set_timer();
        }
        Some(waiting)
    }

    fn close_oldest(&mut self, why: &str) {
        if let Some(waiting) = self.remove(0) {
            let peer = waiting.peer;
            self.said
                .say(|more| tracing::warn!("no TLS with {peer}: {why}{more}"));
        }
    }

    fn set_timer(&self) {
        let oldest = self.waiting.front();
        let left = oldest.map(|it| self.time.saturating_sub(it.since.elapsed()));
        if let Err(errno) = self.timer.set(left) {
            tracing::error!("a listener cannot watch the time of handshakes: {errno}");
        }
    }
}

/// The error of one peer, which is no fault of the listener's.
fn of_peer(peer: SocketAddr, error: &Error) -> Error {
    let status = match error.status() {
        Status::Permission => Status::Permission,
        _ => Status::Disconnected,
    };
    Error::new(status, format!("the peer at {peer} {}", error.text()))
}
