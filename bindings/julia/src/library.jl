# Finding libdipc and its functions. Nothing is loaded before the first call, so that `using Dipc`
# works everywhere and a fault of the library is an exception of that call.

# The version of dipc.h that this package is written for. Before 1.0 each minor version may break
# the ABI.
const HEADER_VERSION = v"0.1"

const FUNCTION_NAMES = (
    :dipc_arena_alloc, :dipc_arena_dealloc, :dipc_arena_free, :dipc_arena_new,
    :dipc_arena_options_free, :dipc_arena_options_new, :dipc_arena_options_set_max_bytes,
    :dipc_arena_options_set_region_bytes, :dipc_arena_stat,
    :dipc_batch_set_metadata,
    :dipc_cancel_free, :dipc_cancel_is_triggered, :dipc_cancel_new, :dipc_cancel_trigger,
    :dipc_client_free, :dipc_client_new, :dipc_client_start, :dipc_client_start_exchange, :dipc_client_start_put,
    :dipc_client_options_free, :dipc_client_options_new, :dipc_client_options_set_any_user,
    :dipc_client_options_set_connections,
    :dipc_client_options_set_idle_timeout_ns, :dipc_client_options_set_max_idle, :dipc_client_options_set_tls,
    :dipc_client_options_set_tls_ca, :dipc_client_options_set_tls_server_name, :dipc_client_options_set_transport,
    :dipc_client_stat,
    :dipc_description_add_endpoint, :dipc_description_endpoint_count,
    :dipc_description_endpoint_descriptor, :dipc_description_endpoint_total,
    :dipc_description_endpoint_uri, :dipc_description_endpoint_uri_count, :dipc_description_free,
    :dipc_description_headers, :dipc_description_new, :dipc_description_schema,
    :dipc_description_set_schema, :dipc_description_set_total, :dipc_description_to_stream,
    :dipc_description_total,
    :dipc_error_code, :dipc_error_free, :dipc_error_os_errno, :dipc_error_retry_after_ns, :dipc_error_text,
    :dipc_get_options_free, :dipc_get_options_new, :dipc_get_options_set_checksums, :dipc_get_options_set_columns,
    :dipc_get_options_set_connect_timeout_ns, :dipc_get_options_set_connections,
    :dipc_get_options_set_deadline_ns, :dipc_get_options_set_device, :dipc_get_options_set_filter,
    :dipc_get_options_set_headers,
    :dipc_get_options_set_lent_limit_bytes, :dipc_get_options_set_message_limit_bytes,
    :dipc_get_options_set_range, :dipc_get_options_set_send_secrets, :dipc_get_options_set_spin_ns,
    :dipc_get_options_set_stall_timeout_ns,
    :dipc_get_options_set_validation, :dipc_get_options_set_window,
    :dipc_process_get_stats,
    :dipc_pending_fd, :dipc_pending_free, :dipc_pending_try_description, :dipc_pending_try_exchange,
    :dipc_pending_try_put, :dipc_pending_try_stream, :dipc_put_fail, :dipc_put_fd, :dipc_put_finish, :dipc_put_free,
    :dipc_put_headers, :dipc_put_is_over, :dipc_put_next_result, :dipc_put_options_free,
    :dipc_put_options_new, :dipc_put_options_set_body, :dipc_put_options_set_checksums,
    :dipc_put_options_set_compression,
    :dipc_put_options_set_connect_timeout_ns, :dipc_put_options_set_connections,
    :dipc_put_options_set_deadline_ns, :dipc_put_options_set_headers,
    :dipc_put_options_set_send_secrets, :dipc_put_options_set_stall_timeout_ns, :dipc_put_push,
    :dipc_put_result, :dipc_put_stat,
    :dipc_headers_add, :dipc_headers_count, :dipc_headers_free, :dipc_headers_key,
    :dipc_headers_new, :dipc_headers_value, :dipc_histogram_upper_bound,
    :dipc_log_set,
    :dipc_request_add_headers, :dipc_request_allow, :dipc_request_cancel_fd, :dipc_request_column,
    :dipc_request_column_count, :dipc_request_fail, :dipc_request_fd, :dipc_request_filter,
    :dipc_request_finish, :dipc_request_first_row,
    :dipc_request_free, :dipc_request_headers, :dipc_request_is_cancelled,
    :dipc_request_is_complete, :dipc_request_is_undecided, :dipc_request_peer, :dipc_request_peer_address, :dipc_request_peer_certificate,
    :dipc_request_peer_id, :dipc_request_principal, :dipc_request_set_principal,
    :dipc_request_peer_transport, :dipc_request_push, :dipc_request_rows, :dipc_request_selects_columns,
    :dipc_request_start, :dipc_request_take_selection, :dipc_request_ticket, :dipc_request_time_left_ns,
    :dipc_request_result, :dipc_request_set_label, :dipc_request_source, :dipc_request_source_schema, :dipc_request_verb,
    :dipc_server_drain, :dipc_server_drain_releases, :dipc_server_free,
    :dipc_server_get_label_stats, :dipc_server_get_stats, :dipc_server_is_ready, :dipc_server_listen,
    :dipc_server_listen_fd, :dipc_server_location,
    :dipc_server_new, :dipc_server_next_request, :dipc_server_options_free,
    :dipc_server_options_new, :dipc_server_options_set_allow_remote, :dipc_server_options_set_any_user,
    :dipc_server_options_set_authorizer_pull, :dipc_server_options_set_body,
    :dipc_server_options_set_compression, :dipc_server_options_set_credit_timeout_ns,
    :dipc_server_options_set_handshake_timeout_ns, :dipc_server_options_set_idle_timeout_ns,
    :dipc_server_options_set_inline_bytes, :dipc_server_options_set_lent_limit_bytes,
    :dipc_server_options_set_max_connections, :dipc_server_options_set_max_connections_per_peer,
    :dipc_server_options_set_max_providers, :dipc_server_options_set_max_region_bytes,
    :dipc_server_options_set_max_request_bytes, :dipc_server_options_set_max_streams,
    :dipc_server_options_set_max_streams_per_connection,
    :dipc_server_options_set_max_streams_per_peer, :dipc_server_options_set_put_message_limit_bytes,
    :dipc_server_options_set_put_stall_timeout_ns, :dipc_server_options_set_put_validation,
    :dipc_server_options_set_put_window, :dipc_server_options_set_request_timeout_ns,
    :dipc_server_options_set_region_bytes, :dipc_server_options_set_region_idle_ns,
    :dipc_server_options_set_spin_ns, :dipc_server_options_set_tls, :dipc_server_options_set_tls_client_ca,
    :dipc_server_options_set_transport, :dipc_server_options_set_trusted_network,
    :dipc_server_publish, :dipc_server_reload_tls, :dipc_server_replace, :dipc_server_request_fd, :dipc_server_serve_pull,
    :dipc_server_set_description, :dipc_server_set_handler, :dipc_server_set_handler_pull,
    :dipc_server_stat, :dipc_server_stats_text, :dipc_server_stop, :dipc_server_ticket, :dipc_server_withdraw,
    :dipc_status_name,
    :dipc_stream_fd, :dipc_stream_headers, :dipc_stream_metadata, :dipc_stream_stat,
    :dipc_stream_status, :dipc_stream_try_next,
    :dipc_transport_available,
    :dipc_version, :dipc_version_string,
)

# The library and the address of each of its functions; zeros until it is loaded.
@eval mutable struct Functions
    handle::Ptr{Cvoid}
    path::String
    $((:($name::Ptr{Cvoid}) for name in FUNCTION_NAMES)...)
end

const FUNCTIONS = Functions(C_NULL, "", (C_NULL for _ in FUNCTION_NAMES)...)
const LOADING = ReentrantLock()

"""
    @c dipc_name

The address of a function of libdipc, for `ccall`. Loads the library, or throws a `DipcError`.
"""
macro c(name)
    name in FUNCTION_NAMES || error("$name is not in FUNCTION_NAMES")
    return :(functions().$name)
end

@inline function functions()
    FUNCTIONS.handle == C_NULL && load_library()
    return FUNCTIONS
end

# Where libdipc is looked for, in this order: the files that the two variables name, then
# libdipc_jll, if the program has loaded it, then what the system finds: LD_LIBRARY_PATH,
# ld.so.cache.
function library_candidates()
    named = Base.get(ENV, "DIPC_LIBRARY", "")
    isempty(named) || return [named]
    soname = "libdipc.so.$(HEADER_VERSION.major).$(HEADER_VERSION.minor)"
    prefix = Base.get(ENV, "DIPC_PREFIX", "")
    isempty(prefix) || return [joinpath(prefix, folder, soname) for folder in ("lib", "lib64")]
    packaged = packaged_library()
    packaged === nothing || return [packaged]
    return [soname, "libdipc.so"]
end

# The library that Julia's package manager has installed (jll/build_tarballs.jl).
function packaged_library()
    for (id, package) in Base.loaded_modules
        id.name == "libdipc_jll" && isdefined(package, :libdipc_path) &&
            return string(getfield(package, :libdipc_path))
    end
    return nothing
end

function load_library()
    lock(LOADING) do
        FUNCTIONS.handle == C_NULL || return
        candidates = library_candidates()
        for path in candidates
            handle = Libdl.dlopen(path, Libdl.RTLD_NOW | Libdl.RTLD_LOCAL; throw_error = false)
            handle === nothing && continue
            return adopt_library(handle)
        end
        throw(DipcError(ERR_UNSUPPORTED, "cannot load libdipc: tried $(join(candidates, ", "))" *
            reason_not_loaded(last(candidates)) * "; install it, or name the file in DIPC_LIBRARY" *
            " or the folder above its lib in DIPC_PREFIX, or load libdipc_jll"))
    end
end

# The loader's own text, which helps if the file exists but is no library.
function reason_not_loaded(path)
    try
        Libdl.dlopen(path)
    catch exception
        return exception isa ErrorException ? " ($(strip(exception.msg)))" : ""
    end
    return ""
end

function adopt_library(handle)
    path = Libdl.dlpath(handle)
    version = Libdl.dlsym(handle, :dipc_version; throw_error = false)
    version === nothing &&
        throw(DipcError(ERR_UNSUPPORTED, "$path is not libdipc: it has no dipc_version"))
    number = ccall(version, UInt32, ())
    major, minor = number ÷ 1_000_000, number ÷ 1_000 % 1_000
    (major, minor) == (HEADER_VERSION.major, HEADER_VERSION.minor) ||
        throw(DipcError(ERR_UNSUPPORTED, "$path is libdipc $major.$minor.$(number % 1000), and this" *
            " package is for $(HEADER_VERSION.major).$(HEADER_VERSION.minor): install the package" *
            " that came with the library, or name another library in DIPC_LIBRARY"))
    for name in FUNCTION_NAMES
        address = Libdl.dlsym(handle, name; throw_error = false)
        address === nothing &&
            throw(DipcError(ERR_UNSUPPORTED, "$path has no $name: it is older than this package"))
        setfield!(FUNCTIONS, name, address)
    end
    FUNCTIONS.path = path
    # Last, because this variable says that the others are set.
    FUNCTIONS.handle = handle
    return
end

"""
    Dipc.version() -> VersionNumber

The version of the libdipc that is loaded.
"""
version() = VersionNumber(unsafe_string(ccall(@c(dipc_version_string), Cstring, ())))

"""
    Dipc.library() -> String

The file that libdipc was loaded from.
"""
library() = functions().path
