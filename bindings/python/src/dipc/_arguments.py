"""Arguments of the public calls, checked and turned into what the library takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Union

from . import _errors

Ticket = Union[str, bytes, bytearray, memoryview]
Uris = Union[str, Sequence[str]]

FOREVER = 2**64 - 1


def ticket_bytes(ticket: Ticket) -> bytes:
    """A ticket's bytes; text is taken as UTF-8."""
    if isinstance(ticket, str):
        return ticket.encode()
    if isinstance(ticket, (bytes, bytearray, memoryview)):
        return bytes(ticket)
    raise TypeError(f"a ticket is text or bytes, not {type(ticket).__name__}")


def uri_bytes(uri: str) -> bytes:
    """A URI as a C string."""
    if not isinstance(uri, str):
        raise TypeError(f"a URI is text, not {type(uri).__name__}")
    if "\0" in uri:
        raise _errors.InvalidUriError(f"the URI {uri!r} holds a NUL character")
    return uri.encode()


def uris_bytes(uris: Uris) -> list[bytes]:
    """One URI, or two for metadata and bodies."""
    return [uri_bytes(uri) for uri in ([uris] if isinstance(uris, str) else uris)]


def nanoseconds(seconds: float, name: str) -> int:
    """A duration; ``math.inf`` never comes."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {type(seconds).__name__}")
    if math.isnan(seconds) or seconds < 0:
        raise _errors.InvalidArgumentError(f"{name} is {seconds} seconds: give 0 or more")
    return FOREVER if seconds >= 2**63 / 1e9 else round(seconds * 1e9)


def count(number: int, name: str) -> int:
    """A number of things or bytes."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} is a whole number, not {type(number).__name__}")
    if not 0 <= number < 2**64:
        raise _errors.InvalidArgumentError(f"{name} is {number}: give a number from 0 to 2**64 - 1")
    return number


def choice(value: str, name: str, choices: dict[str, int]) -> int:
    """One of a few words."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise _errors.InvalidArgumentError(f"{name} is {value!r}: give one of {', '.join(choices)}") from None
