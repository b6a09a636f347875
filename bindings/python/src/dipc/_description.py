"""What a ticket stands for, said without the table."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterable
from ctypes import c_char_p, c_void_p
from typing import Any

from . import _abi, _arguments, _capsule, _errors, _headers, _library
from ._arguments import Ticket, Uris
from ._handle import Handle, make
from ._headers import Headers
from ._schema import Schema

_checked, _plain = _library.checked, _library.plain
_new, _free = _checked("dipc_description_new"), _plain("dipc_description_free")
_schema, _set_schema = _checked("dipc_description_schema"), _checked("dipc_description_set_schema")
_total, _set_total = _plain("dipc_description_total"), _checked("dipc_description_set_total")
_answer_headers = _checked("dipc_description_headers")
_endpoint_count, _add_endpoint = _plain("dipc_description_endpoint_count"), _checked("dipc_description_add_endpoint")
_endpoint_descriptor = _checked("dipc_description_endpoint_descriptor")
_endpoint_total = _plain("dipc_description_endpoint_total")
_uri_count, _uri = _plain("dipc_description_endpoint_uri_count"), _checked("dipc_description_endpoint_uri")
_to_stream = _checked("dipc_description_to_stream")

ROWS, BYTES, BATCHES = 1, 2, 3  # DIPC_TOTAL_*
UNKNOWN = 2**64 - 1  # DIPC_UNKNOWN
_MOST = 2**63 - 1
"""Descriptions answer as a table, which has its totals as int64."""


@dataclasses.dataclass(init=False)
class Endpoint:
    """Where a part of a table is; in a list, where a ticket's table is."""

    ticket: bytes
    """What to ask for."""
    uris: tuple[str, ...]
    """The servers that have it, best first; none: the server that was asked."""
    num_rows: int | None
    """None if it is not known; so also :attr:`num_bytes`."""
    num_bytes: int | None
    """Bytes of its bodies."""

    def __init__(
        self, ticket: Ticket, uris: Uris = (), *, num_rows: int | None = None, num_bytes: int | None = None
    ) -> None:
        self.ticket = _arguments.ticket_bytes(ticket)
        self.uris = tuple(uri.decode() for uri in _arguments.uris_bytes(uris))
        self.num_rows = _checked_total(num_rows, "num_rows")
        self.num_bytes = _checked_total(num_bytes, "num_bytes")


@dataclasses.dataclass(init=False)
class Description:
    """What a ticket stands for. None means not known.

    :func:`dipc.describe` gives one. A server's handler answers with one, see :meth:`Server.set_handler`.

    :param schema: A schema of any library that speaks Arrow's PyCapsule interface.
    :param num_rows: Rows of the whole table.
    :param num_bytes: Bytes of its bodies.
    :param num_batches: Its record batches.
    :param endpoints: Where the parts of the table are; none: the ticket itself.
    """

    schema: Schema | None
    num_rows: int | None
    num_bytes: int | None
    num_batches: int | None
    endpoints: tuple[Endpoint, ...]
    headers: Headers = dataclasses.field(compare=False, repr=False)
    """The headers of the server's answer."""

    def __init__(
        self,
        schema: Any = None,
        *,
        num_rows: int | None = None,
        num_bytes: int | None = None,
        num_batches: int | None = None,
        endpoints: Iterable[Endpoint] = (),
    ) -> None:
        self.schema = None if schema is None else taken(schema)
        self.num_rows = _checked_total(num_rows, "num_rows")
        self.num_bytes = _checked_total(num_bytes, "num_bytes")
        self.num_batches = _checked_total(num_batches, "num_batches")
        self.endpoints = tuple(endpoints)
        for endpoint in self.endpoints:
            if not isinstance(endpoint, Endpoint):
                raise TypeError(f"endpoints are of dipc.Endpoint, not {type(endpoint).__name__}")
        self.headers = Headers()

    def handle(self) -> Handle:
        """For this package: the same description in the library."""
        made = make("description", _new, _free)
        with made as pointer:
            if self.schema is not None:
                schema = self.schema.export()
                try:
                    _set_schema(pointer, ctypes.addressof(schema))
                finally:
                    _abi.release(schema)
            for which, total in ((ROWS, self.num_rows), (BYTES, self.num_bytes), (BATCHES, self.num_batches)):
                _set_total(pointer, which, _number(total))
            for endpoint in self.endpoints:
                uris = _arguments.uris_bytes(endpoint.uris)
                _add_endpoint(
                    pointer, endpoint.ticket, len(endpoint.ticket), (c_char_p * len(uris))(*uris), len(uris),
                    _number(endpoint.num_rows), _number(endpoint.num_bytes),
                )  # fmt: skip
        return made

    def to_stream(self) -> _abi.ArrowDeviceArrayStream:
        """For this package: the table that answers with it, owned by the caller."""
        stream = _abi.ArrowDeviceArrayStream()
        with self.handle() as pointer:
            _to_stream(pointer, ctypes.addressof(stream))
        return stream


def read(owned: c_void_p) -> Description:
    """A description of the library's, which is freed."""
    with Handle("description", owned, _free) as pointer:
        description = Description(
            _read_schema(pointer),
            num_rows=_known(_total(pointer, ROWS)),
            num_bytes=_known(_total(pointer, BYTES)),
            num_batches=_known(_total(pointer, BATCHES)),
            endpoints=(_read_endpoint(pointer, index) for index in range(_endpoint_count(pointer))),
        )
        description.headers = _headers.read(_answer_headers, pointer)
    return description


def _read_schema(pointer: c_void_p) -> Schema | None:
    struct = _abi.ArrowSchema()
    try:
        _schema(pointer, ctypes.addressof(struct))
    except _errors.NotFoundError:
        return None
    return Schema(struct)


def _read_endpoint(pointer: c_void_p, index: int) -> Endpoint:
    return Endpoint(
        _library.bytes_of(_endpoint_descriptor, pointer, index, size=256),
        [_library.text_of(_uri, pointer, index, which) for which in range(_uri_count(pointer, index))],
        num_rows=_known(_endpoint_total(pointer, index, ROWS)),
        num_bytes=_known(_endpoint_total(pointer, index, BYTES)),
    )


def taken(schema: Any) -> Schema:
    """The schema of another library's object."""
    if isinstance(schema, Schema):
        return schema
    if not hasattr(schema, "__arrow_c_schema__"):
        raise TypeError(f"the schema is an object with __arrow_c_schema__, not {type(schema).__name__}")
    return Schema(_capsule.take(schema.__arrow_c_schema__(), _abi.ArrowSchema))


def _checked_total(total: int | None, name: str) -> int | None:
    return None if total is None else _arguments.count(total, name, _MOST)


def _number(total: int | None) -> int:
    return UNKNOWN if total is None else total


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number
