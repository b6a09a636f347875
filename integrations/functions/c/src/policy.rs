//! What an operator allows.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use dipc_sandbox::service::{Hash, Policy};

use crate::arguments::{c_str, exclusive, invalid, output, text, thirty_two};
use crate::error::{Result, guard, guard_free};
use crate::sys::{dipc_error, dipc_status};

/// What the operator of a server allows its clients to run: nothing, until it names modules, keys
/// or all modules. And what one call may use.
pub struct dipc_functions_policy {
    pub(crate) policy: Policy,
}

/// About one unit for each instruction of the module, in one call. Default: 2^40.
pub const DIPC_FUNCTIONS_LIMIT_FUEL: i32 = 1;
/// Nanoseconds inside the module, in one call; the time between two batches does not count.
/// Default: 60 s.
pub const DIPC_FUNCTIONS_LIMIT_TIME_NS: i32 = 2;
/// Bytes of the module's linear memory, in one call. Default: 256 MiB.
pub const DIPC_FUNCTIONS_LIMIT_MEMORY_BYTES: i32 = 3;
/// Rows of all output of one call. Default: 2^32.
pub const DIPC_FUNCTIONS_LIMIT_OUTPUT_ROWS: i32 = 4;
/// Bytes of all output of one call, as they lie in the server's memory. Default: 64 GiB.
pub const DIPC_FUNCTIONS_LIMIT_OUTPUT_BYTES: i32 = 5;
/// Bytes that one step of a call (a batch of its table, or the table's end) may put out. The server
/// holds them until the step has ended. Default: 256 MiB.
pub const DIPC_FUNCTIONS_LIMIT_STEP_BYTES: i32 = 6;
/// Bytes of the greatest module. Default: 16 MiB.
pub const DIPC_FUNCTIONS_LIMIT_MODULE_BYTES: i32 = 7;
/// Compiled modules in memory. Those that were not used for longest go first. Default: 64.
pub const DIPC_FUNCTIONS_LIMIT_MODULES: i32 = 8;
/// Bytes of compiled modules in memory. Default: 256 MiB.
pub const DIPC_FUNCTIONS_LIMIT_MODULES_BYTES: i32 = 9;
/// Bytes of all modules in the folder of dipc_functions_policy_set_folder(). Default: 1 GiB.
pub const DIPC_FUNCTIONS_LIMIT_FOLDER_BYTES: i32 = 10;

/// How often a call may go on at another server (dipc_functions_policy_allow_peer()), counted from its
/// first server. Default: 64.
pub const DIPC_FUNCTIONS_LIMIT_HOPS: i32 = 11;
/// Nanoseconds that a server where a call goes on may send nothing while this one waits for it. It
/// sends nothing while a step runs there, nor while it waits for a further server. Default: 600 s.
pub const DIPC_FUNCTIONS_LIMIT_STALL_NS: i32 = 12;

/// Makes a policy that allows nothing.
///
/// @param out    Receives the policy, to be freed by dipc_functions_policy_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_new(
    out: *mut *mut dipc_functions_policy,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let set = unsafe { output(out, "out") }?;
        let policy = Policy::new();
        set(Box::into_raw(Box::new(dipc_functions_policy { policy })));
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Changes a policy.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `error` is NULL or writable.
unsafe fn changing(
    policy: *mut dipc_functions_policy,
    error: *mut *mut dipc_error,
    change: impl FnOnce(Policy) -> Result<Policy>,
) -> dipc_status {
    let body = || {
        // SAFETY: the caller promises `policy` is NULL, or live and exclusive.
        let handle = unsafe { exclusive(policy, "policy") }?;
        handle.policy = change(handle.policy.clone())?;
        Ok(())
    };
    // SAFETY: the caller promises `error` is NULL or writable.
    unsafe { guard(error, body) }
}

/// Allows the module with this hash.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param hash    32 bytes: the SHA-256 of the module's bytes (dipc_function_module_hash()).
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `hash` is NULL or readable for 32 bytes;
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_allow_module(
    policy: *mut dipc_functions_policy,
    hash: *const u8,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `hash` is NULL or 32 bytes.
    let hash = || unsafe { thirty_two(hash, "hash") };
    let change = |policy: Policy| Ok(policy.allow_module(Hash(hash()?)));
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Allows modules that the owner of this key has signed (dipc_function_module_set_signature()).
/// Such a module may run for every client that the policy lets through, once one has sent it.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param key     32 bytes: a public key of Ed25519.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the bytes are no such key.
///
/// # Safety
///
/// As of dipc_functions_policy_allow_module(), for `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_allow_key(
    policy: *mut dipc_functions_policy,
    key: *const u8,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `key` is NULL or 32 bytes.
    let key = || unsafe { thirty_two(key, "key") };
    let change = |policy: Policy| {
        let allowed = policy.allow_key(&key()?);
        allowed.map_err(|_| invalid("the 32 bytes of key are no public key of Ed25519"))
    };
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Allows every module: the sandbox alone stands between its code and this machine.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_allow_any_module(
    policy: *mut dipc_functions_policy,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, |policy| Ok(policy.allow_any_module())) }
}

/// Lets clients with this principal alone ask for functions, and those of further calls. Without a
/// call of this, every client may that the server admits.
///
/// @param policy     Policy to change; exclusive during the call.
/// @param principal  Name that the server's authorizer gives (dipc_request_set_principal()); UTF-8.
///                   Copied.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the name is not UTF-8.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `principal` is NULL or NUL-terminated; `error`
/// is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_allow_principal(
    policy: *mut dipc_functions_policy,
    principal: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `principal` is NULL or NUL-terminated.
    let principal = || unsafe { text(principal, "principal") };
    let change = |policy: Policy| Ok(policy.allow_principal(principal()?));
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Lets functions that ask for it go on at a server. Without a call of this, no call leaves its
/// server.
///
/// A function chooses the URI, and this server asks in its own name: name servers alone that may be
/// reached by everybody who may run a function here. A beginning should contain the port's colon, as
/// tcp://node-1:*, since other hosts' names may begin alike.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param uri     A URI, whose parameters do not matter, or, with `*` at its end, all that begin so;
///                UTF-8. Copied.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the URI is not UTF-8.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `uri` is NULL or NUL-terminated; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_allow_peer(
    policy: *mut dipc_functions_policy,
    uri: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `uri` is NULL or NUL-terminated.
    let uri = || unsafe { text(uri, "uri") };
    let change = |policy: Policy| Ok(policy.allow_peer(uri()?));
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Sets a bound.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param limit   DIPC_FUNCTIONS_LIMIT_*.
/// @param value   The most that is allowed, in the unit of the limit.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: limit is unknown.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_set_limit(
    policy: *mut dipc_functions_policy,
    limit: i32,
    value: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let change = |mut policy: Policy| {
        let number = usize::try_from(value).unwrap_or(usize::MAX);
        match limit {
            DIPC_FUNCTIONS_LIMIT_FUEL => policy.limits.fuel = value,
            DIPC_FUNCTIONS_LIMIT_TIME_NS => policy.limits.time = Duration::from_nanos(value),
            DIPC_FUNCTIONS_LIMIT_MEMORY_BYTES => policy.limits.memory_bytes = value,
            DIPC_FUNCTIONS_LIMIT_OUTPUT_ROWS => policy.limits.output_rows = value,
            DIPC_FUNCTIONS_LIMIT_OUTPUT_BYTES => policy.limits.output_bytes = value,
            DIPC_FUNCTIONS_LIMIT_STEP_BYTES => policy.limits.step_bytes = value,
            DIPC_FUNCTIONS_LIMIT_MODULE_BYTES => policy.sandbox.module_bytes = number,
            DIPC_FUNCTIONS_LIMIT_MODULES => policy.modules.count = number,
            DIPC_FUNCTIONS_LIMIT_MODULES_BYTES => policy.modules.bytes = number,
            DIPC_FUNCTIONS_LIMIT_FOLDER_BYTES => policy.modules.folder_bytes = value,
            DIPC_FUNCTIONS_LIMIT_HOPS => {
                policy.limits.hops = u32::try_from(value).unwrap_or(u32::MAX);
            }
            DIPC_FUNCTIONS_LIMIT_STALL_NS => policy.limits.stall = Duration::from_nanos(value),
            _ => return Err(invalid(format!("limit is {limit}: there is no such limit"))),
        }
        Ok(policy)
    };
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Sets a folder for the modules' bytes, so that they outlive this process. Its files are checked
/// when they are read. Default: modules are kept in memory alone.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param folder  Path; dipc_functions_enable() makes the folder if it is missing.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: an empty path.
///
/// # Safety
///
/// `policy` is NULL, or live and used by nobody else; `folder` is NULL or NUL-terminated; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_set_folder(
    policy: *mut dipc_functions_policy,
    folder: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let change = |mut policy: Policy| {
        // SAFETY: the caller promises `folder` is NULL or NUL-terminated.
        policy.modules.folder = Some(unsafe { path(folder) }?);
        Ok(policy)
    };
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// Sets a folder for compiled code. Code from there runs unchecked: nobody but the server's user
/// may write there. Default: each process compiles for itself.
///
/// @param policy  Policy to change; exclusive during the call.
/// @param folder  Path; dipc_functions_enable() makes the folder if it is missing.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: an empty path.
///
/// # Safety
///
/// As of dipc_functions_policy_set_folder().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_set_code_folder(
    policy: *mut dipc_functions_policy,
    folder: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    let change = |mut policy: Policy| {
        // SAFETY: the caller promises `folder` is NULL or NUL-terminated.
        policy.sandbox.code_folder = Some(unsafe { path(folder) }?);
        Ok(policy)
    };
    // SAFETY: the caller promises `policy` is NULL, or live and exclusive, and `error` is NULL or
    // writable.
    unsafe { changing(policy, error, change) }
}

/// # Safety
///
/// `folder` is NULL or NUL-terminated.
unsafe fn path(folder: *const c_char) -> Result<PathBuf> {
    // SAFETY: the caller promises `folder` is NULL or NUL-terminated.
    let folder = unsafe { c_str(folder, "folder") }?;
    if folder.is_empty() {
        return Err(invalid("folder is an empty path"));
    }
    Ok(OsStr::from_bytes(folder.to_bytes()).into())
}

/// Frees a policy. Servers that were enabled with it go on. NULL does nothing.
///
/// @param policy  Policy, or NULL.
///
/// # Safety
///
/// `policy` is NULL, or came from dipc_functions_policy_new() and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_functions_policy_free(policy: *mut dipc_functions_policy) {
    // SAFETY: the caller promises that `policy` is NULL, or came from dipc_functions_policy_new()
    // and is not used any more.
    unsafe { guard_free(policy) };
}
