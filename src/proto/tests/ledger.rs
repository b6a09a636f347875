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

/// Rule F3: each occurrence is freed once; a lend is whole when all of its spans are back.
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

/// Rule F3: batches that share a buffer of one length return it in any order: the first lent is
/// the first returned.
#[test]
fn equal_lengths_return_first_lent_first() {
    let mut ledger = Ledger::new();
    for hold in ['a', 'b', 'c'] {
        ledger.lend(&spans(&[(1, 8)]), hold);
    }
    assert_eq!(freed(&mut ledger, &[1]), "a");
    assert_eq!(freed(&mut ledger, &[1, 1]), "bc");
}

/// Rule F3: where lengths differ, a return does not say which occurrence it means: the address is
/// held until all are back, those lent meanwhile included.
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

/// Rule F3: freeing what was not lent, or too often, frees nothing at all.
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
    /// Rule F3: returned in any order and grouping, every lend comes back exactly once, never before
    /// as many returns of each of its addresses as it has occurrences, and the ledger ends empty.
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

/// What one lent buffer costs (see `Address`): with its key, half a cache line.
#[test]
fn an_address_takes_32_bytes() {
    assert_eq!(size_of::<(u64, Address)>(), 32);
}
