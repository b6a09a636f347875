//! How the sockets of one connection find each other at a listener.
//!
//! The first message on each socket says which group it belongs to. A socket waits here until the
//! others of its group have come; the waiting sockets are bounded in number and in time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::transport::features::{Join, MAX_SOCKETS};
use crate::transport::tcp::watched::WatchedSocket;
use crate::transport::wait::Timer;

/// Most sockets that wait at one listener for others of their groups; also the most that wait for
/// the end of their handshakes. It is a part of the files that the process may open, and at least
/// the size of the largest group.
pub fn most_waiting() -> usize {
    const LEAST: usize = MAX_SOCKETS as usize;
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(MOST_WAITING, |files| {
        (files / 16).clamp(LEAST, MOST_WAITING)
    })
}

/// See [`most_waiting`].
const MOST_WAITING: usize = 256;

/// The groups of one listener.
pub struct Groups {
    state: Mutex<GroupQueue>,
    /// How long a group may wait for its last socket.
    time: Duration,
    /// Readable when a group is complete, or has waited too long.
    pub timer: Timer,
}

struct GroupQueue {
    /// Most sockets that wait for others of their groups.
    most: usize,
    /// Groups that wait for sockets, oldest first.
    waiting: VecDeque<SocketGroup>,
    /// The sockets of each complete group, in the order of their numbers.
    whole: VecDeque<Vec<WatchedSocket>>,
    /// Limits the log lines about closed groups, of which a peer can cause any number.
    said: Lines,
}

struct SocketGroup {
    id: u128,
    from: IpAddr,
    since: Instant,
    /// The sockets by their numbers.
    places: Vec<Option<WatchedSocket>>,
}

impl SocketGroup {
    fn sockets(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

impl Groups {
    /// No groups yet. Each may wait `time` for its last socket.
    pub fn new(time: Duration) -> Result<Self> {
        let timer = Timer::new().map_err(|errno| Error::os("cannot set a listener up", errno))?;
        Ok(Self {
            state: Mutex::new(GroupQueue {
                most: most_waiting(),
                waiting: VecDeque::new(),
                whole: VecDeque::new(),
                said: Lines::default(),
            }),
            time,
            timer,
        })
    }

    /// Takes a socket that came from `from` into its group.
    /// Errors: `Protocol` if the group has such a socket, is of another size, or of another
    /// machine's or certificate's: this socket is closed then, and the group stays as it was.
    pub fn add(&self, join: Join, from: IpAddr, socket: WatchedSocket) -> Result<()> {
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
        let other = group.places.iter().flatten().next();
        let same = other.is_none_or(|it| it.origin.certificate == socket.origin.certificate);
        let fits = same && group.from == from && group.places.len() == usize::from(join.count);
        let place = group.places.get_mut(usize::from(join.index));
        let Some(place) = place.filter(|place| fits && place.is_none()) else {
            return Err(Error::protocol(
                "the peer sent a JOIN that does not fit the others of its group (docs/wire.md)",
            ));
        };
        *place = Some(socket);
        if group.sockets() == group.places.len()
            && let Some(group) = state.waiting.remove(at)
        {
            let sockets = group.places.into_iter().flatten().collect();
            state.whole.push_back(sockets);
        }
        state.make_room();
        self.set_timer(&state);
        Ok(())
    }

    /// The sockets of the next connection, once all have come. Closes groups that have waited too
    /// long.
    pub fn next(&self) -> Option<Vec<WatchedSocket>> {
        let mut state = self.state.lock();
        let next = state.whole.pop_front();
        while let Some(group) = state.waiting.front()
            && group.since.elapsed() >= self.time
        {
            state.close_oldest("the others of their connection have not come");
        }
        self.set_timer(&state);
        next
    }

    /// Sets the timer: to go off now if a group is complete, else when the oldest one has waited
    /// too long.
    fn set_timer(&self, state: &GroupQueue) {
        let oldest = state.waiting.front();
        let left = oldest.map(|group| self.time.saturating_sub(group.since.elapsed()));
        let left = match state.whole.is_empty() {
            true => left,
            false => Some(Duration::ZERO),
        };
        if let Err(errno) = self.timer.set(left) {
            tracing::error!("a listener cannot watch for the groups of sockets: {errno}");
        }
    }
}

impl GroupQueue {
    /// Begins a new group; returns its index.
    fn begin(&mut self, join: Join, from: IpAddr) -> usize {
        self.waiting.push_back(SocketGroup {
            id: join.group,
            from,
            since: Instant::now(),
            places: (0..join.count).map(|_| None).collect(),
        });
        self.waiting.len() - 1
    }

    /// Closes the oldest groups while too many sockets wait: an honest group is soon complete.
    fn make_room(&mut self) {
        while self.waiting.iter().map(SocketGroup::sockets).sum::<usize>() > self.most {
            self.close_oldest("too many wait for others of their connections");
        }
    }

    fn close_oldest(&mut self, why: &str) {
        if let Some(group) = self.waiting.pop_front() {
            let (count, all, from) = (group.sockets(), group.places.len(), group.from);
            self.said.say(|more| {
                tracing::warn!("{count} of {all} sockets from {from} are closed: {why}{more}");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{MOST_LINES, testing};
    use crate::transport::patience::Patience;
    use crate::transport::tcp::watched::Connected;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::Arc;

    const GROUP_TIME: Duration = Duration::from_secs(10);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn join(group: u128, index: u16, count: u16) -> Join {
        Join {
            group,
            index,
            count,
        }
    }

    /// A socket, and the peer that it is connected to.
    fn socket(listener: &TcpListener) -> (WatchedSocket, TcpStream) {
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        (
            WatchedSocket::new(
                Connected::plainly(Arc::new(socket.into()), from),
                0,
                Patience::DEFAULT,
            ),
            peer,
        )
    }

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    /// A group is whole when each of its sockets has come, in whatever order.
    #[test]
    fn a_group_comes_together_in_any_order() {
        let (groups, listener) = (Groups::new(GROUP_TIME).unwrap(), listener());
        let mut peers = Vec::new();
        for index in [2, 0, 1] {
            assert!(groups.next().is_none());
            let (socket, peer) = socket(&listener);
            groups.add(join(5, index, 3), HERE, socket).unwrap();
            peers.push(peer);
        }
        assert!(groups.next().is_some());
        assert!(groups.next().is_none());
    }

    /// A peer that knows a group's number, or draws the same one, cannot change the group.
    #[test]
    fn strangers_do_not_fit_into_a_group() {
        let (groups, listener) = (Groups::new(GROUP_TIME).unwrap(), listener());
        let (first, _first_peer) = socket(&listener);
        groups.add(join(5, 0, 2), HERE, first).unwrap();
        let elsewhere = "10.1.2.3".parse().unwrap();
        for (message, from) in [
            (join(5, 0, 2), HERE),
            (join(5, 1, 3), HERE),
            (join(5, 1, 2), elsewhere),
        ] {
            let (stranger, _peer) = socket(&listener);
            assert!(groups.add(message, from, stranger).is_err(), "{message:?}");
        }
        let (last, _last_peer) = socket(&listener);
        groups.add(join(5, 1, 2), HERE, last).unwrap();
        assert!(groups.next().is_some());
    }

    /// Sockets that wait are bounded in number: the oldest go.
    #[test]
    fn only_so_many_sockets_wait() {
        let (groups, listener) = (Groups::new(GROUP_TIME).unwrap(), listener());
        let mut peers = Vec::new();
        let most = most_waiting();
        for group in 0..=most as u128 {
            let (socket, peer) = socket(&listener);
            groups.add(join(group, 0, 2), HERE, socket).unwrap();
            peers.push(peer);
        }
        let state = groups.state.lock();
        assert_eq!(state.waiting.len(), most);
        assert_eq!(state.waiting[0].id, 1);
    }

    /// A peer that abandons sockets, in either way, fills no log.
    #[test]
    fn closed_groups_are_logged_in_a_bounded_number_of_lines() {
        let (groups, listener) = (Groups::new(GROUP_TIME).unwrap(), listener());
        let logged = testing::count(|| {
            for group in 0..2 * most_waiting() as u128 {
                let (socket, _peer) = socket(&listener);
                groups.add(join(group, 0, 2), HERE, socket).unwrap();
            }
            for group in &mut groups.state.lock().waiting {
                group.since -= GROUP_TIME;
            }
            assert!(groups.next().is_none());
        });
        assert!(groups.state.lock().waiting.is_empty());
        assert_eq!(logged, MOST_LINES as usize);
    }

    /// The same in time: a group that does not become complete is closed.
    #[test]
    fn a_group_that_is_late_is_closed() {
        let (groups, listener) = (Groups::new(GROUP_TIME).unwrap(), listener());
        let (socket, peer) = socket(&listener);
        groups.add(join(5, 0, 2), HERE, socket).unwrap();
        let armed = rustix::time::timerfd_gettime(&groups.timer)
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
