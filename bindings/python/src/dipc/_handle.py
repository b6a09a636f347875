"""A handle of the library's, which is freed once, and only while no call uses it."""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_void_p
from types import TracebackType
from typing import Any, Callable

from . import _errors, _library, _native, _process


class Handle:
    """Owns a pointer. ``with handle as pointer:`` keeps it from being freed meanwhile.

    Any number of threads may use it at once; :meth:`close` during a use frees it when the last use is done.
    """

    def __init__(self, what: str, pointer: c_void_p, free: Callable[..., Any]) -> None:
        """Takes over what `pointer` points to. `what` is its name in texts."""
        assert pointer.value is not None
        self._owner = _native.Owner(pointer.value, free, waits=not _library.keeps_gil(free.__name__))
        self._pointer = pointer
        self._what = what
        self._users = 0
        self._closed = False
        # Reentrant: a signal handler may use this handle while the main thread uses it.
        self._lock = threading.RLock()
        self._generation = _process.generation()

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> c_void_p:
        _process.ensure_same(self._generation)
        with self._lock:
            if self._closed:
                raise _errors.ClosedError(f"the {self._what} is closed")
            self._users += 1
        return self._pointer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._owner.free()

    def close(self) -> None:
        """Frees the handle, now or when the last call on it is done. May be called again."""
        if self._generation != _process.generation():
            return
        with self._lock:
            now = not self._closed and self._users == 0
            self._closed = True
        if now:
            self._owner.free()


def make(what: str, new: Callable[..., int], free: Callable[..., Any], *arguments: Any) -> Handle:
    """A new handle, by ``new(*arguments, &pointer)``."""
    pointer = c_void_p()
    new(*arguments, ctypes.byref(pointer))
    return Handle(what, pointer, free)


Setting = tuple[str, tuple[Any, ...]]
"""The end of a setter's name, and the arguments for it."""


def options(
    kind: str,
    settings: list[Setting],
    checked: Callable[[str], Callable[..., int]],
    free: Callable[..., Any],
) -> Handle:
    """An options handle of the library: ``dipc_KIND_new``, and a ``dipc_KIND_set_NAME`` for each setting."""
    handle = make(kind, checked(f"dipc_{kind}_new"), free)
    with handle as pointer:
        for name, arguments in settings:
            checked(f"dipc_{kind}_set_{name}")(pointer, *arguments)
    return handle
