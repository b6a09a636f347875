"""What a ticket is served from, as a function of the request."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from typing import Any, Callable

from . import _errors, _source
from ._description import Description
from ._request import Authorizer, Request, Verb

_FEW = 16
"""This many streams are kept before dead ones are removed."""

Provider = Callable[[Request], Any]
Answers = dict[int, Provider]
"""A provider for each verb."""


class OnLoop:
    """A coroutine function or an async generator function, and the loop that it runs on."""

    def __init__(self, function: Provider, loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self.loop = loop

    def __call__(self, request: Request) -> Any:
        return self._function(request)


def provider(obj: Any) -> Provider:
    """What a ticket is served from, as a function of the request.

    Raises TypeError for an object that cannot be served, so that the error comes at the call that gave it.
    """
    if _source.is_arrow(obj):
        return _Once(obj) if _source.is_read_once(obj) else lambda _request: obj
    if callable(obj):
        function = _of_request(obj)
        return OnLoop(function, _running_loop(obj)) if _is_async(obj) else function
    if isinstance(obj, (list, tuple)) and all(_source.is_arrow(batch) for batch in obj):
        return lambda _request: obj
    raise TypeError(f"cannot serve {type(obj).__name__}: give {_source.KINDS}, or a function that returns one of these")


def _of_request(function: Callable[..., Any]) -> Provider:
    """Turns a function that takes the request, or nothing, into one that takes the request."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Functions of C may have no signature; they are called without arguments.
        return lambda _request: function()
    if _binds(signature):
        return lambda _request: function()
    if _binds(signature, None):
        return function
    raise TypeError(f"the provider {function!r} must take no argument or one, the request; it takes {signature}")


def _is_async(function: Callable[..., Any]) -> bool:
    return any(
        inspect.iscoroutinefunction(part) or inspect.isasyncgenfunction(part)
        for part in (function, getattr(function, "__call__", None))  # noqa: B004  an object's own method
    )


def _running_loop(function: Callable[..., Any]) -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"{function!r} is served on the running loop, and there is none: call this in a coroutine"
        ) from None


def handler(get: Any, describe: Any, list_tickets: Any, put: Any, exchange: Any) -> Answers:
    """What serves every ticket that is not served by itself: a function for each verb, or None."""
    functions = {
        Verb.GET: get,
        Verb.PUT: put,
        Verb.EXCHANGE: exchange,
        Verb.DESCRIBE: describe,
        Verb.LIST: list_tickets,
    }
    for function in functions.values():
        if function is not None and (_source.is_arrow(function) or not callable(function)):
            raise TypeError(f"a handler is a function of the request, not {type(function).__name__}")
    return {verb: provider(function) for verb, function in functions.items() if function is not None}


def authorizer_of(function: Any) -> Authorizer | OnLoop | None:
    """What decides about requests: a function, or a coroutine function and the running loop.

    Raises TypeError for another object.
    """
    if function is None:
        return None
    if not callable(function):
        raise TypeError(f"an authorizer is a function of the request, not {type(function).__name__}")
    parts = (function, getattr(function, "__call__", None))  # noqa: B004  an object's own method
    if any(inspect.isasyncgenfunction(part) for part in parts):
        raise TypeError("an authorizer gives one answer, and cannot be an async generator")
    return OnLoop(function, _running_loop(function)) if _is_async(function) else function


def answer(request: Request, given: Any) -> _source.Source:
    """What a provider or handler gave, as batches."""
    if request.verb in (Verb.GET, Verb.EXCHANGE):
        _ensure_unread(given)
        return _source.open_source(given)
    if request.verb == Verb.LIST:
        given = Description(endpoints=given)
    if not isinstance(given, Description):
        raise TypeError(f"a ticket is described by a dipc.Description, not {type(given).__name__}")
    return _source.StreamSource(given.to_stream())


def ensure_nothing(given: object) -> None:
    """Raises TypeError if a function that takes tables is a generator, for example, which has not run."""
    if given is not None:
        raise TypeError(f"a function that takes tables returns None, not {type(given).__name__}")


async def answer_of(request: Request, given: Any) -> _source.AsyncSource:
    """Like :func:`answer`, for the result of a coroutine."""
    if request.verb in (Verb.GET, Verb.EXCHANGE):
        _ensure_unread(given)
        return await _source.open_async(given)
    if request.verb == Verb.LIST and hasattr(given, "__aiter__"):
        given = [endpoint async for endpoint in given]
    return _source.NeverWaits(answer(request, given))


_given: dict[int, weakref.ref[Any]] = {}
"""Streams that providers have given to clients, by identity."""
_given_lock = threading.RLock()


def _ensure_unread(given: Any) -> None:
    """Raises ProviderError for a stream that an earlier client was given, because nothing of it would be left."""
    if not _source.is_read_once(given):
        return
    try:
        reference = weakref.ref(given)
    except TypeError:
        # Not every type allows weak references.
        return
    with _given_lock:
        if len(_given) > 2 * _FEW:
            for number in [number for number, known in _given.items() if known() is None]:
                del _given[number]
        known = _given.get(id(given))
        if known is not None and known() is given:
            raise _errors.ProviderError(
                "the provider gave a stream that an earlier client has read: make one anew for each client"
            )
        _given[id(given)] = reference


class _Once:
    """A stream, for the first client."""

    def __init__(self, stream: Any) -> None:
        self._streams = [stream]

    def __call__(self, _request: Request) -> Any:
        try:
            return self._streams.pop()
        except IndexError:
            raise _errors.ProviderError(
                "the ticket is served from a stream, which an earlier client has read: "
                "serve a table, or a function that makes the stream anew"
            ) from None


def _binds(signature: inspect.Signature, *arguments: object) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
