"""One exception for each status of libdipc.

If Python has an exception for the same failure, ours is a subclass of it: a ticket that is not served is a
``LookupError``, a server that is not there a ``ConnectionError``.
"""

from __future__ import annotations

import builtins
import enum


class Status(enum.IntEnum):
    """The numbers of ``dipc.h``."""

    OK = 0
    NOTHING = 1
    NULL_ARGUMENT = -1
    INVALID_ARGUMENT = -2
    INVALID_URI = -3
    UNSUPPORTED = -4
    NOT_FOUND = -5
    ALREADY_EXISTS = -6
    ADDRESS_IN_USE = -7
    UNREACHABLE = -8
    PERMISSION = -9
    PROTOCOL = -10
    DISCONNECTED = -11
    CANCELLED = -12
    TIMEOUT = -13
    BUSY = -14
    OUT_OF_MEMORY = -15
    OUT_OF_RESOURCES = -16
    IO = -17
    INVALID_DATA = -18
    PROVIDER = -19
    STOPPED = -20
    FORKED = -21
    PANIC = -22
    POISONED = -23
    BUFFER_TOO_SMALL = -24


class DipcError(Exception):
    """A call of libdipc failed.

    A provider may raise one of its subclasses with a text, and the client gets the same.
    """

    status: int = Status.PROVIDER
    """Which of the library's statuses it is: a :class:`Status`, or a number that is newer than this package."""

    os_errno: int = 0
    """The errno of the system call behind it; 0 if there is none."""

    retry_after: float | None = None
    """Seconds to wait before a busy server is asked again; wait longer each time. None if the server has not said. A
    request with a deadline is asked again by itself."""

    @property
    def text(self) -> str:
        """Cause and, if there is one, remedy."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self.text


class InvalidArgumentError(DipcError, ValueError):
    """An argument is outside what the call takes."""

    status: int = Status.INVALID_ARGUMENT


class InvalidUriError(InvalidArgumentError):
    """A URI cannot be read, or lacks a part that it must have."""

    status: int = Status.INVALID_URI


class ClosedError(InvalidArgumentError):
    """The object was closed, or was handed to another library."""


class UnsupportedError(DipcError):
    """This build, machine or peer cannot do what was asked."""

    status: int = Status.UNSUPPORTED


class NotFoundError(DipcError, LookupError):
    """The server has no such ticket."""

    status: int = Status.NOT_FOUND


class AlreadyExistsError(DipcError):
    """The ticket is served already."""

    status: int = Status.ALREADY_EXISTS


class AddressInUseError(DipcError, OSError):
    """Another live server listens at the address."""

    status: int = Status.ADDRESS_IN_USE


class UnreachableError(DipcError, ConnectionError):
    """Nobody listens at the address, or it cannot be reached."""

    status: int = Status.UNREACHABLE


class PermissionError(DipcError, builtins.PermissionError):
    """The peer, or the operating system, does not admit this user."""

    status: int = Status.PERMISSION


class ProtocolError(DipcError):
    """The peer broke a rule of the protocol."""

    status: int = Status.PROTOCOL


class DisconnectedError(DipcError, ConnectionError):
    """The peer went away: its process ended or the connection was cut."""

    status: int = Status.DISCONNECTED


class CancelledError(DipcError):
    """The stream was cancelled, by this side or the other."""

    status: int = Status.CANCELLED


class TimeoutError(DipcError, builtins.TimeoutError):
    """Connecting, or waiting for the peer, took longer than the option allows."""

    status: int = Status.TIMEOUT


class BusyError(DipcError):
    """The server serves as many streams as its options allow; try again after :attr:`retry_after`."""

    status: int = Status.BUSY


class OutOfMemoryError(DipcError, MemoryError):
    """Memory for bodies or regions ran out, or an option's limit on it was reached."""

    status: int = Status.OUT_OF_MEMORY


class OutOfResourcesError(DipcError, OSError):
    """File descriptors, threads or another resource of the process ran out."""

    status: int = Status.OUT_OF_RESOURCES


class IoError(DipcError, OSError):
    """The operating system reported an error that has no status of its own."""

    status: int = Status.IO


class InvalidDataError(DipcError, ValueError):
    """An Arrow array or schema, the caller's or the peer's, is not valid."""

    status: int = Status.INVALID_DATA


class ProviderError(DipcError):
    """The provider of the ticket failed; the text is the provider's."""


class StoppedError(DipcError):
    """The server or client was stopped."""

    status: int = Status.STOPPED


class ForkedError(DipcError):
    """The object was made before a fork() and this is the child."""

    status: int = Status.FORKED


class PanicError(DipcError):
    """A bug in libdipc: the object can only be closed."""

    status: int = Status.PANIC


class BufferTooSmallError(DipcError):
    """The buffer is too small. Nobody but this package sees it."""

    status: int = Status.BUFFER_TOO_SMALL


_BY_STATUS: dict[int, type[DipcError]] = {
    kind.status: kind
    for kind in (
        InvalidArgumentError, InvalidUriError, UnsupportedError, NotFoundError, AlreadyExistsError,
        AddressInUseError, UnreachableError, PermissionError, ProtocolError, DisconnectedError,
        CancelledError, TimeoutError, BusyError, OutOfMemoryError, OutOfResourcesError, IoError,
        InvalidDataError, ProviderError, StoppedError, ForkedError, PanicError, BufferTooSmallError,
    )
}  # fmt: skip
_BY_STATUS[Status.NULL_ARGUMENT] = InvalidArgumentError
_BY_STATUS[Status.POISONED] = PanicError


def from_status(status: int, text: str, os_errno: int = 0, retry_after_ns: int = 0) -> DipcError:
    """The exception for a failure of the library; the general one for a status that is not known."""
    error = _BY_STATUS.get(status, DipcError)(text)
    try:
        error.status = Status(status)
    except ValueError:
        error.status = status
    error.os_errno = os_errno
    error.retry_after = retry_after_ns / 1e9 if retry_after_ns else None
    return error
