//! Offsets and run ends of any width. Each loop is compiled for each width, because the compiler
//! calls `memcpy` for each number of an unknown width.

use super::checks::signed;

/// Writes a new number to `target` for each number of `width` bytes in `old`. `new` gets the
/// position and the old number. Bytes above `width` are cut off.
pub(super) fn rewrite(
    target: &mut [u8],
    old: &[u8],
    width: usize,
    new: impl FnMut(usize, i64) -> i64,
) {
    match width {
        2 => each::<2>(target, old, new),
        4 => each::<4>(target, old, new),
        8 => each::<8>(target, old, new),
        _ => debug_assert!(false, "numbers of {width} bytes"),
    }
}

#[inline(always)]
fn each<const WIDTH: usize>(target: &mut [u8], old: &[u8], mut new: impl FnMut(usize, i64) -> i64) {
    let (target, _) = target.as_chunks_mut::<WIDTH>();
    let (old, _) = old.as_chunks::<WIDTH>();
    for (place, (target, old)) in target.iter_mut().zip(old).enumerate() {
        target.copy_from_slice(&new(place, signed(old)).to_le_bytes()[..WIDTH]);
    }
}

/// Calls `see` with the position and value of each number of `width` bytes, until `see` returns
/// `None`. Returns `Some` if it has seen all numbers.
pub(super) fn all(
    numbers: &[u8],
    width: usize,
    see: impl FnMut(usize, i64) -> Option<()>,
) -> Option<()> {
    match width {
        2 => all_of::<2>(numbers, see),
        4 => all_of::<4>(numbers, see),
        8 => all_of::<8>(numbers, see),
        _ => None,
    }
}

#[inline(always)]
fn all_of<const WIDTH: usize>(
    numbers: &[u8],
    mut see: impl FnMut(usize, i64) -> Option<()>,
) -> Option<()> {
    let (numbers, _) = numbers.as_chunks::<WIDTH>();
    let mut numbers = numbers.iter().enumerate();
    numbers.try_for_each(|(place, number)| see(place, signed(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of each width change by the same amount, whatever their sign.
    #[test]
    fn numbers_of_each_width_are_rewritten() {
        let numbers = [0i64, 1, -1, 300, i64::from(i16::MAX)];
        for width in [2, 4, 8] {
            let bytes = |by: i64| -> Vec<u8> {
                let low = |number: &i64| (number - by).to_le_bytes()[..width].to_vec();
                numbers.iter().flat_map(low).collect()
            };
            let mut target = vec![0; numbers.len() * width];
            let mut places = 0..;
            rewrite(&mut target, &bytes(0), width, |place, old| {
                assert_eq!(Some(place), places.next());
                old - 7
            });
            assert_eq!(target, bytes(7), "width {width}");
        }
    }
}
