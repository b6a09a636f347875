//! What `dipc info` says of UCX.

use std::ffi::c_void;

use crate::transport::Settings;
use crate::transport::ucx::context::{Context, KNOWS_POSIX_ERROR_HANDLING};
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
    let found = resources_of(&context);
    if !found.is_empty() {
        lines.push(("transports".to_owned(), found.join(", ")));
    }
    lines.push(("GPU memory".to_owned(), gpu_memory(&context).to_owned()));
    lines.push((
        "on one host".to_owned(),
        shared_memory(api.version()).to_owned(),
    ));
    lines
}

/// Whether a device of this machine serves reads of its memory by itself, as RDMA adapters do.
pub(super) fn has_remote_reads(context: &Context) -> bool {
    let found = resources_of(context);
    found.iter().any(|name| reads(name))
}

/// Whether a transport is one of InfiniBand's or RoCE's that read memory: the connected ones.
fn reads(transport: &str) -> bool {
    transport.starts_with("rc_") || transport.starts_with("dc_")
}

/// The transports and devices that UCX finds.
fn resources_of(context: &Context) -> Vec<String> {
    resources(&print_context(context))
}

/// How many pairs of a transport and a device UCX finds: a worker opens each.
pub(super) fn resource_count(context: &Context) -> usize {
    resource_lines(&print_context(context)).count()
}

fn print_context(context: &Context) -> String {
    printed(|stream| {
        // SAFETY: the context lives, and the stream is open for writing.
        unsafe { (context.api()).ucp_context_print_info(context.handle(), stream) }
    })
}

/// Whether bodies go from and to GPUs by themselves.
fn gpu_memory(context: &Context) -> &'static str {
    if context.knows_cuda() {
        "sent and received where it is (CUDA)"
    } else {
        "by way of the host, since this UCX was built without CUDA, or its modules find no driver"
    }
}

/// What UCX takes between processes of one host, as libdipc sets it up unless told otherwise.
fn shared_memory(version: (u32, u32, u32)) -> &'static str {
    if version >= KNOWS_POSIX_ERROR_HANDLING {
        "shared memory (posix), which notices a dead peer"
    } else {
        "tcp, since this UCX's shared memory does not notice a dead peer; ucx.error_handling=none takes it \
         all the same, and shm: needs no UCX"
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

/// The resources in what UCX prints of a context: lines with `resource`, whose last word is
/// `transport/device`.
fn resources(printed: &str) -> Vec<String> {
    let words = resource_lines(printed).filter_map(|line| line.split_whitespace().last());
    let mut found: Vec<_> = words
        .filter(|word| word.contains('/'))
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

fn resource_lines(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter(|line| line.contains("resource "))
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
        assert_eq!(resources(printed), ["self/memory0", "tcp/lo"]);
    }

    /// Reads by a device are those of InfiniBand's connected transports.
    #[test]
    fn devices_that_read_are_known() {
        assert!(
            reads("rc_mlx5/mlx5_0:1") && reads("dc_mlx5/mlx5_0:1") && reads("rc_verbs/mlx5_1:1")
        );
        assert!(!reads("tcp/lo") && !reads("ud_verbs/mlx5_0:1") && !reads("posix/memory"));
    }

    /// Facts of design: shared memory with error handling came after 1.13.
    #[test]
    fn the_choice_on_one_host_is_told() {
        assert!(shared_memory((1, 13, 1)).starts_with("tcp"));
        assert!(shared_memory((1, 22, 0)).starts_with("shared memory"));
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
