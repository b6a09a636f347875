//! Several TCP sockets to one peer as one connection.
//!
//! Bodies are spread by their sequence numbers; everything else goes over the first socket. A body
//! may so arrive before its header, and the next stream's messages before the last of this one.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::{Error, Result};
use crate::proto::body_of_tag;
use crate::transport::tcp::connection::{WatchedSocket, identity};
use crate::transport::{Connection, Identity, Incoming, Outgoing, Profile, Queued, Readiness};

/// How long the other sockets may go on when the peer has ended one: what it sent before it closed
/// them all can still be under way on some.
const END_TIME: Duration = Duration::from_secs(2);

/// [`Connection`] over several TCP sockets.
pub struct JoinedConnection {
    identity: Identity,
    parts: Vec<Part>,
    /// Readable when a socket is, or when one has room that was waited for.
    epoll: Arc<OwnedFd>,
    /// In the epoll: when [`END_TIME`] is over.
    end_timer: OwnedFd,
    /// Since when nothing has come while some sockets are at their end.
    ending: Option<Instant>,
    /// The socket to read next.
    next: usize,
    over: Option<Error>,
}

struct Part {
    line: WatchedSocket,
    /// What the epoll watches it for; `None` when it is not in there any more.
    watched: Option<EventFlags>,
}

/// What watches sockets, and the timer for their end in it.
fn watch(lines: &[WatchedSocket]) -> Result<(OwnedFd, OwnedFd), Errno> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let end_timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let data = EventData::new_u64(0);
    epoll::add(&epoll, &end_timer, data, EventFlags::IN)?;
    for line in lines {
        epoll::add(&epoll, line.channel.socket(), data, EventFlags::IN)?;
    }
    Ok((epoll, end_timer))
}

impl JoinedConnection {
    /// Takes over the sockets, in the order of their numbers; two at least.
    ///
    /// # Errors
    ///
    /// Of the system: no descriptors are left. With the sockets given back.
    pub fn new(lines: Vec<WatchedSocket>) -> Result<Self, (Error, Vec<WatchedSocket>)> {
        let (epoll, end_timer) = match watch(&lines) {
            Ok(made) => made,
            Err(errno) => {
                let doing = "cannot set up a connection of several sockets";
                return Err((Error::os(doing, errno), lines));
            }
        };
        let peer = lines.first().map_or("", |line| line.channel.peer());
        let peer = format!("{peer} over {} sockets", lines.len());
        let parts = lines.into_iter().map(|line| Part {
            line,
            watched: Some(EventFlags::IN),
        });
        let epoll = Arc::new(epoll);
        let readiness = Readiness {
            fd: Arc::clone(&epoll) as _,
            socket: false,
            peer_death: None,
        };
        let profile = Profile {
            is_ordered: false,
            ..Profile::SOCKET
        };
        Ok(Self {
            identity: identity(peer, readiness, profile),
            parts: parts.collect(),
            epoll,
            end_timer,
            ending: None,
            next: 0,
            over: None,
        })
    }

    /// Which socket the body of a message goes over.
    fn part_of(&self, seq: u32) -> usize {
        usize::try_from(seq).unwrap_or(0) % self.parts.len()
    }

    /// Which socket a tagged message goes over.
    fn part_of_tag(&self, tag: u64) -> usize {
        body_of_tag(tag).map_or(0, |(seq, _)| self.part_of(seq))
    }

    fn ensure_open(&self) -> Result<()> {
        self.over.clone().map_or(Ok(()), Err)
    }

    /// Has the epoll watch a socket for what can be done with it now.
    fn watch(&mut self, index: usize) {
        let part = &mut self.parts[index];
        let Some(watched) = part.watched else { return };
        let channel = &part.line.channel;
        let mut wanted = EventFlags::empty();
        // A body that waits to be posted would be reported on and on.
        wanted.set(EventFlags::IN, !channel.is_waiting());
        wanted.set(EventFlags::OUT, channel.is_full());
        if channel.has_ended() {
            let _ = epoll::delete(&self.epoll, channel.socket());
            part.watched = None;
        } else if wanted != watched {
            let data = EventData::new_u64(0);
            match epoll::modify(&self.epoll, channel.socket(), data, wanted) {
                Ok(()) => part.watched = Some(wanted),
                Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
            }
        }
    }

    /// Checks that a message came over the socket where it belongs.
    fn check(&self, index: usize, message: &Incoming) -> Result<()> {
        let belongs = match message {
            Incoming::Body { seq, .. } | Incoming::GpuBody { seq, .. } => self.part_of(*seq),
            Incoming::Tagged { tag, .. } => self.part_of_tag(*tag),
            Incoming::Metadata(_) | Incoming::Control { .. } => 0,
        };
        if belongs == index {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "the peer sent a message over socket {index} of {} that belongs on socket {belongs} \
             (docs/wire.md)",
            self.parts.len()
        )))
    }

    fn receive_next(&mut self) -> Result<Option<Incoming>> {
        let count = self.parts.len();
        let mut end = None;
        for index in (self.next..count).chain(0..self.next) {
            let channel = &mut self.parts[index].line.channel;
            let received = channel.receive();
            let ended = channel.has_ended();
            self.watch(index);
            match received {
                Ok(Some(message)) => {
                    self.check(index, &message)?;
                    // The others have their turn, so that none falls behind.
                    self.next = (index + 1) % count;
                    self.set_ending(None)?;
                    return Ok(Some(message));
                }
                Ok(None) => {}
                Err(error) if ended => end = Some(error),
                Err(error) => return Err(error),
            }
        }
        let Some(error) = end else { return Ok(None) };
        // Death of any ends the connection, once the others have had the time to say theirs.
        let all = self.parts.iter().all(|part| part.line.channel.has_ended());
        match self.ending {
            _ if all => Err(error),
            Some(since) if since.elapsed() >= END_TIME => Err(error),
            Some(_) => Ok(None),
            None => self.set_ending(Some(Instant::now())).map(|()| None),
        }
    }

    fn set_ending(&mut self, since: Option<Instant>) -> Result<()> {
        if self.ending.is_none() && since.is_none() {
            return Ok(());
        }
        self.ending = since;
        let never = Timespec::default();
        let time = since.map_or(Duration::ZERO, |_| END_TIME);
        let timer = Itimerspec {
            it_interval: never,
            it_value: Timespec::try_from(time).unwrap_or(never),
        };
        timerfd_settime(&self.end_timer, TimerfdTimerFlags::empty(), &timer)
            .map(drop)
            .map_err(|errno| Error::os("cannot wait for the end of a connection", errno))
    }
}

impl Connection for JoinedConnection {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn queue(&mut self, message: Outgoing) -> Result<()> {
        self.ensure_open()?;
        let index = match &message {
            Outgoing::Tagged { tag, .. } | Outgoing::GpuBody { tag, .. } => self.part_of_tag(*tag),
            Outgoing::Metadata { .. } | Outgoing::Control { .. } => 0,
        };
        self.parts[index].line.channel.queue(message)
    }

    fn flush(&mut self) -> Result<bool> {
        self.ensure_open()?;
        let mut all = true;
        for index in 0..self.parts.len() {
            let channel = &mut self.parts[index].line.channel;
            // What the others have to say is read first.
            if !channel.has_ended() {
                let flushed = channel.flush();
                self.watch(index);
                match flushed {
                    Ok(flushed) => all &= flushed,
                    Err(error) => {
                        // What has come over any of them is read first.
                        let lines = self.parts.iter_mut().map(|part| &mut part.line);
                        lines.for_each(|line| line.channel.look_again());
                        return Err(error);
                    }
                }
            }
        }
        Ok(all)
    }

    fn queued(&self) -> Queued {
        let parts = self.parts.iter().map(|part| part.line.channel.queued());
        parts.fold(Queued::default(), |sum, part| Queued {
            bytes: sum.bytes + part.bytes,
            held: sum.held + part.held,
        })
    }

    fn finish(&mut self) -> bool {
        // Nothing is ended before all is there: the peer takes the end of one socket for the end of
        // them all.
        if self.queued().bytes > 0 || !self.parts.iter().all(|part| part.line.has_arrived()) {
            return false;
        }
        let finished = self.parts.iter_mut().map(|part| part.line.finish());
        finished.fold(true, |all, finished| all & finished)
    }

    fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        let index = self.part_of(seq);
        self.parts[index]
            .line
            .channel
            .reader()
            .post(seq, packed, list);
        self.watch(index);
    }

    fn forget_bodies(&mut self) {
        for index in 0..self.parts.len() {
            self.parts[index].line.channel.forget_bodies();
            self.watch(index);
        }
    }

    fn receive(&mut self) -> Result<Option<Incoming>> {
        self.ensure_open()?;
        self.receive_next().inspect_err(|error| {
            self.over = Some(error.clone());
        })
    }

    /// A body that waits on another socket than the first does not hold up its header.
    fn is_waiting(&self) -> bool {
        self.parts
            .first()
            .is_some_and(|part| part.line.channel.is_waiting())
    }

    fn probe(&mut self) -> Result<Option<Duration>> {
        let mut next = None;
        for part in &self.parts {
            next = part.line.probe()?;
        }
        Ok(next)
    }

    fn close(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        self.over
            .get_or_insert_with(|| Error::disconnected("the connection was closed by this side"));
        for part in &mut self.parts {
            part.line.channel.close();
        }
        lent
    }
}

impl Drop for JoinedConnection {
    fn drop(&mut self) {
        self.close(None);
    }
}
