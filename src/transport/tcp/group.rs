//! How the sockets of one connection find each other at a listener.
//!
//! Each says in its first message which group it is of. A socket waits here until the others have
//! come; what a peer can make wait is bounded in number and in time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::transport::features::Join;
use crate::transport::tcp::connection::WatchedSocket;
use crate::transport::tcp::joined::JoinedConnection;

/// Most sockets that wait at one listener for others of their groups.
const MAX_WAITING: usize = 256;
/// How long a group may take to come together.
const GROUP_TIME: Duration = Duration::from_secs(10);

/// The groups of one listener.
pub struct Groups {
    state: Mutex<GroupQueue>,
    /// Readable when a group is whole.
    whole: OwnedFd,
    /// Readable when one has waited for too long.
    late: OwnedFd,
}

#[derive(Default)]
struct GroupQueue {
    /// Oldest first.
    waiting: VecDeque<Group>,
    whole: VecDeque<WholeGroup>,
    /// About groups that were closed, which a peer can have any number of.
    said: Lines,
}

/// What has become of a group: a connection or, where the system has not enough for one, the socket
/// that brings its request.
pub type WholeGroup = Result<JoinedConnection, (Error, Option<WatchedSocket>)>;

struct Group {
    id: u128,
    from: IpAddr,
    since: Instant,
    lines: Vec<Option<WatchedSocket>>,
}

impl Group {
    fn sockets(&self) -> usize {
        self.lines.iter().flatten().count()
    }
}

impl Groups {
    /// No groups yet.
    ///
    /// # Errors
    ///
    /// Of the system: no descriptors are left.
    pub fn new() -> Result<Self> {
        let failed = |errno| Error::os("cannot set a listener up", errno);
        let whole = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let late = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        Ok(Self {
            state: Mutex::default(),
            whole,
            late,
        })
    }

    /// What becomes readable when [`next`](Self::next) has something to do.
    pub fn fds(&self) -> [&OwnedFd; 2] {
        [&self.whole, &self.late]
    }

    /// Takes a socket that came from `from` into its group.
    ///
    /// # Errors
    ///
    /// `Protocol` when the group has such a socket, is of another size, or of another machine's:
    /// this socket is closed then, and the group stays as it was.
    pub fn add(&self, join: Join, from: IpAddr, line: WatchedSocket) -> Result<()> {
        let mut state = self.state.lock();
        let known = state
            .waiting
            .iter()
            .position(|group| group.id == join.group);
        let at = match known {
            Some(at) => at,
            None => state.begin(join, from),
        };
        let group = &mut state.waiting[at];
        let fits = group.from == from && group.lines.len() == usize::from(join.count);
        let place = group.lines.get_mut(usize::from(join.index));
        let Some(place) = place.filter(|place| fits && place.is_none()) else {
            return Err(Error::protocol(
                "the peer sent a JOIN that does not fit the others of its group (docs/wire.md)",
            ));
        };
        *place = Some(line);
        if group.sockets() == group.lines.len()
            && let Some(group) = state.waiting.remove(at)
        {
            let lines = group.lines.into_iter().flatten().collect();
            let whole = JoinedConnection::new(lines);
            state
                .whole
                .push_back(whole.map_err(|(error, lines)| (error, first(lines))));
            // A full counter is a wake-up already under way.
            let _ = rustix::io::write(&self.whole, &1_u64.to_ne_bytes());
        }
        state.make_room();
        self.set_timer(&state);
        Ok(())
    }

    /// The next connection whose sockets have all come. Closes those that have waited for too long.
    pub fn next(&self) -> Option<WholeGroup> {
        let mut state = self.state.lock();
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.whole, &mut counter);
        let _ = rustix::io::read(&self.late, &mut counter);
        let next = state.whole.pop_front();
        if !state.whole.is_empty() {
            let _ = rustix::io::write(&self.whole, &1_u64.to_ne_bytes());
        }
        while let Some(group) = state.waiting.front()
            && group.since.elapsed() >= GROUP_TIME
        {
            state.said.say(|more| {
                tracing::warn!(
                    "{} of {} sockets from {} are closed: the others of their connection have not \
                     come{more}",
                    group.sockets(),
                    group.lines.len(),
                    group.from
                );
            });
            state.waiting.pop_front();
        }
        self.set_timer(&state);
        next
    }

    /// For when the oldest group has waited for too long.
    fn set_timer(&self, state: &GroupQueue) {
        let left = state.waiting.front().map_or(Duration::ZERO, |group| {
            // Zero would stop the timer.
            (GROUP_TIME.saturating_sub(group.since.elapsed())).max(Duration::from_millis(1))
        });
        let never = Timespec::default();
        let timer = Itimerspec {
            it_interval: never,
            it_value: Timespec::try_from(left).unwrap_or(never),
        };
        if let Err(errno) = timerfd_settime(&self.late, TimerfdTimerFlags::empty(), &timer) {
            tracing::error!("a listener cannot watch for sockets that come late: {errno}");
        }
    }
}

/// The socket that brings everything but bodies.
fn first<T>(lines: Vec<T>) -> Option<T> {
    lines.into_iter().next()
}

impl GroupQueue {
    /// A new group; returns where it is.
    fn begin(&mut self, join: Join, from: IpAddr) -> usize {
        self.waiting.push_back(Group {
            id: join.group,
            from,
            since: Instant::now(),
            lines: (0..join.count).map(|_| None).collect(),
        });
        self.waiting.len() - 1
    }

    /// Where too many sockets wait, the oldest groups go: one that is honest is whole soon.
    fn make_room(&mut self) {
        while self.waiting.iter().map(Group::sockets).sum::<usize>() > MAX_WAITING {
            if let Some(group) = self.waiting.pop_front() {
                self.said.say(|more| {
                    tracing::warn!(
                        "{} sockets from {} are closed: too many wait for others of their \
                         connections{more}",
                        group.sockets(),
                        group.from
                    );
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{MOST_LINES, testing};
    use crate::transport::patience::Patience;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn join(group: u128, index: u16, count: u16) -> Join {
        Join {
            group,
            index,
            count,
        }
    }

    /// A socket, and the peer that it is connected to.
    fn line(listener: &TcpListener) -> (WatchedSocket, TcpStream) {
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        (
            WatchedSocket::new(socket.into(), from, 0, Patience::DEFAULT),
            peer,
        )
    }

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    /// A group is whole when each of its sockets has come, in whatever order.
    #[test]
    fn a_group_comes_together_in_any_order() {
        let (groups, listener) = (Groups::new().unwrap(), listener());
        let mut peers = Vec::new();
        for index in [2, 0, 1] {
            assert!(groups.next().is_none());
            let (line, peer) = line(&listener);
            groups.add(join(5, index, 3), HERE, line).unwrap();
            peers.push(peer);
        }
        assert!(groups.next().is_some());
        assert!(groups.next().is_none());
    }

    /// A peer that knows a group's number, or draws the same, changes nothing in it.
    #[test]
    fn strangers_do_not_fit_into_a_group() {
        let (groups, listener) = (Groups::new().unwrap(), listener());
        let (first, _first_peer) = line(&listener);
        groups.add(join(5, 0, 2), HERE, first).unwrap();
        let elsewhere = "10.1.2.3".parse().unwrap();
        for (message, from) in [
            (join(5, 0, 2), HERE),
            (join(5, 1, 3), HERE),
            (join(5, 1, 2), elsewhere),
        ] {
            let (stranger, _peer) = line(&listener);
            assert!(groups.add(message, from, stranger).is_err(), "{message:?}");
        }
        let (last, _last_peer) = line(&listener);
        groups.add(join(5, 1, 2), HERE, last).unwrap();
        assert!(groups.next().is_some());
    }

    /// Sockets that wait are bounded in number: the oldest go.
    #[test]
    fn only_so_many_sockets_wait() {
        let (groups, listener) = (Groups::new().unwrap(), listener());
        let mut peers = Vec::new();
        for group in 0..=MAX_WAITING as u128 {
            let (line, peer) = line(&listener);
            groups.add(join(group, 0, 2), HERE, line).unwrap();
            peers.push(peer);
        }
        let state = groups.state.lock();
        assert_eq!(state.waiting.len(), MAX_WAITING);
        assert_eq!(state.waiting[0].id, 1);
    }

    /// A peer that abandons sockets, in either way, fills no log.
    #[test]
    fn closed_groups_are_logged_in_a_bounded_number_of_lines() {
        let (groups, listener) = (Groups::new().unwrap(), listener());
        let logged = testing::count(|| {
            for group in 0..2 * MAX_WAITING as u128 {
                let (line, _peer) = line(&listener);
                groups.add(join(group, 0, 2), HERE, line).unwrap();
            }
            for group in &mut groups.state.lock().waiting {
                group.since -= GROUP_TIME;
            }
            assert!(groups.next().is_none());
        });
        assert!(groups.state.lock().waiting.is_empty());
        assert_eq!(logged, MOST_LINES as usize);
    }

    /// And in time: a group that does not come together is closed.
    #[test]
    fn a_group_that_is_late_is_closed() {
        let (groups, listener) = (Groups::new().unwrap(), listener());
        let (line, peer) = line(&listener);
        groups.add(join(5, 0, 2), HERE, line).unwrap();
        let armed = rustix::time::timerfd_gettime(&groups.late)
            .unwrap()
            .it_value;
        assert!(armed.tv_sec > 0 || armed.tv_nsec > 0);
        assert!(groups.next().is_none());
        assert_eq!(groups.state.lock().waiting.len(), 1);
        groups.state.lock().waiting[0].since -= GROUP_TIME;
        assert!(groups.next().is_none());
        assert!(groups.state.lock().waiting.is_empty());
        let mut bytes = [0; 1];
        assert_eq!(std::io::Read::read(&mut &peer, &mut bytes).unwrap(), 0);
    }
}
