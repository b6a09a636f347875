"""Cancelling from another thread."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from . import _library
from ._handle import Handle, make

_new, _free = _library.checked("dipc_cancel_new"), _library.plain("dipc_cancel_free")
_trigger = _library.checked("dipc_cancel_trigger")

_FEW = 16
"""This many tokens are kept before dead ones are removed."""


class Ends(Protocol):
    """Ends calls, from any thread: a token of the library, or an object that does the same."""

    def trigger(self) -> None: ...


class Token:
    """A token of the library's, for the calls of one stream or server."""

    def __init__(self) -> None:
        self.handle: Handle = make("cancel token", _new, _free)

    def trigger(self) -> None:
        """Ends the calls that have the token, now and later."""
        with self.handle as pointer:
            _trigger(pointer)


class Cancel:
    """Ends the calls and streams that it was given to, from any thread.

    ``dipc.get(..., cancel=cancel)``, and ``cancel.trigger()`` elsewhere: the call, or the stream that came of it,
    raises :class:`~dipc.CancelledError`. A Cancel may be given to any number of calls; once it is triggered it stays
    so.
    """

    def __init__(self) -> None:
        self._triggered = False
        # Reentrant: a signal handler may trigger this object while the main thread is in :meth:`link`.
        self._lock = threading.RLock()
        # Not a WeakSet: that removes dead objects by a callback in Python, in which a KeyboardInterrupt is lost.
        self._tokens: list[weakref.ref[Ends]] = []
        self._most = _FEW

    @property
    def triggered(self) -> bool:
        return self._triggered

    def trigger(self) -> None:
        """Cancels. May be called again, and from the handlers of Python's ``signal``."""
        self._triggered = True
        with self._lock:
            tokens = [reference() for reference in self._tokens]
        for token in tokens:
            if token is not None:
                token.trigger()

    def link(self, token: Ends) -> None:
        """Lets `token` be triggered with this one."""
        with self._lock:
            if len(self._tokens) >= self._most:
                self._tokens = [reference for reference in self._tokens if reference() is not None]
                self._most = _FEW + 2 * len(self._tokens)
            self._tokens.append(weakref.ref(token))
        # After adding, so that a trigger() meanwhile misses none.
        if self._triggered:
            token.trigger()
