"""The package's own small library (``src/native``): callbacks of C, and finalizers, which must not be Python."""

from __future__ import annotations

import ctypes
import pathlib
from ctypes import c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_void_p, py_object
from typing import Any

from . import _library

path = pathlib.Path(__file__).resolve().parent / "lib" / "libdipc_python.so"


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise _library.LibraryError(
            f"a part of the package dipc is missing: {error}. Install it by pip, which builds it (bindings/python)."
        ) from error


class _Functions(ctypes.Structure):
    _fields_ = [
        ("capsule_name", c_void_p), ("capsule_pointer", c_void_p), ("start", c_void_p),
        ("push", c_void_p), ("finish", c_void_p), ("is_complete", c_void_p), ("dealloc", c_void_p),
        ("save_thread", c_void_p), ("restore_thread", c_void_p),
    ]  # fmt: skip


_native = _load()


class Tensor(ctypes.Structure):
    """A column as DLPack has it."""

    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
        ("type_code", c_uint8), ("type_bits", c_uint8),
    ]  # fmt: skip


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_native, name)
    function.restype, function.argtypes = result, arguments
    return function


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


_function("dipc_python_init", None, c_void_p)(
    ctypes.byref(
        _Functions(
            _address(ctypes.pythonapi.PyCapsule_GetName),
            _address(ctypes.pythonapi.PyCapsule_GetPointer),
            _library.address("dipc_request_start"),
            _library.address("dipc_request_push"),
            _library.address("dipc_request_finish"),
            _library.address("dipc_request_is_complete"),
            _library.address("dipc_arena_dealloc"),
            _address(ctypes.pythonapi.PyEval_SaveThread),
            _address(ctypes.pythonapi.PyEval_RestoreThread),
        )
    )
)

new = _function("dipc_python_new", c_void_p, c_size_t)
destroy_capsule = _address(_native.dipc_python_destroy)
move_stream = _function("dipc_python_move_stream", None, c_void_p, c_void_p)
lend_stream = _function("dipc_python_lend_stream", c_bool, c_void_p, c_void_p, c_void_p)
send = _function("dipc_python_send", c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
_share = {kind: _function(f"dipc_python_share_{kind}", c_void_p, c_void_p) for kind in ("schema", "array")}
_give = {kind: _function(f"dipc_python_give_{kind}", c_bool, c_void_p, c_void_p) for kind in ("schema", "array")}
drop = _native.dipc_python_drop
dealloc = _native.dipc_python_dealloc
tell = _native.dipc_python_tell
dlpack = _function("dipc_python_dlpack", c_void_p, c_void_p, c_int64, c_void_p, c_bool, c_bool)
destroy_dlpack = _address(_native.dipc_python_undlpack)
log_event, log_ended = _address(_native.dipc_python_log_event), _address(_native.dipc_python_log_ended)
tell_to = _function("dipc_python_tell_to", None, c_int)

_own = _function("dipc_python_own", c_void_p, c_void_p, c_void_p, c_bool)
_free = _function("dipc_python_free", None, c_void_p)
_disown = _address(_native.dipc_python_disown)
_OWNER = b"dipc_owner"

new_capsule = ctypes.pythonapi["PyCapsule_New"]
new_capsule.restype, new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
# A capsule keeps the address of its name, and can outlive this module.
ctypes.pythonapi.Py_IncRef(py_object(_OWNER))


class Owner:
    """Owns something of C's, and frees it when it dies itself.

    It does so without Python: in a ``__del__`` or a ``weakref`` callback on the main thread a signal's handler can
    run, and the KeyboardInterrupt that it raises there is lost.
    """

    __slots__ = ("_address", "_capsule")

    def __init__(self, pointer: int, free: Any, *, waits: bool) -> None:
        """`free` is a function of C's that takes `pointer`; if it `waits` it is called without the GIL."""
        self._address: int | None = _own(pointer, _address(free), waits)
        if self._address is None:
            raise MemoryError
        self._capsule = new_capsule(self._address, _OWNER, _disown)

    def free(self) -> None:
        """Frees it now, without the GIL."""
        _free(self._address)


class Shared:
    """A schema or device array of which any number of copies can be given away."""

    def __init__(self, kind: str, source: ctypes.Structure) -> None:
        """Moves out of `source`. `kind` is "schema" or "array"."""
        self._give = _give[kind]
        self._type = type(source)
        self._pointer: int | None = _share[kind](ctypes.addressof(source))
        if self._pointer is None:
            raise MemoryError
        self._owner = Owner(self._pointer, drop, waits=False)

    def give(self) -> Any:
        """A new struct for one more consumer, owned by the caller."""
        out = self._type()
        if not self._give(self._pointer, ctypes.addressof(out)):
            raise MemoryError
        return out
