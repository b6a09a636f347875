"""PyCapsules of Arrow's PyCapsule interface, made and read through ctypes.

A capsule owns one struct and releases it when nobody took it. Its destructor is a Python function that
the interpreter calls while it holds the GIL, so no thread of the library ever enters Python through it.
"""

from __future__ import annotations

import ctypes
from ctypes import PYFUNCTYPE, Structure, c_char_p, c_void_p, py_object
from typing import Any

from . import _abi

NAMES: dict[type[Structure], bytes] = {
    _abi.ArrowSchema: b"arrow_schema",
    _abi.ArrowArray: b"arrow_array",
    _abi.ArrowDeviceArray: b"arrow_device_array",
    _abi.ArrowArrayStream: b"arrow_array_stream",
    _abi.ArrowDeviceArrayStream: b"arrow_device_array_stream",
}

_new = ctypes.pythonapi["PyCapsule_New"]
_new.restype, _new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]
_is_valid = ctypes.pythonapi["PyCapsule_IsValid"]
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [py_object, c_char_p]
# A capsule that is being destroyed has no references left, and must not get one: a bare address then.
_dying_context = PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetContext", ctypes.pythonapi))
_set_context = ctypes.pythonapi["PyCapsule_SetContext"]
_set_context.restype, _set_context.argtypes = ctypes.c_int, [py_object, c_void_p]

# The structs inside capsules, by address.
_owned: dict[int, Structure] = {}


def _destroy(
    capsule: int,
    context: Any = _dying_context,
    owned: dict[int, Structure] = _owned,
    release: Any = _abi.release,
) -> None:
    struct = owned.pop(context(capsule), None)
    if struct is not None:
        release(struct)


_destructor = PYFUNCTYPE(None, c_void_p)(_destroy)
# Capsules can outlive this module when the interpreter ends, so their destructor is never freed.
ctypes.pythonapi.Py_IncRef(py_object(_destructor))


def wrap(struct: Structure) -> object:
    """A capsule that owns what `struct` holds; moves it out of `struct`."""
    struct = _abi.move(struct)
    address = ctypes.addressof(struct)
    name = NAMES[type(struct)]
    capsule: object = _new(address, name, ctypes.cast(_destructor, c_void_p))
    _set_context(capsule, address)
    _owned[address] = struct
    return capsule


def take(capsule: object, kind: type[_abi.S]) -> _abi.S:
    """Moves the struct out of another library's capsule.

    Raises TypeError where it is no such capsule, and ValueError where it was taken before.
    """
    name = NAMES[kind]
    if not _is_valid(capsule, name):
        raise TypeError(f"expected a PyCapsule named {name.decode()!r}, not {capsule!r}")
    struct = kind.from_address(_pointer(capsule, name))
    if _abi.is_released(struct):
        raise ValueError(f"the PyCapsule {name.decode()!r} was used before")
    return _abi.move(struct)
