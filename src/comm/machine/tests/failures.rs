//! Promises of [`Vigil`].

use std::time::Duration;

use super::watchers::{MOST_DELAY, STALL, Watchers, neighbours};
use super::{Rank, index};
use crate::comm::machine::{Message, Vigil};
use crate::error::{Error, Status};
use crate::proto::Timestamp;

const SIZES: [Rank; 7] = [2, 3, 5, 6, 13, 21, 50];

/// Ranks of each size, after a random time, with a rank that something happens to.
fn each(seeds: u64, mut test: impl FnMut(&mut Watchers, Rank)) {
    for ranks in SIZES {
        for seed in 0..seeds {
            let mut watchers = Watchers::new(ranks, seed * 1000 + u64::from(ranks));
            let millis = watchers.dice.roll(500);
            watchers.run(Duration::from_millis(u64::try_from(millis).unwrap()));
            let rank = watchers.dice.rank(ranks);
            test(&mut watchers, rank);
        }
    }
}

/// All running ranks name `rank`, and learned of it `within` this time.
fn assert_named(
    watchers: &Watchers,
    rank: Rank,
    status: Status,
    from: Timestamp,
    within: Duration,
) {
    for other in (0..watchers.ranks()).filter(|other| watchers.is_running(*other)) {
        let failure = watchers.vigils[index(other)].failure().unwrap();
        assert_eq!(failure.rank, Some(rank), "at rank {other}: {failure:?}");
        assert_eq!(failure.status, status, "at rank {other}: {failure:?}");
        assert!(
            failure.text.contains(&format!("rank {rank} ")),
            "{failure:?}"
        );
        let learned = watchers.learned[index(other)].unwrap();
        assert!(learned.saturating_since(from) <= within, "rank {other}");
    }
}

/// Promise of [`Vigil`]: all ranks name a rank that dies, within the time that news take over the
/// tree, even if its last messages are lost, data connections break first, and other ranks close
/// theirs in consequence.
#[test]
fn all_ranks_name_a_rank_that_dies() {
    each(30, |watchers, rank| {
        let from = watchers.network.now;
        watchers.kill(rank);
        watchers.run(STALL * 3);
        let within = watchers.flood();
        assert_named(watchers, rank, Status::Disconnected, from, within);
    });
}

/// Promise of [`Vigil`]: all ranks name a rank that stops, within the stall time and the time that
/// news take over the tree. The rank itself learns of it if it goes on.
#[test]
fn all_ranks_name_a_rank_that_stops() {
    each(15, |watchers, rank| {
        let from = watchers.network.now;
        watchers.stop(rank);
        watchers.run(STALL * 3);
        let within = STALL + MOST_DELAY + watchers.flood();
        assert_named(watchers, rank, Status::Timeout, from, within);
        watchers.resume(rank);
        watchers.run(STALL * 3);
        assert!(watchers.named().iter().all(|it| *it == Some(Some(rank))));
    });
}

/// Promise of [`Vigil::handle_suspect`]: the verdict names the rank after the settling time, at all
/// ranks, that rank included.
#[test]
fn a_suspicion_becomes_a_failure_at_all_ranks() {
    each(15, |watchers, rank| {
        let from = watchers.network.now;
        let ranks = watchers.ranks();
        let other = (rank + 1 + watchers.dice.rank(ranks - 1)) % ranks;
        watchers.suspect(other, rank);
        watchers.run(STALL * 3);
        let within = STALL.min(Duration::from_secs(1)) + watchers.flood();
        assert_named(watchers, rank, Status::Disconnected, from, within);
    });
}

/// Promise of [`Vigil::abort`]: all ranks learn the status and the text of the rank that aborts. A
/// status of its own process alone is another one at its peers.
#[test]
fn an_abort_reaches_all_ranks() {
    each(10, |watchers, rank| {
        let from = watchers.network.now;
        watchers.at(rank, |vigil| {
            vigil.abort(Error::invalid_data("column k is missing"))
        });
        watchers.run(STALL);
        let within = watchers.flood();
        assert_named(watchers, rank, Status::InvalidData, from, within);
        let text = format!("rank {rank} aborted: column k is missing");
        for vigil in &watchers.vigils {
            assert_eq!(vigil.failure().unwrap().to_error().text(), text);
        }
    });
    let mut vigil = Vigil::new(0, vec![1], STALL, Timestamp::default());
    vigil.abort(Error::new(Status::Panic, "a panic"));
    assert_eq!(vigil.failure().unwrap().status, Status::Disconnected);
}

/// Promise of [`Vigil`]: a failure is told once to each neighbour, and the first failure stays.
#[test]
fn a_failure_is_told_once() {
    each(10, |watchers, rank| {
        watchers.kill(rank);
        watchers.run(STALL);
        let other = watchers.dice.rank(watchers.ranks());
        watchers.at(other, |vigil| vigil.abort(Error::cancelled("too late")));
        watchers.run(STALL);
        for me in (0..watchers.ranks()).filter(|me| *me != rank) {
            assert_eq!(
                watchers.vigils[index(me)].failure().unwrap().rank,
                Some(rank)
            );
            assert!(watchers.told[index(me)] <= neighbours(watchers.ranks(), me).len());
        }
    });
}

/// Promise of [`Vigil`]: ranks that run do not fail, however long they have nothing to say. Neither
/// do they if all of them are stopped together, as by a debugger or a laptop's lid.
#[test]
fn ranks_that_run_do_not_fail() {
    each(2, |watchers, _| {
        watchers.run(STALL * 4);
        assert!(watchers.named().iter().all(Option::is_none));
        (0..watchers.ranks()).for_each(|rank| watchers.stop(rank));
        watchers.run(STALL * 4);
        (0..watchers.ranks()).for_each(|rank| watchers.resume(rank));
        watchers.run(STALL * 4);
        assert!(watchers.named().iter().all(Option::is_none));
    });
}

/// Promise of [`Vigil`]: a rank that goes on after a stop blames no other rank for what it has not
/// read.
#[test]
fn a_short_stop_is_no_failure() {
    each(10, |watchers, rank| {
        watchers.stop(rank);
        watchers.run(STALL * 5 / 8);
        watchers.resume(rank);
        watchers.run(STALL * 5);
        assert!(watchers.named().iter().all(Option::is_none));
    });
}

/// Promise of [`Vigil::handle_suspect`]: a rank that goes on after a stop first reads the news that
/// have come, and only then gives the verdict on an older suspicion.
#[test]
fn a_stop_does_not_shorten_a_suspicion() {
    each(10, |watchers, rank| {
        let ranks = watchers.ranks();
        let other = (rank + 1 + watchers.dice.rank(ranks - 1)) % ranks;
        let suspect = (other + 1 + watchers.dice.rank(ranks - 1)) % ranks;
        watchers.suspect(other, suspect);
        watchers.stop(other);
        watchers.kill(rank);
        watchers.run(STALL * 2);
        watchers.resume(other);
        watchers.run(STALL);
        let failure = watchers.vigils[index(other)].failure().unwrap();
        assert_eq!(failure.rank, Some(rank), "{failure:?}");
    });
}

/// Promise of [`Vigil::leave`]: ranks that leave one after another do not fail, though their
/// connections end. A later suspicion says that the rank has left.
#[test]
fn ranks_that_leave_do_not_fail() {
    each(10, |watchers, rank| {
        let mut order: Vec<Rank> = (0..watchers.ranks()).filter(|it| *it != rank).collect();
        watchers.dice.shuffle(&mut order);
        for leaver in order {
            watchers.at(leaver, Vigil::leave);
            for to in neighbours(watchers.ranks(), leaver) {
                let closed = super::watchers::Input::Closed;
                watchers
                    .network
                    .send(&mut watchers.dice, leaver, to, closed);
            }
            let millis = u64::try_from(watchers.dice.roll(100)).unwrap();
            watchers.run(Duration::from_millis(millis));
        }
        watchers.run(STALL * 10);
        assert!(watchers.named().iter().all(Option::is_none));
        assert_eq!(watchers.vigils[index(rank)].poll_timeout(), None);
        let left = neighbours(watchers.ranks(), rank)[0];
        watchers.suspect(rank, left);
        watchers.run(STALL * 2);
        let failure = watchers.vigils[index(rank)].failure().unwrap();
        assert!(failure.text.contains("has left the communicator"));
    });
}

/// Promise of [`Vigil`]: messages of ranks that are no neighbours, and of this rank, change
/// nothing.
#[test]
fn strangers_are_ignored() {
    let now = Timestamp::from_nanos(5);
    let mut vigil = Vigil::new(1, vec![0, 1, 0], STALL, now);
    for rank in [1, 7] {
        vigil.handle_message(rank, Message::Left, now);
        vigil.handle_closed(rank, "end", now);
    }
    assert_eq!(vigil.failure(), None);
    assert_eq!(vigil.poll_message(), None);
}

/// Promise of [`Vigil::poll_message`]: a caller that does not take the messages gets no pile of
/// beats, and beats are due only at their time.
#[test]
fn beats_do_not_pile_up() {
    let mut now = Timestamp::from_nanos(5);
    let mut vigil = Vigil::new(1, vec![0, 5, 6], STALL, now);
    vigil.handle_timeout(now);
    assert_eq!(vigil.poll_message(), None);
    for _ in 0..100 {
        now = vigil.poll_timeout().unwrap();
        for rank in [0, 5, 6] {
            vigil.handle_message(rank, Message::Beat, now);
        }
        vigil.handle_timeout(now);
    }
    let queued: Vec<_> = std::iter::from_fn(|| vigil.poll_message()).collect();
    assert_eq!(queued, [0, 5, 6].map(|rank| (rank, Message::Beat)));
}

/// Promise of [`Vigil::new`]: stall times of any length end neither in a panic nor in a busy loop.
#[test]
fn any_stall_time_is_safe() {
    for stall in [Duration::ZERO, Duration::from_nanos(3), Duration::MAX] {
        let now = Timestamp::from_nanos(u64::MAX / 2);
        let mut vigil = Vigil::new(0, vec![1], stall, now);
        vigil.handle_suspect(1, Error::disconnected("broke"), now);
        vigil.handle_timeout(now);
        assert!(vigil.poll_timeout().unwrap() > now);
        assert_eq!(vigil.failure(), None);
        vigil.handle_timeout(Timestamp::from_nanos(u64::MAX));
    }
}
