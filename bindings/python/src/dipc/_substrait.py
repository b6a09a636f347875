"""Conditions as Substrait's extended expressions, in protobuf: the part of them that engines' predicates need.

Each function gives the bytes of a message; the numbers are those of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_SIXTEEN = 16


class Message:
    """One message, whose expressions refer to columns and functions by numbers."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._functions: list[str] = []

    def column(self, name: str) -> bytes:
        """A reference to a column, which the server finds by its name."""
        segment = _bytes(2, _integer(1, _number_of(name, self._columns)))
        return _bytes(2, _bytes(1, segment))

    def call(self, name: str, *arguments: bytes) -> bytes:
        """A call of a function."""
        given = b"".join(_bytes(4, _bytes(3, argument)) for argument in arguments)
        return _bytes(3, _integer(1, _number_of(name, self._functions)) + given)

    def encode(self, condition: bytes) -> bytes:
        """The message itself."""
        declared = (
            _bytes(2, _bytes(3, _integer(2, number) + _bytes(3, name.encode())))
            for number, name in enumerate(self._functions)
        )
        names = b"".join(_bytes(1, name.encode()) for name in self._columns)
        return b"".join(declared) + _bytes(3, _bytes(1, condition)) + _bytes(4, names)


def any_of(value: bytes, literals: Iterable[bytes]) -> bytes:
    """Whether a value is one of these."""
    return _bytes(8, _bytes(1, value) + b"".join(_bytes(2, literal) for literal in literals))


def boolean(value: bool) -> bytes:
    return _literal(_integer(1, int(value)))


def integer(value: int) -> bytes:
    """A literal of at most 64 bits."""
    # A value above the signed range gets DataFusion's variation for unsigned integers.
    return _literal(_integer(7, value) + (_integer(51, 1) if value >> 63 > 0 else b""))


def single(value: float) -> bytes:
    return _literal(_key(10, 5) + struct.pack("<f", value))


def double(value: float) -> bytes:
    return _literal(_key(11, 1) + struct.pack("<d", value))


def text(value: str) -> bytes:
    return _literal(_bytes(12, value.encode()))


def binary(value: bytes) -> bytes:
    return _literal(_bytes(13, value))


def date(days: int) -> bytes:
    return _literal(_integer(16, days))


def decimal(value: int, precision: int, scale: int) -> bytes:
    digits = value.to_bytes(_SIXTEEN, "little", signed=True)
    return _literal(_bytes(24, _bytes(1, digits) + _integer(2, precision) + _integer(3, scale)))


def time(value: int, digits: int) -> bytes:
    """A time of day, in units of a fraction of a second with this many digits."""
    return _literal(_bytes(37, _integer(1, digits) + _integer(2, value)))


def timestamp(value: int, digits: int, *, zoned: bool) -> bytes:
    return _literal(_bytes(35 if zoned else 34, _integer(1, digits) + _integer(2, value)))


def duration(value: int, digits: int) -> bytes:
    seconds, fraction = divmod(value, 10**digits)
    days, seconds = divmod(seconds, 86_400)
    parts = _integer(1, days) + _integer(2, seconds) + _integer(4, digits) + _integer(5, fraction)
    return _literal(_bytes(20, parts))


def _literal(content: bytes) -> bytes:
    return _bytes(1, content)


def _number_of(name: str, known: list[str]) -> int:
    if name not in known:
        known.append(name)
    return known.index(name)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _integer(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value & ((1 << 64) - 1))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
