//! The host's provider function, and the streams that it gives.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::arrow::abi::{ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
use crate::arrow::{CStruct, OwnedDeviceStream};
use crate::error::{Error, Result, Status};
use crate::ffi::foreign::{ForeignData, dipc_finalizer};
use crate::ffi::request::dipc_request;
use crate::server::{HostProvider, ServerRequest};

/// Opens the stream for a request. The library calls a provider once for each stream. The thread of
/// the call then reads and releases the stream, and serves no other one meanwhile. So a provider
/// may block, and may fetch from its own server. It must not unwind. The thread may serve another
/// stream later.
///
/// @param userdata  The userdata of dipc_server_serve() or dipc_server_set_handler().
/// @param request   The client's request; valid until the stream is released, not to be freed. To
///                  fail with its own text the provider calls dipc_request_fail() and returns
///                  non-zero. With DIPC_VERB_PUT the client sends a table: the provider accepts it
///                  by dipc_request_source(), reads it to its end, and sets no stream; the request
///                  is valid until the provider returns. With DIPC_VERB_EXCHANGE it accepts the
///                  client's table too, and sets a stream, whose get_next may read that table; the
///                  table is read to its end before the stream ends.
/// @param out       Receives the stream, which the library then owns; its release is NULL before
///                  the call.
/// @return 0, or any other number for a failure: then out is ignored.
pub type dipc_provider = Option<
    unsafe extern "C" fn(
        userdata: *mut c_void,
        request: *mut dipc_request,
        out: *mut ArrowDeviceArrayStream,
    ) -> i32,
>;

/// The provider gives the same batches at each call. Then a client other than libdipc may fetch
/// metadata and bodies over two connections.
pub const DIPC_PROVIDER_DETERMINISTIC: u32 = 1;

type BoxedProvider = Box<dyn HostProvider>;

/// The function behind a [`dipc_provider`] that is not NULL.
pub(super) type ProviderFunction =
    unsafe extern "C" fn(*mut c_void, *mut dipc_request, *mut ArrowDeviceArrayStream) -> i32;

pub(super) struct ForeignProvider {
    function: ProviderFunction,
    data: Arc<ForeignData>,
    deterministic: bool,
}

impl ForeignProvider {
    /// Makes a provider, and gives it to `take`. If `take` gives it back, the host keeps its data
    /// ([`ForeignData::relinquish`]).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: unknown flags. Those of `take`.
    pub(super) fn hand_over(
        function: ProviderFunction,
        userdata: *mut c_void,
        finalizer: dipc_finalizer,
        flags: u32,
        take: impl FnOnce(BoxedProvider) -> Result<(), (Error, BoxedProvider)>,
    ) -> Result<()> {
        if flags & !DIPC_PROVIDER_DETERMINISTIC != 0 {
            return Err(Error::invalid_argument(format!(
                "flags are {flags:#x}: unknown bits"
            )));
        }
        let data = Arc::new(ForeignData::new(userdata, finalizer));
        let provider = Self {
            function,
            data: Arc::clone(&data),
            deterministic: flags & DIPC_PROVIDER_DETERMINISTIC != 0,
        };
        take(Box::new(provider)).map_err(|(error, _provider)| {
            data.relinquish();
            error
        })
    }
}

impl ForeignProvider {
    /// Calls the host. Gives the stream that it set, which may be none.
    fn call(&self, request: &dipc_request) -> Result<ArrowDeviceArrayStream> {
        let handle = std::ptr::from_ref(request).cast_mut();
        let mut stream = ArrowDeviceArrayStream::empty();
        // SAFETY: the host promised in `dipc_server_serve` that the provider may be called on any
        // thread until its finalizer has run, and `data`, which runs it, is alive; `handle` lives
        // at least as long as the call, and `stream` is writable.
        let code = unsafe { (self.function)(self.data.pointer(), handle, &raw mut stream) };
        match code {
            0 => Ok(stream),
            _ => Err(Error::new(
                Status::Provider,
                format!("the provider returned {code} and gave no text"),
            )),
        }
    }
}

impl HostProvider for ForeignProvider {
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        let request = Box::new(dipc_request::lent(request));
        let stream = self.call(&request)?;
        if stream.is_released() {
            return Err(Error::new(
                Status::Provider,
                "the provider returned 0 and gave no stream: the release of `out` is NULL",
            ));
        }
        // SAFETY: the host promised in `dipc_server_serve` streams that follow Arrow's interface,
        // and gave this one away with the 0.
        let stream = unsafe { OwnedDeviceStream::from_raw(stream) };
        Ok(with_request(stream, request))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        let stream = self.call(&dipc_request::lent(request))?;
        if stream.is_released() {
            return Ok(());
        }
        // SAFETY: the host promised in `dipc_server_serve` streams that follow Arrow's interface,
        // and gave this one away with the 0.
        drop(unsafe { OwnedDeviceStream::from_raw(stream) });
        Err(Error::new(
            Status::Provider,
            "the provider gave a stream to a client that sends one (DIPC_VERB_PUT)",
        ))
    }

    fn is_deterministic(&self) -> bool {
        self.deterministic
    }
}

/// A stream of the host, and the request that its callbacks may still use.
struct Tied {
    // The fields drop in this order: the stream's release may use the request.
    stream: OwnedDeviceStream,
    _request: Box<dipc_request>,
}

/// Keeps `request` until `stream` is released.
fn with_request(stream: OwnedDeviceStream, request: Box<dipc_request>) -> OwnedDeviceStream {
    let raw = stream.raw();
    let outer = ArrowDeviceArrayStream {
        device_type: raw.device_type,
        get_schema: raw.get_schema.map(|_| get_schema as _),
        get_next: raw.get_next.map(|_| get_next as _),
        get_last_error: raw.get_last_error.map(|_| get_last_error as _),
        release: Some(release),
        private_data: std::ptr::null_mut(),
    };
    let tied = Box::into_raw(Box::new(Tied {
        stream,
        _request: request,
    }));
    let outer = ArrowDeviceArrayStream {
        private_data: tied.cast(),
        ..outer
    };
    // SAFETY: each function passes the call on to the stream inside `tied`, which keeps the promise
    // of an owned stream; nobody else has `outer`.
    unsafe { OwnedDeviceStream::from_raw(outer) }
}

/// The host's stream inside a stream of [`with_request`].
///
/// # Safety
///
/// `outer` is such a stream, not released, and used by nobody else for `'a`.
unsafe fn inner<'a>(outer: *mut ArrowDeviceArrayStream) -> &'a mut ArrowDeviceArrayStream {
    // SAFETY: the caller promises that it is live.
    let tied = unsafe { (*outer).private_data }.cast::<Tied>();
    // SAFETY: `with_request` put a boxed `Tied` there, which lives until the stream is released;
    // the caller promises exclusive use.
    let tied = unsafe { &mut *tied };
    // SAFETY: the callers pass it to its own functions only, which leave it a valid stream.
    unsafe { tied.stream.raw_mut() }
}

unsafe extern "C" fn get_schema(
    outer: *mut ArrowDeviceArrayStream,
    out: *mut ArrowSchema,
) -> c_int {
    // SAFETY: Arrow's stream interface passes the stream that holds this function, one call at a
    // time.
    let stream = unsafe { inner(outer) };
    // SAFETY: the function belongs to this stream; `out` is what the caller passed for it.
    stream
        .get_schema
        .map_or(libc::ENOSYS, |function| unsafe { function(stream, out) })
}

unsafe extern "C" fn get_next(
    outer: *mut ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArray,
) -> c_int {
    // SAFETY: Arrow's stream interface passes the stream that holds this function, one call at a
    // time.
    let stream = unsafe { inner(outer) };
    // SAFETY: the function belongs to this stream; `out` is what the caller passed for it.
    stream
        .get_next
        .map_or(libc::ENOSYS, |function| unsafe { function(stream, out) })
}

unsafe extern "C" fn get_last_error(outer: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: Arrow's stream interface passes the stream that holds this function, one call at a
    // time.
    let stream = unsafe { inner(outer) };
    // SAFETY: the function belongs to this stream.
    stream
        .get_last_error
        .map_or(std::ptr::null(), |function| unsafe { function(stream) })
}

unsafe extern "C" fn release(outer: *mut ArrowDeviceArrayStream) {
    // SAFETY: Arrow's stream interface passes the stream that holds this function, live.
    let outer = unsafe { &mut *outer };
    outer.release = None;
    // SAFETY: `with_request` put it there by Box::into_raw, and `release`, now cleared, is called
    // once.
    drop(unsafe { Box::from_raw(outer.private_data.cast::<Tied>()) });
}
