//! Promises of [`Meeting`] and [`ranges`].

use super::{Dice, Rank, index};
use crate::comm::machine::{Card, Meeting, Verdict, ranges};
use crate::error::Status;
use crate::proto::Timestamp;

const DUE: Timestamp = Timestamp::from_nanos(1000);
const EARLY: Timestamp = Timestamp::from_nanos(999);

pub(super) fn card(rank: Option<Rank>, size: u32, host: &str) -> Card {
    Card {
        rank,
        size,
        host: host.to_owned(),
        uris: vec![format!("tcp://{host}:1")],
        secret: "secret".to_owned(),
    }
}

fn meeting(size: u32, ranks: &[Option<Rank>]) -> Meeting<usize> {
    let mut meeting = Meeting::new(size, DUE);
    for (guest, rank) in ranks.iter().enumerate() {
        meeting.join(card(*rank, size, "h"), guest).unwrap();
    }
    meeting
}

/// Promise of [`Meeting`]: once all have come, each guest has a rank of its own: the one that it
/// asked for, or the lowest free one, in the order of coming.
#[test]
fn each_guest_gets_a_rank() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let size = 1 + dice.rank(30);
        let mut wishes: Vec<_> = (0..size)
            .map(|rank| (dice.roll(2) == 0).then_some(rank))
            .collect();
        dice.shuffle(&mut wishes);
        let mut meeting = Meeting::new(size, DUE);
        for (guest, rank) in wishes.iter().enumerate() {
            assert!(meeting.poll(EARLY).is_none());
            meeting.join(card(*rank, size, "h"), guest).unwrap();
        }
        let Some(Verdict::Complete(guests)) = meeting.poll(DUE) else {
            panic!("all have come");
        };
        let mut last_unnamed = None;
        for (rank, (card, guest)) in (0..).zip(&guests) {
            assert_eq!(card.rank, Some(rank));
            match wishes[*guest] {
                Some(wish) => assert_eq!(wish, rank),
                None => assert!(last_unnamed.replace(guest) < Some(guest)),
            }
        }
        assert_eq!(guests.len(), index(size));
        assert!(meeting.poll(DUE).is_none(), "the verdict comes once");
        assert_eq!(meeting.poll_timeout(), None);
    }
}

/// Promise of [`Meeting::join`]: a refusal says why, gives the guest back and changes nothing.
#[test]
fn refusals_give_the_guest_back() {
    let mut meeting = meeting(3, &[Some(1), None]);
    let mut refuse = |card, status, word: &str| {
        let (error, guest) = meeting.join(card, 77).unwrap_err();
        assert_eq!((error.status(), guest), (status, 77));
        assert!(error.text().contains(word), "{error}");
    };
    refuse(card(None, 4, "h"), Status::InvalidArgument, "expects 4");
    refuse(card(Some(3), 3, "h"), Status::InvalidArgument, "rank 3");
    refuse(
        card(Some(1), 3, "h"),
        Status::AlreadyExists,
        "rank 1 is taken",
    );
    meeting.join(card(None, 3, "h"), 2).unwrap();
    let (error, _) = meeting.join(card(Some(2), 3, "h"), 77).unwrap_err();
    assert_eq!(error.status(), Status::Busy);
    assert!(matches!(meeting.poll(EARLY), Some(Verdict::Complete(_))));
    let (error, _) = meeting.join(card(Some(2), 3, "h"), 77).unwrap_err();
    assert_eq!(error.status(), Status::Stopped);
}

/// Promise of [`Meeting::poll`]: a late meeting names the missing ranks, and gives all guests back.
#[test]
fn missing_ranks_are_named() {
    let late = |size, ranks: &[Option<Rank>]| {
        let mut meeting = meeting(size, ranks);
        assert!(meeting.poll(EARLY).is_none());
        assert_eq!(meeting.poll_timeout(), Some(DUE));
        let Some(Verdict::Late { error, guests }) = meeting.poll(DUE) else {
            panic!("some are missing");
        };
        assert_eq!(error.status(), Status::Timeout);
        assert_eq!(guests, (0..ranks.len()).collect::<Vec<_>>());
        assert!(meeting.poll(DUE).is_none());
        error.text().to_owned()
    };
    let text = late(10, &[Some(1), Some(2), Some(8)]);
    assert!(
        text.contains("3 of 10 ranks") && text.contains(": 0, 3-7 and 9."),
        "{text}"
    );
    assert!(late(4, &[None, Some(1)]).contains(": 2-3."));
    assert!(late(3, &[]).contains(": 0-2."));
}

/// Promise of [`Meeting::leave`]: another guest can take the rank of a guest that has gone.
#[test]
fn a_rank_that_left_is_free_again() {
    let mut meeting = meeting(2, &[Some(1), Some(0)]);
    meeting.leave(|guest| *guest == 0);
    assert!(meeting.poll(EARLY).is_none());
    meeting.join(card(Some(1), 2, "h"), 9).unwrap();
    let Some(Verdict::Complete(guests)) = meeting.poll(EARLY) else {
        panic!("all have come");
    };
    assert_eq!(
        guests.into_iter().map(|it| it.1).collect::<Vec<_>>(),
        [1, 9]
    );
}

/// Promise of [`ranges`]: ranks in any order, each once, in few words.
#[test]
fn ranges_are_short() {
    let words = |ranks: &[Rank]| ranges(ranks.iter().copied());
    assert_eq!(words(&[9, 0, 3, 4, 5, 6, 7, 3]), "0, 3-7 and 9");
    assert_eq!(words(&[4, 5]), "4-5");
    assert_eq!(words(&[0, 2]), "0 and 2");
    assert_eq!(words(&[Rank::MAX, Rank::MAX - 1]), "4294967294-4294967295");
    assert_eq!(words(&[]), "none");
    let many = ranges((0..1000).map(|rank| rank * 2));
    assert!(
        many.ends_with("62 and 968 more") && many.len() < 200,
        "{many}"
    );
}
