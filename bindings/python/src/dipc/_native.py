"""The package's own small library (``src/native``): what C calls back, which Python must not be."""

from __future__ import annotations

import ctypes
import pathlib
from ctypes import c_bool, c_int, c_size_t, c_void_p
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
        ("push", c_void_p), ("finish", c_void_p),
    ]  # fmt: skip


_native = _load()


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
        )
    )
)

new = _function("dipc_python_new", c_void_p, c_size_t)
destroy_capsule = _address(_native.dipc_python_destroy)
lend_stream = _function("dipc_python_lend_stream", None, c_void_p, c_void_p)
send = _function("dipc_python_send", c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
_share = {kind: _function(f"dipc_python_share_{kind}", c_void_p, c_void_p) for kind in ("schema", "array")}
_give = {kind: _function(f"dipc_python_give_{kind}", c_bool, c_void_p, c_void_p) for kind in ("schema", "array")}
_drop = _function("dipc_python_drop", None, c_void_p)


class Shared:
    """A schema or device array that can be given away any number of times."""

    def __init__(self, kind: str, source: ctypes.Structure) -> None:
        """Moves out of `source`. `kind` is "schema" or "array"."""
        self._give = _give[kind]
        self._type = type(source)
        self._pointer: int | None = _share[kind](ctypes.addressof(source))
        if self._pointer is None:
            raise MemoryError

    def give(self) -> Any:
        """A struct of its own for another consumer, owned by the caller."""
        out = self._type()
        if not self._give(self._pointer, ctypes.addressof(out)):
            raise MemoryError
        return out

    def __del__(self, drop: Any = _drop) -> None:
        if self._pointer is not None:
            drop(self._pointer)
