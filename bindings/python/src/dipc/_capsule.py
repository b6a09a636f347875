"""PyCapsules of Arrow's PyCapsule interface, made and read through ctypes.

A capsule owns one struct, and releases it when nobody took it; its destructor is native code.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char_p, c_void_p, py_object
from typing import cast

from . import _abi, _native

NAMES: dict[type[Structure], bytes] = {
    _abi.ArrowSchema: b"arrow_schema",
    _abi.ArrowArray: b"arrow_array",
    _abi.ArrowDeviceArray: b"arrow_device_array",
    _abi.ArrowArrayStream: b"arrow_array_stream",
    _abi.ArrowDeviceArrayStream: b"arrow_device_array_stream",
}
"""Read by the destructor too, so they live as long as the process."""

_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]
_is_valid = ctypes.pythonapi["PyCapsule_IsValid"]
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [py_object, c_char_p]

for _name in NAMES.values():
    # A capsule keeps the address of its name, and can outlive this module.
    ctypes.pythonapi.Py_IncRef(py_object(_name))


def wrap(struct: Structure) -> object:
    """A capsule that owns what `struct` holds; moves it out of `struct`."""
    address = _native.new(ctypes.sizeof(struct))
    if address is None:
        raise MemoryError
    ctypes.memmove(address, ctypes.addressof(struct), ctypes.sizeof(struct))
    capsule: object = _native.new_capsule(address, NAMES[type(struct)], _native.destroy_capsule)
    _abi.forget(struct)
    return capsule


def empty(kind: type[_abi.S]) -> tuple[object, _abi.S]:
    """A capsule for a struct that is still to be filled, and that struct, which lies in it."""
    capsule = wrap(kind())
    return capsule, struct_in(capsule, kind)


def struct_in(capsule: object, kind: type[_abi.S]) -> _abi.S:
    """The struct that a capsule of :func:`wrap` owns, where it lies."""
    return kind.from_address(cast("int", _pointer(capsule, NAMES[kind])))


def take(capsule: object, kind: type[_abi.S]) -> _abi.S:
    """Moves the struct out of another library's capsule.

    Raises TypeError if it is no such capsule, and ValueError if it was taken before.
    """
    name = NAMES[kind]
    if not _is_valid(capsule, name):
        raise TypeError(f"expected a PyCapsule named {name.decode()!r}, not {capsule!r}")
    struct = kind.from_address(_pointer(capsule, name))
    if _abi.is_released(struct):
        raise ValueError(f"the PyCapsule {name.decode()!r} was used before")
    return _abi.move(struct)
