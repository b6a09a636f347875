//! The transports and devices that UCX finds.

use std::ffi::c_void;

use ucx1_sys::{Api, ucp_context_h};

/// The pairs of a transport and a device that UCX finds, as `transport/device`.
#[derive(Debug)]
pub(super) struct Resources(pub(super) Vec<String>);

impl Resources {
    /// The resources of the context with this handle. A worker opens each.
    ///
    /// # Safety
    ///
    /// The context lives.
    pub(super) unsafe fn of(api: &Api, context: ucp_context_h) -> Self {
        Self::parse(&printed(|stream| {
            // SAFETY: the context lives, by this function's contract, and `printed` has opened the
            // stream for writing.
            unsafe { api.ucp_context_print_info(context, stream) }
        }))
    }

    /// Parses what UCX prints about a context: lines with `resource`, whose last word is the pair.
    fn parse(printed: &str) -> Self {
        let lines = printed.lines().filter(|line| line.contains("resource "));
        let words = lines.filter_map(|line| line.split_whitespace().last());
        let pairs = words.filter(|word| word.contains('/'));
        Self(pairs.map(str::to_owned).collect())
    }

    /// Whether peers are reached only by tcp. False if UCX prints nothing that this code knows.
    pub(super) fn are_tcp(&self) -> bool {
        let mut carriers = self.0.iter().filter(|name| !name.starts_with("self/"));
        let is_tcp = |name: &String| name.starts_with("tcp/");
        carriers.next().is_some_and(is_tcp) && carriers.all(is_tcp)
    }
}

/// What `print` writes to a C stream.
fn printed(print: impl FnOnce(*mut libc::FILE)) -> String {
    let (mut text, mut length) = (std::ptr::null_mut(), 0_usize);
    // SAFETY: both places are writable until the stream is closed below.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut length) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: opened above and not used after this call.
    unsafe { libc::fclose(stream) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: closing has set both: a buffer of `length` bytes and a zero.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let copy = String::from_utf8_lossy(bytes).into_owned();
    // SAFETY: the buffer is the caller's to free, and the slice is gone.
    unsafe { libc::free(text.cast::<c_void>()) };
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transports and devices are found among whatever else UCX prints.
    #[test]
    fn resources_are_found() {
        let printed = "#\n# UCP context\n#\n#            md 0  :  self\n#\n\
                       #      resource 0  :  md 0  dev 0  flags -- self/memory0\n\
                       #      resource 1  :  md 1  dev 1  flags -- tcp/lo\n#\n# memory: 0MB\n";
        let found = Resources::parse(printed);
        assert_eq!(found.0, ["self/memory0", "tcp/lo"]);
        assert!(found.are_tcp());
    }

    /// tcp alone is distinguished from other transports that may carry messages.
    #[test]
    fn tcp_alone_is_known() {
        let are_tcp = |names: &[&str]| {
            Resources(names.iter().map(|name| (*name).to_owned()).collect()).are_tcp()
        };
        assert!(are_tcp(&["tcp/lo", "tcp/eth0"]));
        assert!(!are_tcp(&["tcp/lo", "rc_mlx5/mlx5_0:1"]) && !are_tcp(&["tcp/lo", "posix/memory"]));
        assert!(!are_tcp(&[]) && !are_tcp(&["self/memory0"]));
    }

    /// What C writes to its stream comes back whole.
    #[test]
    fn what_is_printed_is_kept() {
        let text = printed(|stream| {
            // SAFETY: the stream is open, and the string ends with a zero.
            unsafe { libc::fputs(c"one\ntwo".as_ptr(), stream) };
        });
        assert_eq!(text, "one\ntwo");
    }
}
