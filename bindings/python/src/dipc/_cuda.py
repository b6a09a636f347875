"""The little of the CUDA driver that the package needs itself."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_void_p

from . import _errors


def wait(device: int, event: int) -> None:
    """Waits for an event of a GPU; `event` is the address of its handle, as a device array has it."""
    # The driver is loaded, because such an array exists.
    driver = ctypes.CDLL("libcuda.so.1")
    context = c_void_p()
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), c_int(device))
    try:
        _call(driver, "cuCtxPushCurrent_v2", context)
        try:
            _call(driver, "cuEventSynchronize", c_void_p.from_address(event))
        finally:
            _call(driver, "cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))
    finally:
        _call(driver, "cuDevicePrimaryCtxRelease_v2", c_int(device))


def _call(driver: ctypes.CDLL, name: str, *arguments: object) -> None:
    status = getattr(driver, name)(*arguments)
    if status != 0:
        raise _errors.IoError(f"{name} gave the CUDA error {status}")
