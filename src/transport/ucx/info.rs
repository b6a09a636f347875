//! What `dipc info` says of UCX.

use std::ffi::c_void;

use crate::transport::Settings;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::error::version_text;

/// Version, library, and the transports and devices that UCX finds, one line each.
pub(super) fn describe() -> Vec<(String, String)> {
    let context = match Context::get(&Settings::default(), false, 0) {
        Ok(context) => context,
        Err(error) => return vec![("error".to_owned(), error.to_string())],
    };
    let api = context.api();
    let mut lines = vec![
        ("version".to_owned(), version_text(api)),
        ("library".to_owned(), api.path().display().to_string()),
    ];
    let found = Resources::of(&context).0;
    if !found.is_empty() {
        lines.push(("transports".to_owned(), found.join(", ")));
    }
    lines.push(("GPU memory".to_owned(), gpu_memory(&context).to_owned()));
    lines.push(("lent memory".to_owned(), LENT_MEMORY.to_owned()));
    lines
}

/// What is said of bodies that the client reads by RDMA.
const LENT_MEMORY: &str =
    "only with --body lent, since no RDMA adapter has been tested; bodies are sent as bytes";

/// The pairs of a transport and a device that UCX finds, as `transport/device`.
pub(super) struct Resources(Vec<String>);

impl Resources {
    /// Those of a context. A worker opens each.
    pub(super) fn of(context: &Context) -> Self {
        Self::parse(&printed(|stream| {
            // SAFETY: the context lives, and the stream is open for writing.
            unsafe { (context.api()).ucp_context_print_info(context.handle(), stream) }
        }))
    }

    /// Reads what UCX prints of a context: lines with `resource`, whose last word is the pair.
    fn parse(printed: &str) -> Self {
        let lines = printed.lines().filter(|line| line.contains("resource "));
        let words = lines.filter_map(|line| line.split_whitespace().last());
        let pairs = words.filter(|word| word.contains('/'));
        Self(pairs.map(str::to_owned).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether peers are reached by tcp alone. False where UCX prints nothing that is known.
    pub(super) fn are_tcp(&self) -> bool {
        let mut carriers = self.0.iter().filter(|name| !name.starts_with("self/"));
        let is_tcp = |name: &String| name.starts_with("tcp/");
        carriers.next().is_some_and(is_tcp) && carriers.all(is_tcp)
    }
}

/// Whether bodies go from and to GPUs by themselves.
fn gpu_memory(context: &Context) -> &'static str {
    if context.knows_cuda() {
        "sent and received where it is (CUDA)"
    } else {
        "by way of the host, since this UCX was built without CUDA, or its modules find no driver"
    }
}

/// What `print` writes to a stream of C's.
pub(super) fn printed(print: impl FnOnce(*mut libc::FILE)) -> String {
    let (mut text, mut length) = (std::ptr::null_mut(), 0_usize);
    // SAFETY: both places are writable until the stream is closed below.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut length) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: opened above and used no more.
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

    /// tcp alone is told from what else may carry messages.
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
