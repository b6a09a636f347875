"""Options of requests, and the settings of the library behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_char_p
from typing import Any, TypedDict

from . import _arguments, _errors, _handle, _library
from ._arguments import Body, Compression, DeviceOrAsSent, Filter, Validation
from ._cancel import Cancel
from ._handle import Setting
from ._headers import HeadersLike

BODIES = {"auto": 0, "packed": 1, "lent": 2}
COMPRESSIONS = {"none": 0, "lz4": 1, "zstd": 2}
_VALIDATION = {"auto": 0, "structure": 1, "full": 2}


class RequestOptions(TypedDict, total=False):
    """Options of every request, as :meth:`Client.describe`."""

    headers: HeadersLike
    """Headers for the server's provider or handler, as ``{"traceparent": "00-…"}``, or pairs if a key comes more
    than once; see :class:`Headers`."""
    send_secrets: bool
    """Send the header "authorization" also where others may read the connection: over tcp beyond the loopback
    interface, and over ucx. Without it such a request raises PermissionError, and nothing is sent."""
    checksums: bool
    """Check each message by a checksum where a network could change it unseen: over tcp and ucx. A stream whose
    bytes were changed raises ProtocolError. Bodies travel as bytes from and to host memory then."""
    deadline: float | None
    """Seconds that the whole stream may take, from now to its end; then it fails with TimeoutError. The server sees
    what is left of them. None by default."""
    cancel: Cancel | None
    """Ends this call and the stream from another thread."""
    connect_timeout: float | None
    """Seconds from connecting to the server's first answer; 10 by default. If the provider takes longer, the server
    first sends a note that the request has arrived. The note counts as the answer; after it only ``deadline`` and
    ``stall_timeout`` end the wait."""
    stall_timeout: float | None
    """Seconds that the server may say nothing, and take nothing, while something is waited for. No limit by default; a
    server that dies is noticed without one."""


class _AnswerOptions(TypedDict, total=False):
    window: tuple[int, int] | None
    """How many batches, and how many bytes, the server may send before they are read; 16 and 256 MiB by default."""
    lent_limit_bytes: int | None
    """The most bytes of copies that the server lends at once; 1 GiB by default."""
    spin: float | None
    """Seconds that a thread looks for the next batch before it sleeps; 0 by default."""
    validation: Validation
    """How much of what arrives is checked: "structure", "full" (values too), or "auto", which is "structure" for a
    server of the same user and "full" for others."""


class GetOptions(RequestOptions, _AnswerOptions, total=False):
    """Options of :meth:`Client.get`."""

    columns: Sequence[str] | None
    """The columns that are wanted, in this order; all by default. Others are not sent. ``[]`` asks for rows without
    columns. A column that the table does not have, or has twice, raises InvalidArgumentError."""
    filter: Filter | None
    """Which rows are wanted: an expression of ``pyarrow.compute``, or bytes of a ``substrait.ExtendedExpression``; all
    by default. The server evaluates it, null as false, and sends no other rows. The filter may use columns that are not
    wanted. For an expression, the server is first asked for the ticket's schema. UnsupportedError is raised if the
    server does not describe it, if Substrait has no form for the expression, or if the server does not know a function
    or a type. InvalidArgumentError: a column that is not there, or a row without a result (a division by zero)."""
    first_row: int
    """The first row that is wanted, counting from 0 those that pass the filter."""
    rows: int | None
    """How many rows are wanted; all by default. Batches outside the range are not sent. A table that ends earlier has
    fewer rows."""
    message_limit_bytes: int | None
    """The most memory that one message may take here beside its body: for unpacked buffers, copies to be checked, the
    schema, and the stream's dictionaries together. A message with a larger body may take as much as its body. A message
    that needs more raises OutOfMemoryError. 512 MiB by default, and 16 GiB for a server of the same user. A body
    may have 32 times as many bytes."""
    connections: int | None
    """How many connections carry the stream, if the transport can spread it (tcp); 1 by default."""
    device: DeviceOrAsSent
    """Where batches shall be: "cpu", or on a GPU "cuda", "cuda:1" or ``("cuda", 1)``, or "as-sent": where the server
    has them, if this process reaches that without a copy, otherwise on the host. Batches on a GPU go on by
    ``__arrow_c_device_stream__``, ``__arrow_c_device_array__`` and ``__dlpack__``."""


class PutOptions(RequestOptions, total=False):
    """Options of :meth:`Client.put` and the like."""

    body: Body
    """"auto", "packed" (bodies are always sent as bytes) or "lent" (wherever possible)."""
    compression: Compression
    """"none", "lz4" or "zstd"; compressed bodies travel as bytes."""
    connections: int | None
    """How many connections carry the table, if the transport can spread it (tcp); 1 by default."""


class ExchangeOptions(PutOptions, _AnswerOptions, total=False):
    """Options of :meth:`Client.exchange`; some are for the server's table, as for :meth:`Client.get`."""


_TIMES = ("deadline", "connect_timeout", "stall_timeout")


def of_request(options: Mapping[str, Any], known: Any = RequestOptions) -> list[Setting]:
    """The settings of every request, without the headers. Raises TypeError if an option is not one of the `known`."""
    unknown = options.keys() - known.__annotations__.keys()
    if unknown:
        hint = ": call the method of the client, as dipc.Client(…).get(…)" if "client" in unknown else ""
        raise TypeError(f"there is no option {min(unknown)!r}{hint}")
    return [
        ("send_secrets", (bool(options.get("send_secrets", False)),)),
        ("checksums", (bool(options.get("checksums", False)),)),
        *_arguments.some_seconds({name: options.get(name) for name in _TIMES}),
    ]


def of_get(options: GetOptions) -> list[Setting]:
    return [
        *of_request(options, GetOptions),
        *_of_answers(options),
        ("device", _arguments.device(options.get("device", "cpu"), as_sent=True)),
        *_arguments.some({"message_limit_bytes": options.get("message_limit_bytes")}),
        *_connections(options, 2**32 - 1),
        *_selection(options),
    ]


def of_put(options: PutOptions, known: Any = PutOptions) -> list[Setting]:
    return [
        *of_request(options, known),
        ("body", (_arguments.choice(options.get("body", "auto"), "body", BODIES),)),
        ("compression", (_arguments.choice(options.get("compression", "none"), "compression", COMPRESSIONS),)),
        *_connections(options, 2**16 - 1),
    ]


def of_answers(options: ExchangeOptions) -> list[Setting]:
    """The settings of the server's table in an exchange."""
    return [*_of_answers(options), *_arguments.some_seconds({"stall_timeout": options.get("stall_timeout")})]


def _of_answers(options: Mapping[str, Any]) -> list[Setting]:
    values: list[Setting] = [
        ("validation", (_arguments.choice(options.get("validation", "auto"), "validation", _VALIDATION),)),
        *_arguments.some_seconds({"spin": options.get("spin")}),
        *_arguments.some({"lent_limit_bytes": options.get("lent_limit_bytes")}),
    ]
    window = options.get("window")
    if window is not None:
        try:
            batches, bytes_ = window
        except (TypeError, ValueError):
            raise TypeError(f"window is {window!r}: give (batches, bytes)") from None
        numbers = _arguments.count(batches, "the window's batches"), _arguments.count(bytes_, "the window's bytes")
        values.append(("window", numbers))
    return values


def _selection(options: GetOptions) -> list[Setting]:
    values: list[Setting] = []
    columns, rows = options.get("columns"), options.get("rows")
    first = _arguments.count(options.get("first_row", 0), "first_row")
    message = _arguments.filter_bytes(options.get("filter"))
    if columns is not None:
        names = _arguments.names_bytes(columns, "columns")
        values.append(("columns", ((c_char_p * len(names))(*names), len(names))))
    if message is not None:
        values.append(("filter", (message, len(message))))
    if first or rows is not None:
        most = _arguments.FOREVER if rows is None else _arguments.count(rows, "rows")
        values.append(("range", (first, most)))
    return values


def fits(options: GetOptions) -> bool:
    """Whether a request has room for the selection: names of columns, and a filter."""
    try:
        _handle.options("get_options", _selection(options), _library.checked, _library.plain("dipc_get_options_free"))
    except _errors.InvalidArgumentError:
        return False
    return True


def selects(options: GetOptions) -> bool:
    """Whether only a part of the table is wanted."""
    return options.get("filter") is not None or bool(_selection(options))


def _connections(options: Mapping[str, Any], most: int) -> list[Setting]:
    connections = options.get("connections")
    if connections is None:
        return []
    return [("connections", (_arguments.count(connections, "connections", most),))]
