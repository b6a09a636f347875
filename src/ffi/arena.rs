//! Arenas: memory that can be lent.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::arena::{self, Arena, ArenaOptions};
use crate::device::DeviceKind;
use crate::error::Error;
use crate::ffi::arguments::unknown_stat;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::{Polled, guard_free};
use crate::ffi::handle::{HandleState, boxed, null_argument, try_option, try_out};
use crate::ffi::status::dipc_status;

/// Allocates memory of the host or of a CUDA device that a client on the same machine can map, so
/// that tables in it are not copied. Made by dipc_arena_new(). Several threads may call an arena at
/// once.
///
/// A client that was lent one block can read the block's whole region for as long as it likes. So
/// an arena is as public as the most public ticket whose batches lie in it.
pub struct dipc_arena {
    state: HandleState,
    inner: Arena,
}

handle!(dipc_arena, "arena", Arena);

/// Bytes of blocks in use.
pub const DIPC_ARENA_STAT_USED_BYTES: i32 = 1;
/// Bytes of all regions, taken from the system or the device.
pub const DIPC_ARENA_STAT_MAPPED_BYTES: i32 = 2;

/// Options of an arena, for dipc_arena_new().
pub struct dipc_arena_options {
    state: HandleState,
    pub(super) inner: ArenaOptions,
}

handle!(dipc_arena_options, "options", ArenaOptions);

/// Makes options with the default values. Each setter names its default.
///
/// @param out    Receives the options, to be freed by dipc_arena_options_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_options_new(
    out: *mut *mut dipc_arena_options,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(ArenaOptions::default()))
}

/// Sets the size of one region. A larger block gets a region of its own. A client maps whole
/// regions. Default: 64 MiB.
///
/// @param options       Options to change; exclusive during the call.
/// @param region_bytes  Bytes, rounded up to whole pages; on a CUDA device, to its mapping unit
///                      (mostly 2 MiB).
/// @param error         May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_arena_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_options_set_region_bytes(
    options: *mut dipc_arena_options,
    region_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        if region_bytes == 0 {
            return Err(Error::invalid_argument("region_bytes is 0"));
        }
        options.inner.region_bytes = region_bytes;
        Ok(())
    })
}

/// Sets the limit for all regions of the arena together. Beyond the limit dipc_arena_alloc() fails
/// with DIPC_ERR_OUT_OF_MEMORY. A region that the arena has given up counts until no client maps
/// it. Default: no limit.
///
/// @param options    Options to change; exclusive during the call.
/// @param max_bytes  Bytes; UINT64_MAX: no limit.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_arena_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_options_set_max_bytes(
    options: *mut dipc_arena_options,
    max_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_bytes = max_bytes)
}

/// Frees options. NULL does nothing. Arenas keep a copy of their options.
///
/// @param options  Options, or NULL.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_arena_options_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_options_free(options: *mut dipc_arena_options) {
    // SAFETY: the caller promises `options` is NULL, or live and unused.
    unsafe { guard_free(options) }
}

/// Makes an arena. The first block takes memory from the system, one region at a time.
///
/// @param device_type  Where the memory lies: ARROW_DEVICE_CPU or ARROW_DEVICE_CUDA.
/// @param device_id    Number of the CUDA device; ignored for the host.
/// @param options      Copied; NULL: the defaults.
/// @param out          Receives the arena, to be freed by dipc_arena_free().
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type, no CUDA
///         driver, or a device that cannot lend memory. DIPC_ERR_INVALID_ARGUMENT: the driver has
///         no device of that number.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_arena_options_new() and was not freed; `out` and `error`
/// are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_new(
    device_type: i32,
    device_id: i64,
    options: *const dipc_arena_options,
    out: *mut *mut dipc_arena,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `options` is NULL or live.
        let options = unsafe { try_option(options) }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let options = options.map_or_else(ArenaOptions::default, |given| given.inner.clone());
        let inner = Arena::on(DeviceKind(device_type), device_id, options)?;
        out.set(boxed(inner));
        Ok(())
    })
}

/// Allocates a block, aligned to 64 bytes. Its content is undefined. A block of a CUDA device has a
/// device address: the processor must not access it.
///
/// @param arena      Arena.
/// @param len_bytes  Length; 0 gives a block too, which must be given back.
/// @param out        Receives the block, to be given back by dipc_arena_dealloc().
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no region can have this
///         length. DIPC_ERR_OUT_OF_MEMORY: the system or the device has no memory left, or the
///         options' limit is reached. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left for a
///         region.
///
/// # Safety
///
/// `arena` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_alloc(
    arena: *const dipc_arena,
    len_bytes: usize,
    out: *mut *mut c_void,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(arena, error, out => |arena| arena.inner.alloc(len_bytes)?.as_ptr().cast())
}

/// Gives a block back. The arena reuses the memory when no client has it lent any more.
///
/// A client that maps a region can read all of it, freed blocks included. Overwrite a secret before
/// you give its block back.
///
/// The arena may reuse a block of a CUDA device at once, so the device's work on the block must be
/// done before the call.
///
/// @param arena  The block's arena; NULL: the library finds it, even after dipc_arena_free().
/// @param block  Block; NULL does nothing.
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_INVALID_ARGUMENT: no block in use begins at this address; nothing
///         changed.
///
/// # Safety
///
/// `arena` is NULL or live; the caller does not read or write the block any more; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_dealloc(
    arena: *const dipc_arena,
    block: *mut c_void,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `arena` is NULL or live.
        let arena = unsafe { try_option(arena) }?;
        match (NonNull::new(block.cast::<u8>()), arena) {
            (None, _) => Ok(()),
            // SAFETY: the caller promises that it does not use the block any more.
            (Some(block), Some(arena)) => unsafe { arena.inner.dealloc(block) },
            // SAFETY: the caller promises that it does not use the block any more.
            (Some(block), None) => unsafe { arena::dealloc(block) },
        }
    })
}

/// Finds the file that has bytes of a host arena of this process. A mapping of the file shows the
/// same memory as the arena's own mapping. A new mapping that can be written to must be private
/// (MAP_PRIVATE).
///
/// The file has a whole region: map no more than the pages of your own bytes. It cannot shrink.
/// When a block is given back, its memory is used again, and all mappings show the new content.
///
/// @param data        The first byte, in a block that is not given back during the call.
/// @param len_bytes   How many bytes.
/// @param out_fd      Receives a file descriptor of the arena's, valid until the block is given
///                    back; the caller does not close it.
/// @param out_offset  Receives the offset of the first byte in the file.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no host arena has all of these bytes in one region.
///         DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out_fd`, `out_offset` and `error` are NULL or writable. `data` is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_find_file(
    data: *const c_void,
    len_bytes: usize,
    out_fd: *mut i32,
    out_offset: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `out_fd` is NULL or writable.
        let out_fd = unsafe { try_out(out_fd, "out_fd") }?;
        // SAFETY: the caller promises `out_offset` is NULL or writable.
        let out_offset = unsafe { try_out(out_offset, "out_offset") }?;
        if data.is_null() {
            return Err(null_argument("data"));
        }
        let Some((region, offset)) = arena::find(data.cast(), len_bytes) else {
            return Ok(Polled::Nothing);
        };
        out_fd.set(region.fd().as_raw_fd());
        out_offset.set(offset);
        Ok(Polled::Done)
    })
}

/// Reads one figure of an arena.
///
/// @param arena  Arena.
/// @param stat   DIPC_ARENA_STAT_*.
/// @param out    Receives the figure.
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
///         this figure; it may be older than the header.
///
/// # Safety
///
/// `arena` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_stat(
    arena: *const dipc_arena,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(arena, error, out => |arena| match stat {
        DIPC_ARENA_STAT_USED_BYTES => arena.inner.used_bytes(),
        DIPC_ARENA_STAT_MAPPED_BYTES => arena.inner.mapped_bytes(),
        _ => return Err(unknown_stat(stat, "DIPC_ARENA_STAT_*")),
    })
}

/// Frees an arena. NULL does nothing. The memory lives until the last block is given back.
///
/// @param arena  Arena, or NULL; no call on it is running.
///
/// # Safety
///
/// `arena` is NULL, or came from dipc_arena_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_arena_free(arena: *mut dipc_arena) {
    // SAFETY: the caller promises `arena` is NULL, or live and unused.
    unsafe { guard_free(arena) }
}
