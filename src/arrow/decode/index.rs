//! Indices of dictionaries.

use crate::arrow::decode::plain::Plain;

/// The integer type of a dictionary's indices.
pub(super) trait Index: Plain + Ord + TryInto<i64> {
    /// True if all indices are in `0..values`. False also for valid unsigned indices that are too
    /// large for the signed type.
    fn are_surely_below(indices: &[Self], values: i64) -> bool;
}

macro_rules! index {
    ($($number:ty as $signed:ty)*) => {$(
        impl Index for $number {
            fn are_surely_below(indices: &[Self], values: i64) -> bool {
                let last = <$signed>::try_from(values - 1).unwrap_or(<$signed>::MAX);
                // One sign for all: of the indices, and of the difference between each and the last
                // value. That takes three instructions of the oldest vector extension, which has no
                // minimum of these types. The loop has no exit, so that the compiler can vectorise
                // it.
                let sign = indices.iter().fold(0, |any, index| {
                    let index = <$signed>::from_ne_bytes(index.to_ne_bytes());
                    any | index | last.wrapping_sub(index)
                });
                sign >= 0
            }
        }
    )*};
}
index!(i8 as i8 i16 as i16 i32 as i32 i64 as i64 u8 as i8 u16 as i16 u32 as i32 u64 as i64);

#[cfg(test)]
mod tests {
    use super::Index;

    /// Rule A8, level full: the check finds an index outside of the dictionary, alone or among
    /// others.
    #[test]
    fn no_index_outside_is_surely_below() {
        for values in 0..=300 {
            for index in i8::MIN..=i8::MAX {
                let inside = (0..values).contains(&i64::from(index));
                assert_eq!(
                    i8::are_surely_below(&[index], values),
                    inside,
                    "{index} of {values}"
                );
                let among = [vec![0; 33], vec![index], vec![0; 7]].concat();
                assert_eq!(i8::are_surely_below(&among, values), inside && values > 0);
            }
            for index in u8::MIN..=u8::MAX {
                let inside = i64::from(index) < values;
                let surely = inside && index < 128;
                assert_eq!(
                    u8::are_surely_below(&[index], values),
                    surely,
                    "{index} of {values}"
                );
            }
        }
        assert!(i64::are_surely_below(&[0, i64::MAX - 1], i64::MAX));
        assert!(!i64::are_surely_below(&[0, i64::MIN], i64::MAX));
        assert!(!u64::are_surely_below(&[u64::MAX], i64::MAX));
        assert!(u32::are_surely_below(&[], 0));
    }
}
