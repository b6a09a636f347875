//! Ranks in texts for people.

use super::layout::Rank;

/// A text names no more ranges than this.
const MOST_RANGES: usize = 32;

/// The ranks in words, ascending, each once: "0, 3-7 and 9"; "none" without ranks. After 32 ranges
/// the text has the number of the other ranks instead of their names.
pub fn ranges(ranks: impl Iterator<Item = Rank>) -> String {
    let mut ranks: Vec<Rank> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    let runs = ranks.chunk_by(|a, b| a.saturating_add(1) == *b);
    let mut words: Vec<String> = Vec::new();
    let mut others = 0_usize;
    for run in runs {
        match run {
            _ if words.len() >= MOST_RANGES => others = others.saturating_add(run.len()),
            [] => {}
            [only] => words.push(only.to_string()),
            [first, .., last] => words.push(format!("{first}-{last}")),
        }
    }
    if others > 0 {
        words.push(format!("{others} more"));
    }
    match words.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}
