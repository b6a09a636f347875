"""The shared library: where it is looked for, its version, and its functions.

The package is written for one minor version of libdipc, since before 1.0 each may break the ABI. The library is looked
for in this order, and the first file that exists is taken:

1. the file that the environment variable ``DIPC_LIBRARY`` names (nothing else is tried then);
2. inside this package, if a wheel has it;
3. where the system's loader finds ``libdipc.so.0.1``: ``LD_LIBRARY_PATH``, ld.so.conf, /usr/lib.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import c_bool, c_char_p, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Callable

from . import _errors

VERSION = (0, 1)
"""Major and minor version of ``dipc.h`` that this package was written for."""

SONAME = f"libdipc.so.{VERSION[0]}.{VERSION[1]}"
VARIABLE = "DIPC_LIBRARY"


class LibraryError(ImportError):
    """libdipc is missing, cannot be loaded, or has another version. The text names what was tried."""


def _places() -> list[str]:
    named = os.environ.get(VARIABLE)
    if named:
        return [named]
    return [str(pathlib.Path(__file__).resolve().parent / "lib" / SONAME), SONAME]


def _load() -> tuple[ctypes.CDLL, ctypes.PyDLL, str]:
    """The library twice: calls that let go of the GIL, and calls that keep it."""
    tried = []
    for place in _places():
        try:
            return ctypes.CDLL(place), ctypes.PyDLL(place), place
        except OSError as error:
            tried.append(f"{place}: {error}")
    raise LibraryError(
        "libdipc was not found. Tried:\n  "
        + "\n  ".join(tried)
        + f"\nInstall libdipc (make install), or let {VARIABLE} name the file {SONAME}."
    )


def _check_version(library: ctypes.CDLL, place: str) -> int:
    try:
        ask = library.dipc_version
    except AttributeError:
        raise LibraryError(f"{place} is not libdipc: it has no dipc_version()") from None
    ask.restype, ask.argtypes = c_uint32, []
    number: int = ask()
    found = (number // 1_000_000, number // 1000 % 1000)
    if found != VERSION:
        raise LibraryError(
            f"{place} is libdipc {found[0]}.{found[1]}, and this package needs {VERSION[0]}.{VERSION[1]}. "
            f"Install the two of the same version, or let {VARIABLE} name another {SONAME}."
        )
    return number


_library, _library_with_gil, path = _load()
_number = _check_version(_library, path)
version = f"{_number // 1_000_000}.{_number // 1000 % 1000}.{_number % 1000}"

# What dipc.h declares, by name: the result, and the arguments less the `dipc_error **` that ends those
# whose result is a status. A test compares all of it with the header.
P, SIZE, U64, TEXT, BYTES = c_void_p, c_size_t, c_uint64, c_char_p, c_char_p
OUT = c_void_p
"""Where a result is written: `ctypes.byref(...)` or an address."""

STATUS_FUNCTIONS: dict[str, list[Any]] = {
    "dipc_transport_available": [TEXT],
    "dipc_log_set": [c_int32, P, P, P],
    "dipc_cancel_new": [OUT],
    "dipc_cancel_trigger": [P],
    "dipc_batch_check_schema": [P, P],
    "dipc_arena_options_new": [OUT],
    "dipc_arena_options_set_region_bytes": [P, U64],
    "dipc_arena_options_set_max_bytes": [P, U64],
    "dipc_arena_new": [c_int32, c_int64, P, OUT],
    "dipc_arena_alloc": [P, SIZE, OUT],
    "dipc_arena_dealloc": [P, P],
    "dipc_arena_stat": [P, c_int32, OUT],
    "dipc_client_options_new": [OUT],
    "dipc_client_options_set_any_user": [P, c_bool],
    "dipc_client_options_set_idle_timeout_ns": [P, U64],
    "dipc_client_options_set_max_idle": [P, SIZE],
    "dipc_client_options_set_connections": [P, SIZE],
    "dipc_client_options_set_tls": [P, TEXT, TEXT],
    "dipc_client_options_set_tls_ca": [P, TEXT],
    "dipc_client_options_set_tls_server_name": [P, TEXT],
    "dipc_client_options_set_transport": [P, TEXT, TEXT],
    "dipc_client_new": [P, OUT],
    "dipc_client_get": [P, OUT, SIZE, BYTES, SIZE, P, P, OUT],
    "dipc_client_describe": [P, OUT, SIZE, BYTES, SIZE, P, P, OUT],
    "dipc_client_list": [P, OUT, SIZE, BYTES, SIZE, P, P, OUT],
    "dipc_client_stat": [P, c_int32, OUT],
    "dipc_client_start": [P, c_int32, OUT, SIZE, BYTES, SIZE, P, P, OUT],
    "dipc_client_start_put": [P, OUT, SIZE, BYTES, SIZE, P, P, P, c_int32, OUT],
    "dipc_client_start_exchange": [P, OUT, SIZE, BYTES, SIZE, P, P, P, P, c_int32, OUT],
    "dipc_pending_fd": [P, OUT],
    "dipc_pending_try_stream": [P, OUT],
    "dipc_pending_try_description": [P, OUT],
    "dipc_pending_try_put": [P, OUT],
    "dipc_pending_try_exchange": [P, OUT, OUT],
    "dipc_client_put_open": [P, OUT, SIZE, BYTES, SIZE, P, P, P, c_int32, OUT],
    "dipc_client_exchange": [P, OUT, SIZE, BYTES, SIZE, P, P, P, P, c_int32, OUT, OUT],
    "dipc_put_push": [P, P, BYTES, SIZE, U64],
    "dipc_put_next_result": [P, U64, OUT],
    "dipc_put_result": [P, OUT, SIZE, OUT],
    "dipc_put_finish": [P, U64, OUT],
    "dipc_put_fail": [P, c_int32, TEXT],
    "dipc_put_headers": [P, OUT],
    "dipc_put_fd": [P, OUT],
    "dipc_put_stat": [P, c_int32, OUT],
    "dipc_put_options_new": [OUT],
    "dipc_put_options_set_connect_timeout_ns": [P, U64],
    "dipc_put_options_set_stall_timeout_ns": [P, U64],
    "dipc_put_options_set_deadline_ns": [P, U64],
    "dipc_put_options_set_headers": [P, P],
    "dipc_put_options_set_send_secrets": [P, c_bool],
    "dipc_put_options_set_checksums": [P, c_bool],
    "dipc_put_options_set_body": [P, c_int32],
    "dipc_put_options_set_compression": [P, c_int32],
    "dipc_put_options_set_connections": [P, c_uint16],
    "dipc_get_options_new": [OUT],
    "dipc_get_options_set_connect_timeout_ns": [P, U64],
    "dipc_get_options_set_stall_timeout_ns": [P, U64],
    "dipc_get_options_set_window": [P, U64, U64],
    "dipc_get_options_set_lent_limit_bytes": [P, U64],
    "dipc_get_options_set_message_limit_bytes": [P, U64],
    "dipc_get_options_set_device": [P, c_int32, c_int64],
    "dipc_get_options_set_validation": [P, c_int32],
    "dipc_get_options_set_spin_ns": [P, U64],
    "dipc_get_options_set_connections": [P, c_uint32],
    "dipc_get_options_set_deadline_ns": [P, U64],
    "dipc_get_options_set_headers": [P, P],
    "dipc_get_options_set_send_secrets": [P, c_bool],
    "dipc_get_options_set_checksums": [P, c_bool],
    "dipc_get_options_set_columns": [P, OUT, SIZE],
    "dipc_get_options_set_range": [P, U64, U64],
    "dipc_get_options_set_filter": [P, BYTES, SIZE],
    "dipc_headers_new": [OUT],
    "dipc_headers_add": [P, TEXT, BYTES, SIZE],
    "dipc_headers_key": [P, SIZE, OUT, SIZE, OUT],
    "dipc_headers_value": [P, SIZE, OUT, SIZE, OUT],
    "dipc_description_new": [OUT],
    "dipc_description_schema": [P, OUT],
    "dipc_description_set_schema": [P, P],
    "dipc_description_set_total": [P, c_int32, U64],
    "dipc_description_headers": [P, OUT],
    "dipc_description_add_endpoint": [P, BYTES, SIZE, P, SIZE, U64, U64],
    "dipc_description_endpoint_descriptor": [P, SIZE, OUT, SIZE, OUT],
    "dipc_description_endpoint_uri": [P, SIZE, SIZE, OUT, SIZE, OUT],
    "dipc_description_to_stream": [P, OUT],
    "dipc_request_ticket": [P, OUT, SIZE, OUT],
    "dipc_request_peer": [P, OUT, SIZE, OUT],
    "dipc_request_peer_transport": [P, OUT, SIZE, OUT],
    "dipc_request_peer_address": [P, OUT, SIZE, OUT],
    "dipc_request_peer_certificate": [P, c_int32, OUT, SIZE, OUT],
    "dipc_request_principal": [P, OUT, SIZE, OUT],
    "dipc_request_set_principal": [P, TEXT],
    "dipc_request_allow": [P],
    "dipc_request_cancel_fd": [P, OUT],
    "dipc_request_fd": [P, OUT],
    "dipc_request_headers": [P, OUT],
    "dipc_request_add_headers": [P, P],
    "dipc_request_source_schema": [P, OUT],
    "dipc_request_source": [P, OUT],
    "dipc_request_result": [P, U64, BYTES, SIZE],
    "dipc_request_start": [P, P, c_int32],
    "dipc_request_push": [P, P, BYTES, SIZE, U64],
    "dipc_request_finish": [P, U64],
    "dipc_request_fail": [P, c_int32, TEXT],
    "dipc_request_set_label": [P, TEXT],
    "dipc_request_column": [P, SIZE, OUT, SIZE, OUT],
    "dipc_request_filter": [P, OUT, SIZE, OUT],
    "dipc_request_take_selection": [P],
    "dipc_server_options_new": [OUT],
    "dipc_server_options_set_max_streams": [P, SIZE],
    "dipc_server_options_set_max_providers": [P, SIZE],
    "dipc_server_options_set_max_connections": [P, SIZE],
    "dipc_server_options_set_max_connections_per_peer": [P, SIZE],
    "dipc_server_options_set_max_streams_per_peer": [P, SIZE],
    "dipc_server_options_set_max_streams_per_connection": [P, SIZE],
    "dipc_server_options_set_max_request_bytes": [P, U64],
    "dipc_server_options_set_credit_timeout_ns": [P, U64],
    "dipc_server_options_set_handshake_timeout_ns": [P, U64],
    "dipc_server_options_set_request_timeout_ns": [P, U64],
    "dipc_server_options_set_idle_timeout_ns": [P, U64],
    "dipc_server_options_set_authorizer_pull": [P, c_bool],
    "dipc_server_options_set_max_region_bytes": [P, U64],
    "dipc_server_options_set_region_bytes": [P, U64],
    "dipc_server_options_set_region_idle_ns": [P, U64],
    "dipc_server_options_set_inline_bytes": [P, U64],
    "dipc_server_options_set_lent_limit_bytes": [P, U64],
    "dipc_server_options_set_any_user": [P, c_bool],
    "dipc_server_options_set_allow_remote": [P, c_bool],
    "dipc_server_options_set_trusted_network": [P, c_bool],
    "dipc_server_options_set_tls": [P, TEXT, TEXT],
    "dipc_server_options_set_tls_client_ca": [P, TEXT],
    "dipc_server_options_set_transport": [P, TEXT, TEXT],
    "dipc_server_options_set_spin_ns": [P, U64],
    "dipc_server_options_set_body": [P, c_int32],
    "dipc_server_options_set_compression": [P, c_int32],
    "dipc_server_new": [P, OUT],
    "dipc_server_listen": [P, TEXT, OUT, SIZE, OUT],
    "dipc_server_listen_fd": [P, TEXT, c_int32, OUT, SIZE, OUT],
    "dipc_server_drain": [P, P, SIZE],
    "dipc_server_reload_tls": [P],
    "dipc_server_location": [P, c_int32, OUT, SIZE, OUT],
    "dipc_server_serve_pull": [P, BYTES, SIZE],
    "dipc_server_set_handler": [P, P, P, P, c_uint32],
    "dipc_server_set_handler_pull": [P],
    "dipc_server_set_description": [P, BYTES, SIZE, P],
    "dipc_server_publish": [P, BYTES, SIZE, P, P, SIZE],
    "dipc_server_replace": [P, BYTES, SIZE, P, P, SIZE],
    "dipc_server_withdraw": [P, BYTES, SIZE],
    "dipc_server_ticket": [P, SIZE, OUT, SIZE, OUT],
    "dipc_server_next_request": [P, U64, P, OUT],
    "dipc_server_request_fd": [P, OUT],
    "dipc_server_drain_releases": [P, OUT],
    "dipc_server_stat": [P, c_int32, OUT],
    "dipc_server_stats_text": [P, OUT, SIZE, OUT],
    "dipc_server_stop": [P, U64],
    "dipc_stream_status": [P],
    "dipc_stream_metadata": [P, OUT, SIZE, OUT],
    "dipc_stream_stat": [P, c_int32, OUT],
    "dipc_stream_headers": [P, OUT],
    "dipc_stream_to_host": [P, OUT],
    "dipc_stream_to_device": [P, c_int32, c_int64, OUT],
    "dipc_stream_from_host": [P, OUT],
    "dipc_stream_fd": [P, OUT],
    "dipc_stream_try_next": [P, OUT],
}

PLAIN_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dipc_status_name": (TEXT, [c_int32]),
    "dipc_error_code": (c_int32, [P]),
    "dipc_error_text": (TEXT, [P]),
    "dipc_error_os_errno": (c_int32, [P]),
    "dipc_error_retry_after_ns": (U64, [P]),
    "dipc_error_free": (None, [P]),
    "dipc_version": (c_uint32, []),
    "dipc_cancel_free": (None, [P]),
    "dipc_arena_options_free": (None, [P]),
    "dipc_arena_free": (None, [P]),
    "dipc_client_free": (None, [P]),
    "dipc_client_options_free": (None, [P]),
    "dipc_get_options_free": (None, [P]),
    "dipc_put_options_free": (None, [P]),
    "dipc_put_is_over": (c_bool, [P]),
    "dipc_pending_free": (None, [P]),
    "dipc_put_free": (None, [P]),
    "dipc_headers_count": (SIZE, [P]),
    "dipc_headers_free": (None, [P]),
    "dipc_description_total": (U64, [P, c_int32]),
    "dipc_description_endpoint_count": (SIZE, [P]),
    "dipc_description_endpoint_total": (U64, [P, SIZE, c_int32]),
    "dipc_description_endpoint_uri_count": (SIZE, [P, SIZE]),
    "dipc_description_free": (None, [P]),
    "dipc_request_verb": (c_int32, [P]),
    "dipc_request_peer_id": (c_int64, [P, c_int32]),
    "dipc_request_time_left_ns": (U64, [P]),
    "dipc_request_is_cancelled": (c_bool, [P]),
    "dipc_request_is_undecided": (c_bool, [P]),
    "dipc_request_selects_columns": (c_bool, [P]),
    "dipc_request_column_count": (SIZE, [P]),
    "dipc_request_first_row": (U64, [P]),
    "dipc_request_rows": (U64, [P]),
    "dipc_request_is_complete": (c_bool, [P]),
    "dipc_request_free": (None, [P]),
    "dipc_server_is_ready": (c_bool, [P]),
    "dipc_server_free": (None, [P]),
    "dipc_server_options_free": (None, [P]),
}


_WAIT_FOR_NOTHING = (
    "dipc_description_", "dipc_error_", "dipc_headers_", "dipc_request_allow", "dipc_request_column",
    "dipc_request_filter", "dipc_request_first_row", "dipc_request_headers", "dipc_request_is_complete",
    "dipc_request_is_undecided",
    "dipc_request_peer", "dipc_request_principal", "dipc_request_rows", "dipc_request_selects_columns",
    "dipc_request_set_principal", "dipc_request_take_selection", "dipc_request_time_left_ns", "dipc_request_verb",
    "dipc_stream_fd", "dipc_stream_headers", "dipc_stream_metadata",
    "dipc_stream_stat",
)  # fmt: skip


def keeps_gil(name: str) -> bool:
    """Functions that wait for nothing. If several threads run, getting the GIL back takes far longer than the call."""
    return "_options_" in name or name.startswith(_WAIT_FOR_NOTHING)


def _declare(name: str, result: Any, arguments: list[Any]) -> Callable[..., Any]:
    try:
        function = getattr(_library_with_gil if keeps_gil(name) else _library, name)
    except AttributeError:
        raise LibraryError(
            f"{path} is libdipc {version}, but older than this package: it has no {name}(). Install the two together."
        ) from None
    function.restype, function.argtypes = result, arguments
    return function  # type: ignore[no-any-return]


_plain = {name: _declare(name, *shape) for name, shape in PLAIN_FUNCTIONS.items()}
_status = {name: _declare(name, c_int32, [*shape, c_void_p]) for name, shape in STATUS_FUNCTIONS.items()}


def plain(name: str) -> Callable[..., Any]:
    """A function that cannot fail, as a ctypes function. It runs without the GIL if it may wait."""
    return _plain[name]


def address(name: str) -> int | None:
    """Where a function is, for other native code."""
    return ctypes.cast(getattr(_library, name), c_void_p).value


_error_code, _error_text = plain("dipc_error_code"), plain("dipc_error_text")
_error_os_errno, _error_free = plain("dipc_error_os_errno"), plain("dipc_error_free")
_error_retry_after = plain("dipc_error_retry_after_ns")


def raised(error: c_void_p, status: int) -> _errors.DipcError:
    """The exception for a failed call; frees the library's error."""
    try:
        code = _error_code(error) if error else status
        text = _error_text(error).decode() if error else status_name(status)
        return _errors.from_status(code, text, _error_os_errno(error), _error_retry_after(error))
    finally:
        _error_free(error)


def checked(name: str) -> Callable[..., int]:
    """A function that returns a status: called without its last argument, it raises what fails.

    The call runs without the GIL if it may wait. It returns 0 or a positive number for progress.
    """
    function = _status[name]

    def call(*arguments: Any) -> int:
        error = c_void_p()
        status: int = function(*arguments, ctypes.byref(error))
        if status < 0:
            raise raised(error, status)
        return status

    return call


def status_name(status: int) -> str:
    """The name of a status as dipc.h has it: ``DIPC_ERR_NOT_FOUND``."""
    name: bytes = _plain["dipc_status_name"](status)
    return name.decode()


def text_of(call: Callable[..., int], *arguments: Any, size: int = 1024) -> str:
    """What a function writes into a buffer of `size` bytes (DIPC_URI_BYTES by default)."""
    return bytes_of(call, *arguments, size=size).decode()


def bytes_of(call: Callable[..., int], *arguments: Any, size: int) -> bytes:
    """As :func:`text_of`, for bytes; larger ones get the buffer that they need."""
    length = c_size_t()
    while True:
        buffer = ctypes.create_string_buffer(size)
        try:
            call(*arguments, buffer, size, ctypes.byref(length))
        except _errors.BufferTooSmallError:
            size = length.value + 1
        else:
            return buffer.raw[: length.value]


def number_of(call: Callable[..., int], *arguments: Any) -> int:
    """A number that a function writes into a uint64."""
    out = c_uint64()
    call(*arguments, ctypes.byref(out))
    return out.value
