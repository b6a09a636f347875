"""As much of libdipc's C API as the tests need, through ctypes, joined with pyarrow.

The library is the one that DIPC_LIBRARY names, by default that of a debug build.
"""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import pyarrow as pa

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("DIPC_LIBRARY", str(ROOT / "target/debug/libdipc.so"))

# Of dipc.h.
BODY_AUTO, BODY_PACKED = 0, 1
VALIDATION_STRUCTURE, VALIDATION_FULL = 1, 2
ROLES = {"both": 0, "metadata": 1, "data": 2}
STAT_BYTES_LENT, STAT_BYTES_COPIED, STAT_BYTES_SENT = 5, 6, 7
ERR_NOT_FOUND, ERR_PROVIDER = -5, -19


class ArrowSchema(ctypes.Structure):
    _fields_ = [
        ("format", c_void_p), ("name", c_void_p), ("metadata", c_void_p), ("flags", c_int64),
        ("n_children", c_int64), ("children", c_void_p), ("dictionary", c_void_p),
        ("release", c_void_p), ("private_data", c_void_p),
    ]  # fmt: skip


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64),
        ("n_children", c_int64), ("buffers", c_void_p), ("children", c_void_p),
        ("dictionary", c_void_p), ("release", c_void_p), ("private_data", c_void_p),
        ("device_id", c_int64), ("device_type", c_int32), ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    ]  # fmt: skip


class ArrowArrayStream(ctypes.Structure):
    _fields_ = [
        ("get_schema", c_void_p), ("get_next", c_void_p), ("get_last_error", c_void_p),
        ("release", ctypes.CFUNCTYPE(None, c_void_p)), ("private_data", c_void_p),
    ]  # fmt: skip


class ArrowDeviceArrayStream(ctypes.Structure):
    _fields_ = [("device_type", c_int32), *ArrowArrayStream._fields_]


PROVIDER = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(ArrowDeviceArrayStream))

_lib = ctypes.CDLL(LIBRARY)
_lib.dipc_error_text.restype = c_char_p
_lib.dipc_error_text.argtypes = [c_void_p]
_lib.dipc_error_code.argtypes = [c_void_p]
_lib.dipc_error_free.restype = None
_lib.dipc_error_free.argtypes = [c_void_p]


class Error(Exception):
    """A dipc_error: its text, and its status in `code`."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _function(name, *argtypes):
    """An export that returns a status and takes an error last."""
    function = getattr(_lib, name)
    function.restype = c_int32
    function.argtypes = [*argtypes, POINTER(c_void_p)]

    def call(*arguments):
        error = c_void_p()
        status = function(*arguments, byref(error))
        if status < 0:
            text = _lib.dipc_error_text(error).decode()
            assert _lib.dipc_error_code(error) == status
            _lib.dipc_error_free(error)
            raise Error(status, text)
        return status

    return call


def _free(name):
    function = getattr(_lib, name)
    function.restype = None
    function.argtypes = [c_void_p]
    return function


_P = c_void_p
_server_options_new = _function("dipc_server_options_new", POINTER(_P))
_server_options_set_body = _function("dipc_server_options_set_body", _P, c_int32)
_server_options_set_inline_bytes = _function("dipc_server_options_set_inline_bytes", _P, c_uint64)
_server_options_free = _free("dipc_server_options_free")
_server_new = _function("dipc_server_new", _P, POINTER(_P))
_server_listen = _function("dipc_server_listen", _P, c_char_p, _P, c_size_t, POINTER(c_size_t))
_server_location = _function("dipc_server_location", _P, c_int32, _P, c_size_t, POINTER(c_size_t))
_server_serve = _function("dipc_server_serve", _P, c_char_p, c_size_t, PROVIDER, _P, _P, c_uint32)
_server_publish = _function("dipc_server_publish", _P, c_char_p, c_size_t, _P, _P, c_size_t)
_server_stat = _function("dipc_server_stat", _P, c_int32, POINTER(c_uint64))
_server_stop = _function("dipc_server_stop", _P, c_uint64)
_server_free = _free("dipc_server_free")
_request_fail = _function("dipc_request_fail", _P, c_int32, c_char_p)
_client_new = _function("dipc_client_new", _P, POINTER(_P))
_client_get = _function("dipc_client_get", _P, POINTER(c_char_p), c_size_t, c_char_p, c_size_t, _P, _P, _P)
_client_free = _free("dipc_client_free")
_get_options_new = _function("dipc_get_options_new", POINTER(_P))
_get_options_set_validation = _function("dipc_get_options_set_validation", _P, c_int32)
_get_options_set_stall_timeout_ns = _function("dipc_get_options_set_stall_timeout_ns", _P, c_uint64)
_get_options_free = _free("dipc_get_options_free")
_stream_to_host = _function("dipc_stream_to_host", _P, _P)
_stream_from_host = _function("dipc_stream_from_host", _P, _P)


def _text(call, *arguments):
    """A string that comes out into a buffer of the caller's."""
    buffer, length = ctypes.create_string_buffer(1024), c_size_t()
    call(*arguments, buffer, len(buffer), byref(length))
    return buffer.raw[: length.value].decode()


class Server:
    """A server of pyarrow's batches and readers. Bodies of every size are lent where `body` allows."""

    def __init__(self, body=BODY_AUTO):
        options = _P()
        _server_options_new(byref(options))
        _server_options_set_body(options, body)
        _server_options_set_inline_bytes(options, 0)
        self._handle = _P()
        _server_new(options, byref(self._handle))
        _server_options_free(options)
        self._callbacks = []

    def listen(self, uri):
        return _text(_server_listen, self._handle, uri.encode())

    def location(self, role):
        return _text(_server_location, self._handle, ROLES[role])

    def publish(self, ticket, schema, batches):
        """Serves batches; ownership of the structs moves to the library."""
        c_schema = ArrowSchema()
        schema._export_to_c(ctypes.addressof(c_schema))
        arrays = (ArrowDeviceArray * max(1, len(batches)))()
        for array, batch in zip(arrays, batches):
            batch._export_to_c_device(ctypes.addressof(array))
        ticket = ticket.encode()
        _server_publish(self._handle, ticket, len(ticket), byref(c_schema), arrays, len(batches))
        assert not c_schema.release and not any(array.release for array in arrays)

    def serve(self, ticket, make_reader):
        """Serves what `make_reader()` gives, called once for each stream, on a thread of the library."""

        def provide(_userdata, request, out):
            try:
                host = ArrowArrayStream()
                make_reader()._export_to_c(ctypes.addressof(host))
                _stream_from_host(byref(host), out)
                return 0
            except Exception as error:
                _request_fail(request, 77, str(error).encode())
                return 77

        callback = PROVIDER(provide)
        self._callbacks.append(callback)
        ticket = ticket.encode()
        _server_serve(self._handle, ticket, len(ticket), callback, None, None, 0)

    def stat(self, which):
        value = c_uint64()
        _server_stat(self._handle, which, byref(value))
        return value.value

    def close(self):
        _server_stop(self._handle, 10 * 10**9)
        _server_free(self._handle)


class Client:
    """A client whose streams are pyarrow's readers."""

    def __init__(self):
        self._handle = _P()
        _client_new(None, byref(self._handle))

    def get(self, uris, ticket, validation=VALIDATION_STRUCTURE):
        ticket = ticket.encode()
        options = _P()
        _get_options_new(byref(options))
        _get_options_set_validation(options, validation)
        # A test that hangs fails, rather.
        _get_options_set_stall_timeout_ns(options, 30 * 10**9)
        texts = (c_char_p * len(uris))(*(uri.encode() for uri in uris))
        device, host = ArrowDeviceArrayStream(), ArrowArrayStream()
        try:
            _client_get(self._handle, texts, len(uris), ticket, len(ticket), options, None, byref(device))
        finally:
            _get_options_free(options)
        _stream_to_host(byref(device), byref(host))
        assert not device.release
        return pa.RecordBatchReader._import_from_c(ctypes.addressof(host))

    def close(self):
        _client_free(self._handle)
