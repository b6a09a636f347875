"""Headers: pairs that go with a request and its ticket, and come back with the answer and its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Union

from . import _arguments, _errors, _library
from ._arguments import Data
from ._handle import Handle, make

_checked, _plain = _library.checked, _library.plain
_new, _add, _free = _checked("dipc_headers_new"), _checked("dipc_headers_add"), _plain("dipc_headers_free")
_count, _key, _value = _plain("dipc_headers_count"), _checked("dipc_headers_key"), _checked("dipc_headers_value")

HeadersLike = Union["Headers", Mapping[str, Data], Iterable[tuple[str, Data]]]


class Headers(Mapping[str, bytes]):
    """Pairs of a key and a value, in order; a key may come more than once.

    As a mapping it gives the first value of each key. :meth:`get_all` gives all values of a key, and
    :attr:`pairs` has everything. It does not change.

    :param headers: A mapping, or pairs, as ``[("key", b"value")]``. Text of a value is taken as UTF-8. A key
        has 1 to 255 of the characters a to z, 0 to 9, "-", "_" and "."; those that begin with "dipc-" are the
        library's own.
    """

    __slots__ = ("_values", "pairs")

    pairs: tuple[tuple[str, bytes], ...]
    """Every pair, in order."""

    def __init__(self, headers: HeadersLike = ()) -> None:
        if isinstance(headers, Headers):
            headers = headers.pairs
        elif isinstance(headers, Mapping):
            headers = headers.items()
        self.pairs = tuple(_pair(pair) for pair in headers)
        self._values: dict[str, list[bytes]] = {}
        for key, value in self.pairs:
            self._values.setdefault(key, []).append(value)

    def get_all(self, key: str) -> list[bytes]:
        """The values of a key, in order; none if no pair has it."""
        return list(self._values.get(key, ()))

    def __getitem__(self, key: str) -> bytes:
        return self._values[key][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        """The number of different keys."""
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """As pairs in their order with other headers; with a mapping, if no key comes twice."""
        if isinstance(other, Headers):
            return self.pairs == other.pairs
        if isinstance(other, Mapping):
            return len(self.pairs) == len(self) and dict(self.pairs) == dict(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"dipc.Headers({list(self.pairs)!r})"

    def handle(self) -> Handle:
        """For this package: the same headers in the library."""
        made = make("headers", _new, _free)
        with made as pointer:
            for key, value in self.pairs:
                _add(pointer, key.encode(), value, len(value))
        return made


def _pair(pair: object) -> tuple[str, bytes]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"headers are a mapping, or pairs of a key and a value, not {pair!r}")
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"the key of a header is text, not {type(key).__name__}")
    if "\0" in key:
        raise _errors.InvalidArgumentError(f"the key {key!r} of a header holds a NUL character")
    return key, _arguments.data_bytes(value, f"the value of the header {key!r}")


def read(give: Callable[..., int], *arguments: Any) -> Headers:
    """The headers that a function of the library gives a copy of."""
    with make("headers", give, _free, *arguments) as pointer:
        return Headers(
            (
                _library.text_of(_key, pointer, index, size=256),
                _library.bytes_of(_value, pointer, index, size=256),
            )
            for index in range(_count(pointer))
        )
