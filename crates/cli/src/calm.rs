//! Turns panics of other crates' readers into errors.
//!
//! Arrow's IPC reader panics on some damaged files. A damaged file must give an error of one line,
//! so such calls run here. The panic is caught, and its message becomes the error; it is not
//! printed.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static CALM: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panics inside [`catch`] off stderr. Call once, at the start of the process.
pub fn install() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !CALM.get() {
            default(info);
        }
    }));
}

/// Runs `work`; a panic becomes its message.
///
/// After a panic the state that `work` changed may be half done: the caller drops it.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CALM.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CALM.set(before);
    outcome.map_err(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "the reader panicked".to_owned());
        format!("the content is damaged ({text})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic inside becomes a text; the next call works.
    #[test]
    fn panics_become_texts() {
        let caught = catch(|| -> u8 { panic!("range end {}", 7) });
        assert_eq!(
            caught,
            Err("the content is damaged (range end 7)".to_owned())
        );
        assert_eq!(catch(|| 5), Ok(5));
    }
}
