"""Arguments of the public calls, checked and turned into what the library takes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union

from . import _errors

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeIs

Data = Union[str, bytes, bytearray, memoryview]
Path = Union[str, "os.PathLike[str]"]
"""A file."""
Ticket = Data
Uris = Union[str, Sequence[str]]
Device = Union[
    Literal[
        "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7", "cuda:8",
        "cuda:9", "cuda:10", "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
    ],
    tuple[Literal["cuda"], int],
]  # fmt: skip
"""Where arrays lie: on the host, or on a GPU: "cuda" is the first GPU, and ``("cuda", number)`` any one."""
DeviceOrAsSent = Union[Device, Literal["as-sent"]]
"""As :data:`Device`, or where the server has them."""
Body = Literal["auto", "packed", "lent"]
Compression = Literal["none", "lz4", "zstd"]
Validation = Literal["auto", "structure", "full"]
Role = Literal["both", "metadata", "data"]


class Expression(Protocol):
    """An expression of ``pyarrow.compute``."""

    def to_substrait(self, schema: Any, allow_arrow_extensions: bool = False) -> Any: ...


Filter = Union[Expression, "Buffer"]
"""A condition on rows: an expression of ``pyarrow.compute``, or bytes of a ``substrait.ExtendedExpression``."""

FOREVER = 2**64 - 1


def data_bytes(value: Data, name: str) -> bytes:
    """The bytes of a value; text is taken as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{name} is text or bytes, not {type(value).__name__}")


def text_bytes(value: str, name: str) -> bytes:
    """A text as a C string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    if "\0" in value:
        raise _errors.InvalidArgumentError(f"{name} holds a NUL character: {value!r}")
    return value.encode()


def names_bytes(names: Sequence[str], what: str) -> list[bytes]:
    """Names as C strings."""
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{what} is a list of names, not {type(names).__name__}")
    return [text_bytes(name, "a name") for name in names]


def is_expression(filter: Filter | None) -> TypeIs[Expression]:
    """Whether a filter is an expression, which is a message for one schema at a time."""
    return hasattr(filter, "to_substrait")


def filter_bytes(filter: Filter | None) -> bytes | None:
    """The message of a filter; None for an expression, and if there is no filter."""
    if filter is None or is_expression(filter):
        return None
    try:
        return bytes(memoryview(filter))
    except TypeError:
        raise TypeError(
            f"filter is an expression of pyarrow.compute, or bytes of Substrait, not {type(filter).__name__}"
        ) from None


def ticket_bytes(ticket: Ticket) -> bytes:
    """A ticket's bytes."""
    return data_bytes(ticket, "a ticket")


def uri_bytes(uri: str) -> bytes:
    """A URI as a C string."""
    if not isinstance(uri, str):
        raise TypeError(f"a URI is text, not {type(uri).__name__}")
    if "\0" in uri:
        raise _errors.InvalidUriError(f"the URI {uri!r} holds a NUL character")
    return uri.encode()


def uris_bytes(uris: Uris) -> list[bytes]:
    """One URI, or two for metadata and bodies."""
    if not isinstance(uris, Sequence):
        raise TypeError(f"a URI is text, or a list of two, not {type(uris).__name__}")
    return [uri_bytes(uri) for uri in ([uris] if isinstance(uris, str) else uris)]


def nanoseconds(seconds: float, name: str) -> int:
    """A duration; ``math.inf``: no limit."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {type(seconds).__name__}")
    if math.isnan(seconds) or seconds < 0:
        raise _errors.InvalidArgumentError(f"{name} is {seconds} seconds: give 0 or more")
    return FOREVER if seconds >= 2**63 / 1e9 else round(seconds * 1e9)


def count(number: int, name: str, most: int = FOREVER) -> int:
    """A number of things or bytes."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} is a whole number, not {type(number).__name__}")
    if not 0 <= number <= most:
        raise _errors.InvalidArgumentError(f"{name} is {number}: give a number from 0 to {most}")
    return number


def choice(value: str, name: str, choices: dict[str, int]) -> int:
    """One of a few words."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise _errors.InvalidArgumentError(f"{name} is {value!r}: give one of {', '.join(choices)}") from None


def device(value: DeviceOrAsSent, as_sent: bool) -> tuple[int, int]:
    """Arrow's type and number of a device: "cpu", "cuda", "cuda:1"; "as-sent" if that means something."""
    words = ["cpu", "cuda", "cuda:N", '("cuda", N)'] + ["as-sent"] * as_sent
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "cuda":
        return 2, count(value[1], "the device's number", 2**31 - 1)
    if value == "cpu":
        return 1, -1
    if value == "as-sent" and as_sent:
        return 0, -1
    if isinstance(value, str):
        name, colon, number = value.partition(":")
        if name == "cuda" and (not colon or (number.isdecimal() and number.isascii())):
            return 2, count(int(number or 0), "the device's number", 2**31 - 1)
    raise _errors.InvalidArgumentError(f"device is {value!r}: give one of {', '.join(words)}")


def transport(settings: Mapping[str, str]) -> list[tuple[str, tuple[bytes, bytes]]]:
    """Settings of single transports, each as a call of `set_transport`."""
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"transport has names and values of text, as {{'ucx.TLS': 'tcp'}}, not {name!r}: {value!r}")
        if "\0" in name + value:
            raise _errors.InvalidArgumentError(f"transport holds a NUL character: {name!r}: {value!r}")
    return [("transport", (name.encode(), value.encode())) for name, value in settings.items()]


def files(paths: Mapping[str, Any]) -> list[tuple[str, tuple[bytes, ...]]]:
    """Those files that are given, each as a call of its setter: a path, or a certificate and its key."""
    given = {name: value for name, value in paths.items() if value is not None}
    calls = []
    for name, value in given.items():
        parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        encoded = tuple(os.fsencode(part) for part in parts)
        if any(b"\0" in part for part in encoded):
            raise _errors.InvalidArgumentError(f"{name} holds a NUL character: {value!r}")
        if len(encoded) != (2 if name == "tls" else 1):
            raise TypeError("tls is two paths: of a certificate and of its key")
        calls.append((name, encoded))
    return calls


def some(numbers: Mapping[str, int | None]) -> list[tuple[str, tuple[int]]]:
    """Those numbers that are given, each as a call of its setter."""
    return [(name, (count(number, name),)) for name, number in numbers.items() if number is not None]


def some_seconds(durations: Mapping[str, float | None]) -> list[tuple[str, tuple[int]]]:
    """Those durations that are given, each as a call of its setter, which takes nanoseconds."""
    return [(f"{name}_ns", (nanoseconds(value, name),)) for name, value in durations.items() if value is not None]
