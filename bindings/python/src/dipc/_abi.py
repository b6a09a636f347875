"""The structs of Arrow's C data, C stream and C device interfaces, and how they are moved and released."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p
from typing import Any, TypeVar

CPU = 1
"""ARROW_DEVICE_CPU."""

FLAG_NULLABLE = 2

# All callbacks take addresses: the library and Arrow's consumers share these structs.
RELEASE = CFUNCTYPE(None, c_void_p)
GET = CFUNCTYPE(c_int, c_void_p, c_void_p)
GET_LAST_ERROR = CFUNCTYPE(c_char_p, c_void_p)


class ArrowSchema(Structure):
    _fields_ = [
        ("format", c_char_p), ("name", c_char_p), ("metadata", c_void_p), ("flags", c_int64),
        ("n_children", c_int64), ("children", c_void_p), ("dictionary", c_void_p),
        ("release", c_void_p), ("private_data", c_void_p),
    ]  # fmt: skip


class ArrowArray(Structure):
    _fields_ = [
        ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64),
        ("n_children", c_int64), ("buffers", c_void_p), ("children", c_void_p),
        ("dictionary", c_void_p), ("release", c_void_p), ("private_data", c_void_p),
    ]  # fmt: skip


class ArrowDeviceArray(Structure):
    _fields_ = [
        ("array", ArrowArray), ("device_id", c_int64), ("device_type", c_int32),
        ("sync_event", c_void_p), ("reserved", c_int64 * 3),
    ]  # fmt: skip


class ArrowArrayStream(Structure):
    _fields_ = [
        ("get_schema", c_void_p), ("get_next", c_void_p), ("get_last_error", c_void_p),
        ("release", c_void_p), ("private_data", c_void_p),
    ]  # fmt: skip


class ArrowDeviceArrayStream(Structure):
    _fields_ = [("device_type", c_int32), *ArrowArrayStream._fields_]


SchemaPointer = POINTER(ArrowSchema)
S = TypeVar("S", bound=Structure)


def _releasable(struct: Structure) -> Any:
    """The struct that has `release`: in a device array it is an inner struct."""
    return struct.array if isinstance(struct, ArrowDeviceArray) else struct


def is_released(struct: Structure) -> bool:
    return not _releasable(struct).release


def release(struct: Structure) -> None:
    """Calls the struct's `release`, if it was neither released nor moved. Runs without the GIL."""
    inner = _releasable(struct)
    if inner.release:
        RELEASE(inner.release)(ctypes.addressof(inner))


def forget(struct: Structure) -> None:
    """Marks a struct as released, after its contents were moved elsewhere."""
    _releasable(struct).release = None


def move(source: S) -> S:
    """A struct with what `source` held; `source` is then released, as Arrow's interface says."""
    target = type(source)()
    ctypes.memmove(ctypes.addressof(target), ctypes.addressof(source), ctypes.sizeof(source))
    forget(source)
    return target


def on_host(array: ArrowArray) -> ArrowDeviceArray:
    """Moves an array of host memory into a device array."""
    return ArrowDeviceArray(array=move(array), device_id=-1, device_type=CPU)
