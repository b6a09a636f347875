//! Rule F3, against a model that is too simple to be wrong.

use proptest::prelude::*;

use super::*;

fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
    pairs
        .iter()
        .map(|(address, length)| Span {
            address: *address,
            length: *length,
        })
        .collect()
}

fn freed(ledger: &mut Ledger<char>, addresses: &[u64]) -> String {
    let mut freed = Vec::new();
    ledger.free(addresses, &mut freed).unwrap();
    freed.into_iter().collect()
}

/// Rule F3: each occurrence is freed once; a lend is complete when all its spans are back.
#[test]
fn a_lend_is_whole_when_all_is_back() {
    let mut ledger = Ledger::new();
    assert_eq!(
        ledger.lend(&spans(&[(1, 8), (0, 0), (2, 8), (1, 8)]), 'a'),
        None
    );
    assert_eq!(ledger.outstanding(), 3);
    assert_eq!(freed(&mut ledger, &[1]), "");
    assert_eq!(freed(&mut ledger, &[2]), "");
    assert_eq!(freed(&mut ledger, &[1]), "a");
    assert_eq!(ledger.outstanding(), 0);
}

/// Rule F3: a list of empty buffers lends nothing; address 0 is never freed.
#[test]
fn empty_spans_lend_nothing() {
    let mut ledger = Ledger::new();
    assert_eq!(ledger.lend(&spans(&[(0, 0), (0, 0)]), 'a'), Some('a'));
    assert_eq!(ledger.free(&[0], &mut Vec::new()).unwrap_err().rule(), "F3");
}

/// Rule F3: batches that share a buffer of one length return it in any order: the oldest lend comes
/// back first.
#[test]
fn equal_lengths_return_first_lent_first() {
    let mut ledger = Ledger::new();
    for hold in ['a', 'b', 'c'] {
        ledger.lend(&spans(&[(1, 8)]), hold);
    }
    assert_eq!(freed(&mut ledger, &[1]), "a");
    assert_eq!(freed(&mut ledger, &[1, 1]), "bc");
}

/// Rule F3: if lengths differ, a return does not say which occurrence it means. The address is held
/// until all occurrences are back, later lends included.
#[test]
fn different_lengths_are_held_until_all_are_back() {
    let mut ledger = Ledger::new();
    ledger.lend(&spans(&[(1, 8)]), 'a');
    ledger.lend(&spans(&[(1, 4), (2, 4)]), 'b');
    assert_eq!(freed(&mut ledger, &[1]), "");
    ledger.lend(&spans(&[(1, 8)]), 'c');
    assert_eq!(freed(&mut ledger, &[1]), "");
    assert_eq!(freed(&mut ledger, &[1]), "ac");
    assert_eq!(freed(&mut ledger, &[2]), "b");
    // Afterwards the address counts as fresh.
    ledger.lend(&spans(&[(1, 8)]), 'd');
    ledger.lend(&spans(&[(1, 8)]), 'e');
    assert_eq!(freed(&mut ledger, &[1]), "d");
}

/// Rule F3: a free of an address that is not lent, or not as often, frees nothing at all.
#[test]
fn a_wrong_free_frees_nothing() {
    let mut ledger = Ledger::new();
    ledger.lend(&spans(&[(1, 8), (2, 8)]), 'a');
    for wrong in [&[1, 2, 3][..], &[1, 2, 1], &[9]] {
        let mut freed = Vec::new();
        assert_eq!(ledger.free(wrong, &mut freed).unwrap_err().rule(), "F3");
        assert!(freed.is_empty());
        assert_eq!(ledger.outstanding(), 2);
    }
    assert_eq!(freed(&mut ledger, &[2, 1]), "a");
    assert!(ledger.free(&[1], &mut Vec::new()).is_err());
}

/// Rule F4: a disconnect ends every lend, oldest first.
#[test]
fn draining_ends_every_lend() {
    let mut ledger = Ledger::new();
    for (address, hold) in [(5, 'a'), (1, 'b'), (5, 'c')] {
        ledger.lend(&spans(&[(address, 8)]), hold);
    }
    assert_eq!(ledger.drain().into_iter().collect::<String>(), "abc");
    assert_eq!(ledger.outstanding(), 0);
    assert!(ledger.free(&[1], &mut Vec::new()).is_err());
}

proptest! {
    /// Rule F3: with returns in any order and grouping, every lend comes back exactly once, and
    /// never before each of its addresses has as many returns as occurrences. The ledger ends
    /// empty.
    #[test]
    fn everything_comes_back_once(
        lends in prop::collection::vec(
            prop::collection::vec((1_u64..6, 1_u64..3), 1..4), 1..20),
        order: prop::sample::Index,
        seed in any::<u64>(),
    ) {
        let mut ledger = Ledger::new();
        let mut owed: Vec<u64> = Vec::new();
        for (hold, lend) in lends.iter().enumerate() {
            prop_assert_eq!(ledger.lend(&spans(lend), hold), None);
            owed.extend(lend.iter().map(|(address, _)| *address));
        }
        prop_assert_eq!(ledger.outstanding(), owed.len());
        // A shuffle that shrinks well.
        let mut state = seed | 1;
        for at in (1..owed.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            owed.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        let cut = order.index(owed.len());
        let mut back = Vec::new();
        for group in [&owed[..cut], &owed[cut..]] {
            ledger.free(group, &mut back).unwrap();
        }
        back.sort_unstable();
        prop_assert_eq!(back, (0..lends.len()).collect::<Vec<_>>());
        prop_assert_eq!(ledger.outstanding(), 0);
        prop_assert!(ledger.drain().is_empty());
    }
}

/// A model of lends by number: a map. A return counts once all lends of its number are back.
#[derive(Default)]
struct ByNumber {
    lent: std::collections::BTreeMap<(u64, u32), (Vec<usize>, usize)>,
}

impl ByNumber {
    fn lend(&mut self, stream: u64, seq: u32, hold: usize) {
        self.lent.entry((stream, seq)).or_default().0.push(hold);
    }

    fn take_back(&mut self, stream: u64, seq: u32) -> Option<Vec<usize>> {
        let (holds, returned) = self.lent.get_mut(&(stream, seq))?;
        *returned += 1;
        if *returned < holds.len() {
            return Some(Vec::new());
        }
        self.lent.remove(&(stream, seq)).map(|(holds, _)| holds)
    }
}

/// Steps on lends by number.
#[derive(Debug, Clone)]
enum Step {
    /// This many messages lend nothing, then one message lends.
    Lend { skipped: u32 },
    /// Another stream begins, with this name and first number.
    Begin { stream: u64, seq: u32 },
    /// A number comes back: the oldest lent number, or any.
    Return {
        oldest: bool,
        which: prop::sample::Index,
    },
    /// A number comes back that may not be lent.
    Guess { stream: u64, seq: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seq = prop_oneof![0_u32..40, u32::MAX - 20..=u32::MAX];
    let step = prop_oneof![
        12 => prop_oneof![8 => Just(0_u32), 1 => 1_u32..40]
            .prop_map(|skipped| Step::Lend { skipped }),
        1 => (0_u64..3, seq.clone()).prop_map(|(stream, seq)| Step::Begin { stream, seq }),
        6 => (prop::bool::weighted(0.8), any::<prop::sample::Index>())
            .prop_map(|(oldest, which)| Step::Return { oldest, which }),
        1 => (0_u64..3, seq).prop_map(|(stream, seq)| Step::Guess { stream, seq }),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// Rule F3, returns by number: with skipped, wrapped, repeated and kept numbers, each lend
    /// comes back once, with all lends of its number. A number that is not lent is refused.
    #[test]
    fn numbers_come_back_as_they_were_lent(steps in steps()) {
        let mut ledger = Ledger::new();
        let mut model = ByNumber::default();
        let (mut stream, mut next) = (0, 0_u32);
        for (hold, step) in steps.into_iter().enumerate() {
            let (back, expected) = match step {
                Step::Lend { skipped } => {
                    let seq = next.wrapping_add(skipped);
                    next = seq.wrapping_add(1);
                    let unused = ledger.lend_numbered(stream, seq, &spans(&[(1, 8)]), hold);
                    prop_assert_eq!(unused, None);
                    model.lend(stream, seq, hold);
                    continue;
                }
                Step::Begin { stream: name, seq } => {
                    (stream, next) = (name, seq);
                    continue;
                }
                Step::Return { oldest, which } => {
                    let out: Vec<_> = model.lent.keys().copied().collect();
                    if out.is_empty() {
                        continue;
                    }
                    let (stream, seq) = if oldest { out[0] } else { *which.get(&out) };
                    let mut back = Vec::new();
                    ledger.free_numbers(stream, &[seq], &mut back).unwrap();
                    (Some(back), model.take_back(stream, seq))
                }
                Step::Guess { stream, seq } => {
                    let mut back = Vec::new();
                    let known = ledger.free_numbers(stream, &[seq], &mut back);
                    (known.is_ok().then_some(back), model.take_back(stream, seq))
                }
            };
            prop_assert_eq!(back, expected);
        }
        let mut left: Vec<_> = model.lent.into_values().flat_map(|(holds, _)| holds).collect();
        left.sort_unstable();
        let mut drained = ledger.drain();
        drained.sort_unstable();
        prop_assert_eq!(drained, left);
        prop_assert_eq!(ledger.outstanding(), 0);
    }
}

/// If a consumer keeps one batch of a long stream, the server keeps that lend only, not a place for
/// each later message.
#[test]
fn one_lend_that_stays_out_takes_no_room_for_later_ones() {
    let mut ledger = Ledger::new();
    for seq in 0..100_000 {
        assert_eq!(ledger.lend_numbered(7, seq, &spans(&[(1, 8)]), seq), None);
        if seq > 0 {
            let mut back = Vec::new();
            ledger.free_numbers(7, &[seq], &mut back).unwrap();
            assert_eq!(back, [seq]);
        }
        assert!(ledger.numbered.places() < 100);
    }
    assert_eq!(ledger.drain(), [0]);
}

/// The memory for one lent buffer (see `SpanAddress`): with its key, half a cache line.
#[test]
fn an_address_takes_32_bytes() {
    assert_eq!(size_of::<(u64, SpanAddress)>(), 32);
}
