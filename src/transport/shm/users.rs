//! The uid that does not identify a user: the overflow uid. A process sees it in place of every
//! user for which its user namespace has no number.

use std::fs::read_to_string;

/// The kernel's default, if /proc cannot be read.
const DEFAULT_OVERFLOW_UID: u32 = 65534;

/// Whether `uid` may stand for any user.
pub fn is_anybody(uid: u32) -> bool {
    uid == overflow_uid() && !read_to_string("/proc/self/uid_map").is_ok_and(|map| is_whole(&map))
}

fn overflow_uid() -> u32 {
    let text = read_to_string("/proc/sys/kernel/overflowuid").ok();
    text.and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT_OVERFLOW_UID)
}

/// Whether a user namespace has a number for every user, as the first namespace has. Only then a
/// uid is that of one user. The map's ranges (first number inside, first number outside, length) do
/// not overlap.
fn is_whole(map: &str) -> bool {
    let length = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(length).sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// security.md, "shm": where a user has no number, the overflow uid is not taken for a user.
    #[test]
    fn only_a_whole_map_makes_the_overflow_uid_a_user() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 100000 65536\n65536 1065536 4294901759\n"));
        for some in ["", "0 1000 1\n", "0 100000 65536\n", "65534 1000 1\n", "x"] {
            assert!(!is_whole(some), "{some}");
        }
    }

    /// Every other uid is one user's.
    #[test]
    fn other_uids_are_somebody() {
        for uid in [0, 1000, u32::MAX] {
            assert!(!is_anybody(uid));
        }
    }
}
