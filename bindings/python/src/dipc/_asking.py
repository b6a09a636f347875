"""Requests of a client: by a call that waits, or on the running loop."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from ctypes import c_char_p, c_int, c_void_p
from typing import Any, Generic, Protocol, TypeVar

from . import _abi, _arguments, _description, _errors, _library, _log, _wait
from ._arguments import Ticket, Uris
from ._cancel import Token
from ._description import Description
from ._handle import Handle, Setting, make, options
from ._headers import Headers
from ._loop import Readable
from ._put import Writer
from ._reader import Reader
from ._request import Verb
from ._schema import Schema
from ._stream import Stream

_checked, _plain = _library.checked, _library.plain
_get, _list = _checked("dipc_client_get"), _checked("dipc_client_list")
_describe = _checked("dipc_client_describe")
_open, _exchange = _checked("dipc_client_put_open"), _checked("dipc_client_exchange")
_start, _start_put = _checked("dipc_client_start"), _checked("dipc_client_start_put")
_start_exchange = _checked("dipc_client_start_exchange")
_fd, _free = _checked("dipc_pending_fd"), _plain("dipc_pending_free")
_try_stream, _try_description = _checked("dipc_pending_try_stream"), _checked("dipc_pending_try_description")
_try_put, _try_exchange = _checked("dipc_pending_try_put"), _checked("dipc_pending_try_exchange")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Kind(Protocol[T_co]):
    """The kind of request. The arguments are those that the library's functions for requests have in common."""

    def ask(self, token: Token, *arguments: Any) -> T_co:
        """Waits for the answer."""
        ...

    def start(self, client: c_void_p, *arguments: Any) -> int:
        """Makes a request; the last argument is where to write it."""
        ...

    def take(self, token: Token, request: c_void_p) -> T_co | None:
        """The answer to a request, if it has come."""
        ...


class Request(Generic[T]):
    """One request, ready to be made once."""

    def __init__(
        self,
        client: Handle,
        kind: Kind[T],
        uri: Uris,
        ticket: Ticket,
        given: Mapping[str, Any],
        **settings: list[Setting],
    ) -> None:
        """Checks the arguments. `settings` are those of each options handle, by its kind."""
        _log.follow()
        self._client, self._kind, self._settings = client, kind, settings
        self._uris, self._ticket = _arguments.uris_bytes(uri), _arguments.ticket_bytes(ticket)
        self._headers = Headers(given.get("headers", ()))
        self._token = Token()
        cancel = given.get("cancel")
        if cancel is not None:
            cancel.link(self._token)

    def call(self) -> T:
        """Waits for the answer; signals are heard meanwhile."""
        return _wait.call(self._ask, self._token.trigger)

    def _ask(self) -> T:
        with self._arguments() as arguments:
            return self._kind.ask(self._token, *arguments)

    async def acall(self) -> T:
        """Waits on the running loop. A task that is cancelled meanwhile ends the request."""
        with self._arguments() as arguments:
            request = make("request", self._kind.start, _free, *arguments)
        try:
            with request as pointer:
                fd = c_int()
                _fd(pointer, ctypes.byref(fd))
                readable = Readable(fd.value)
                while (found := self._kind.take(self._token, pointer)) is None:
                    await readable.wait()
                return found
        finally:
            request.close()

    @contextlib.contextmanager
    def _arguments(self) -> Iterator[tuple[Any, ...]]:
        uris, ticket = self._uris, self._ticket
        with contextlib.ExitStack() as held:
            client = held.enter_context(self._client)
            # The headers belong to the first.
            headers = self._headers
            found = []
            for kind, values in self._settings.items():
                found.append(held.enter_context(_settings(kind, values, headers)))
                headers = Headers()
            cancel = held.enter_context(self._token.handle)
            yield client, (c_char_p * len(uris))(*uris), len(uris), ticket, len(ticket), *found, cancel


def _settings(kind: str, values: list[Setting], headers: Headers) -> Handle:
    """The options of one request."""
    free = _plain(f"dipc_{kind}_free")
    if not headers:
        # A server that does not know headers refuses a request with headers.
        return options(kind, values, _checked, free)
    with headers.handle() as pointer:
        return options(kind, [*values, ("headers", (pointer,))], _checked, free)


class Fetching:
    """A stream of the server: the table of a ticket, or the list of tickets."""

    def __init__(self, verb: Verb, spin: float | None = None) -> None:
        self._verb, self._spin = verb, spin or 0.0

    def ask(self, token: Token, *arguments: Any) -> Reader:
        struct = _abi.ArrowDeviceArrayStream()
        call = _get if self._verb == Verb.GET else _list
        call(*arguments, ctypes.addressof(struct))
        return Reader(Stream(struct, token, self._spin))

    def start(self, client: c_void_p, *arguments: Any) -> int:
        return _start(client, self._verb, *arguments)

    def take(self, token: Token, request: c_void_p) -> Reader | None:
        struct = _abi.ArrowDeviceArrayStream()
        if _try_stream(request, ctypes.addressof(struct)) == _errors.Status.NOTHING:
            return None
        return Reader(Stream(struct, token, self._spin))


class Describing:
    """What a ticket stands for."""

    def ask(self, _token: Token, *arguments: Any) -> Description:
        pointer = c_void_p()
        _describe(*arguments, ctypes.byref(pointer))
        return _description.read(pointer)

    def start(self, client: c_void_p, *arguments: Any) -> int:
        return _start(client, Verb.DESCRIBE, *arguments)

    def take(self, _token: Token, request: c_void_p) -> Description | None:
        pointer = c_void_p()
        if _try_description(request, ctypes.byref(pointer)) == _errors.Status.NOTHING:
            return None
        return _description.read(pointer)


class Putting:
    """A table from here."""

    def __init__(self, schema: Schema, device_type: int) -> None:
        self._schema, self._device_type = schema, device_type

    def ask(self, token: Token, *arguments: Any) -> Writer:
        pointer = c_void_p()
        with self._exported() as schema:
            _open(*arguments, schema, self._device_type, ctypes.byref(pointer))
        return Writer(pointer, token, self._schema)

    def start(self, client: c_void_p, *arguments: Any) -> int:
        *arguments_, out = arguments
        with self._exported() as schema:
            return _start_put(client, *arguments_, schema, self._device_type, out)

    def take(self, token: Token, request: c_void_p) -> Writer | None:
        pointer = c_void_p()
        if _try_put(request, ctypes.byref(pointer)) == _errors.Status.NOTHING:
            return None
        return Writer(pointer, token, self._schema)

    @contextlib.contextmanager
    def _exported(self) -> Iterator[int]:
        struct = self._schema.export()
        try:
            yield ctypes.addressof(struct)
        finally:
            _abi.release(struct)


class Exchanging(Putting):
    """A table from the client and one from the server."""

    def __init__(self, schema: Schema, device_type: int, spin: float | None) -> None:
        super().__init__(schema, device_type)
        self._spin = spin or 0.0

    def ask(self, token: Token, *arguments: Any) -> tuple[Writer, Reader]:  # type: ignore[override]
        pointer, answers = c_void_p(), _abi.ArrowDeviceArrayStream()
        with self._exported() as schema:
            _exchange(*arguments, schema, self._device_type, ctypes.byref(pointer), ctypes.addressof(answers))
        return self._pair(token, pointer, answers)

    def start(self, client: c_void_p, *arguments: Any) -> int:
        *arguments_, out = arguments
        with self._exported() as schema:
            return _start_exchange(client, *arguments_, schema, self._device_type, out)

    def take(self, token: Token, request: c_void_p) -> tuple[Writer, Reader] | None:  # type: ignore[override]
        pointer, answers = c_void_p(), _abi.ArrowDeviceArrayStream()
        if _try_exchange(request, ctypes.byref(pointer), ctypes.addressof(answers)) == _errors.Status.NOTHING:
            return None
        return self._pair(token, pointer, answers)

    def _pair(self, token: Token, pointer: c_void_p, answers: _abi.ArrowDeviceArrayStream) -> tuple[Writer, Reader]:
        writer = Writer(pointer, token, self._schema)
        return writer, Reader(Stream(answers, token, self._spin, has_schema=False))
