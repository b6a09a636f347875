//! All figures of a server at once: as a struct, and as text for Prometheus.

use std::ffi::c_char;

use crate::error::{Error, Result};
use crate::ffi::caught::guard_value;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::null_argument;
use crate::ffi::request::dipc_request;
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_str};
use crate::proto::Verb;
use crate::server::{self, HistogramSums, ServerStats, StreamSums, upper_bound};

/// Buckets of a histogram.
pub const DIPC_HISTOGRAM_BUCKETS: usize = 130;
/// Places for figures by status.
pub const DIPC_STATS_STATUSES: usize = 64;

const _: () = assert!(DIPC_HISTOGRAM_BUCKETS == server::BUCKETS);
const _: () = assert!(DIPC_STATS_STATUSES == server::STATUSES);

/// How often values came, by size. Bucket i counts the values that are greater than
/// dipc_histogram_upper_bound(i - 1) and not greater than dipc_histogram_upper_bound(i).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dipc_histogram {
    /// How many values came.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// How many came for each bucket.
    pub buckets: [u64; DIPC_HISTOGRAM_BUCKETS],
}

/// Figures of a server, of one label, or of the process, since the start unless they say "now".
/// Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dipc_server_stats {
    /// Connections open now; 0 for a label.
    pub connections: u64,
    /// Connections accepted; 0 for a label.
    pub connections_opened: u64,
    /// Accepted connections that are over; 0 for a label.
    pub connections_closed: u64,
    /// Connections that were not accepted: the user is not allowed, a limit is reached, or the
    /// handshake fails; 0 for a label.
    pub connections_refused: u64,
    /// Streams with a client now; 0 for a label.
    pub streams_active: u64,
    /// Buffers lent and not yet given back, now; 0 for a label.
    pub lent_outstanding: u64,
    /// Bytes of regions for copies that this process or a client maps now; 0 for a label.
    pub region_bytes: u64,
    /// Record batches sent.
    pub batches_sent: u64,
    /// Rows of these batches.
    pub rows_sent: u64,
    /// Record batches that clients sent.
    pub batches_received: u64,
    /// Rows of these batches.
    pub rows_received: u64,
    /// Body bytes lent without a copy.
    pub bytes_lent: u64,
    /// Body bytes copied on the host: into regions, to be lent from them. Includes sent bodies of
    /// at most 1 KiB.
    pub bytes_copied: u64,
    /// Body bytes sent through connections.
    pub bytes_sent: u64,
    /// Body bytes copied within a GPU's memory and lent from the copy.
    pub bytes_copied_on_device: u64,
    /// Body bytes copied from a GPU's memory to the host, then lent or sent.
    pub bytes_staged: u64,
    /// Body bytes that clients sent, lent ones included.
    pub bytes_received: u64,
    /// Requests to get a table that were begun.
    pub requests_get: u64,
    /// Requests to put a table that were begun.
    pub requests_put: u64,
    /// Exchanges that were begun.
    pub requests_exchange: u64,
    /// Requests for a description that were begun.
    pub requests_describe: u64,
    /// Requests for a list that were begun.
    pub requests_list: u64,
    /// Requests that have ended well.
    pub requests_finished: u64,
    /// Requests that were begun and have ended otherwise, by status: DIPC_ERR_BUSY (-14) at place
    /// 14, and numbers of the host's at place 0.
    pub requests_failed: [u64; DIPC_STATS_STATUSES],
    /// Requests that were refused before they were begun, in the same places; 0 for a label.
    pub requests_refused: [u64; DIPC_STATS_STATUSES],
    /// Nanoseconds from a request's arrival until its first batch was sent.
    pub first_batch_ns: dipc_histogram,
    /// Nanoseconds from when a batch was there until the connection had it: encoding, a copy if one
    /// is needed, and waiting for a slow client. Measured for the first batch of each stream, and
    /// for every 64th batch after it.
    pub hand_over_ns: dipc_histogram,
    /// Body bytes that a request has carried, both ways, when it ended.
    pub request_bytes: dipc_histogram,
    /// Rows of the batches that tables and providers gave to be sent, including the rows that a
    /// filter or a range left out. Batches after the end of a range are not read.
    pub rows_read: u64,
}

impl From<&HistogramSums> for dipc_histogram {
    fn from(sums: &HistogramSums) -> Self {
        Self {
            count: sums.count,
            sum: sums.sum,
            buckets: sums.buckets,
        }
    }
}

impl From<&ServerStats> for dipc_server_stats {
    fn from(stats: &ServerStats) -> Self {
        let streams = &stats.streams;
        Self {
            connections: stats.connections,
            connections_opened: stats.connections_opened,
            connections_closed: stats.connections_closed,
            connections_refused: stats.connections_refused,
            streams_active: stats.streams_active,
            lent_outstanding: stats.lent_outstanding,
            region_bytes: stats.region_bytes,
            batches_sent: streams.batches,
            rows_sent: streams.rows,
            batches_received: streams.batches_received,
            rows_received: streams.rows_received,
            bytes_lent: streams.bytes_lent,
            bytes_copied: streams.bytes_copied,
            bytes_sent: streams.bytes_sent,
            bytes_copied_on_device: streams.bytes_copied_on_device,
            bytes_staged: streams.bytes_staged,
            bytes_received: streams.bytes_received,
            requests_get: streams.requests_of(Verb::Get),
            requests_put: streams.requests_of(Verb::Put),
            requests_exchange: streams.requests_of(Verb::Exchange),
            requests_describe: streams.requests_of(Verb::Describe),
            requests_list: streams.requests_of(Verb::List),
            requests_finished: streams.finished,
            requests_failed: streams.failed,
            requests_refused: stats.refused,
            first_batch_ns: (&streams.first_batch).into(),
            hand_over_ns: (&streams.hand_over).into(),
            request_bytes: (&streams.request_bytes).into(),
            rows_read: streams.rows_read,
        }
    }
}

impl From<&StreamSums> for dipc_server_stats {
    fn from(sums: &StreamSums) -> Self {
        let stats = ServerStats {
            streams: *sums,
            ..ServerStats::default()
        };
        Self::from(&stats)
    }
}

/// The caller's struct, which may be of another version.
struct StatsOut {
    out: *mut dipc_server_stats,
    size: usize,
}

impl StatsOut {
    /// # Safety
    ///
    /// `out` is NULL or writable for `size` bytes until [`set`](Self::set), and nobody else uses
    /// it.
    unsafe fn new(out: *mut dipc_server_stats, size: usize) -> Result<Self> {
        if out.is_null() {
            return Err(null_argument("out"));
        }
        if size == 0 {
            let text = "size_bytes is 0: give the size of your dipc_server_stats";
            return Err(Error::invalid_argument(text));
        }
        Ok(Self { out, size })
    }

    /// Writes the members that the caller's struct has, and zeros for members that only the
    /// caller's struct has.
    fn set(self, stats: &dipc_server_stats) {
        let known = size_of::<dipc_server_stats>().min(self.size);
        let out = self.out.cast::<u8>();
        // SAFETY: `new`'s caller promised that `size >= known` bytes are writable; the struct here
        // is ours and has as many. It has no padding, for all members are u64.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(stats).cast(), out, known) };
        // SAFETY: `known <= size`, of which all bytes are writable.
        let rest = unsafe { out.add(known) };
        // SAFETY: `new`'s caller promised that `size` bytes are writable, of which these are the
        // last.
        unsafe { rest.write_bytes(0, self.size - known) };
    }
}

/// Gives all figures of a server. Several threads may call it at once; if figures rise during the
/// call, they may not match each other exactly.
///
/// @param server      Server.
/// @param out         Receives the figures. Members that the library does not know become 0.
/// @param size_bytes  sizeof(dipc_server_stats) of the caller, which may be of another version of
///                    the header.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
///
/// # Safety
///
/// `server` is NULL or live; `out` is NULL or writable for `size_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_get_stats(
    server: *const dipc_server,
    out: *mut dipc_server_stats,
    size_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `out` is NULL or writable for so many bytes.
        let out = unsafe { StatsOut::new(out, size_bytes) }?;
        out.set(&(&server.inner.stats()).into());
        Ok(())
    })
}

/// Gives the figures of the requests with one label: a ticket of the server's own, a label of
/// dipc_request_set_label(), "(handler)" for what a handler serves without one, "(list)" for lists
/// of the server's own, or "(other)" for all labels after the first 1,000. The label of a ticket is
/// its text: U+FFFD replaces bytes that are not UTF-8, and a text of more than 128 bytes is cut and
/// ends with "…".
///
/// @param server      Server.
/// @param label       The label; UTF-8.
/// @param out         Receives the figures. Members that no label has become 0.
/// @param size_bytes  sizeof(dipc_server_stats) of the caller.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
///         DIPC_ERR_NOT_FOUND: nothing was counted under this label.
///
/// # Safety
///
/// `server` is NULL or live; `label` is NULL or a NUL-terminated string; `out` is NULL or writable
/// for `size_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_get_label_stats(
    server: *const dipc_server,
    label: *const c_char,
    out: *mut dipc_server_stats,
    size_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `label` is NULL or a string.
        let label = unsafe { try_str(label, "label") }?;
        // SAFETY: the caller promises `out` is NULL or writable for so many bytes.
        let out = unsafe { StatsOut::new(out, size_bytes) }?;
        out.set(&(&server.inner.label_stats(label)?).into());
        Ok(())
    })
}

/// Gives the figures of all servers of this process together, those that were freed included. The
/// child of a fork begins with zeros.
///
/// @param out         Receives the figures.
/// @param size_bytes  sizeof(dipc_server_stats) of the caller.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: size_bytes is 0.
///
/// # Safety
///
/// `out` is NULL or writable for `size_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_process_get_stats(
    out: *mut dipc_server_stats,
    size_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `out` is NULL or writable for so many bytes.
        let out = unsafe { StatsOut::new(out, size_bytes) }?;
        out.set(&(&server::process_stats()).into());
        Ok(())
    })
}

/// The largest value that a bucket counts: 256 for the first one, then four bounds in equal steps
/// for each power of two up to 2^40.
///
/// @param bucket  Number of the bucket, from 0.
/// @return The bound; UINT64_MAX for the last bucket and for numbers beyond.
#[unsafe(no_mangle)]
pub extern "C" fn dipc_histogram_upper_bound(bucket: usize) -> u64 {
    guard_value(u64::MAX, || upper_bound(bucket))
}

/// Gives all figures of a server in Prometheus' text format, version 0.0.4: each label is a value
/// of the label "ticket". The text grows between calls: if the buffer has become too small, ask for
/// the length again.
///
/// @param server         Server.
/// @param buffer         Receives the text and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the text, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `server` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_stats_text(
    server: *const dipc_server,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        out.set_text(&server.inner.stats_text())
    })
}

/// Names the label under which a request is counted (dipc_server_get_label_stats()). An authorizer
/// may call it. So may a handler before the stream begins: a provider before it returns its stream,
/// a host of the pull form before dipc_request_start(), and a handler of a put before it reads the
/// client's stream. Otherwise the label is the ticket, or "(handler)" for what a handler serves.
/// After the first 1,000 labels of a server all others are counted as "(other)".
///
/// @param request  Request.
/// @param label    1 to 128 bytes of UTF-8. Choose few: each label has figures of its own.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the label is empty or too
///         long, or the stream has begun.
///
/// # Safety
///
/// `request` is NULL or live; `label` is NULL or a NUL-terminated string; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_set_label(
    request: *const dipc_request,
    label: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `label` is NULL or a string.
        let label = unsafe { try_str(label, "label") }?;
        request.get().set_label(label)
    })
}
