"""A table that engines may request each time that a query reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import cast

from . import _arguments, _errors, _options
from ._arguments import Ticket, Uris
from ._client import Client, shared_client
from ._options import GetOptions, RequestOptions
from ._reader import Reader
from ._schema import Schema


class Table:
    """A ticket's table. Each reading is a new request; a :class:`Reader`, in contrast, can be read only once."""

    def __init__(self, uri: Uris, ticket: Ticket, client: Client | None, options: GetOptions) -> None:
        """Checks the arguments, so that a query does not fail for them later; asks for nothing."""
        _arguments.uris_bytes(uri)
        _arguments.ticket_bytes(ticket)
        _options.of_get(options)
        if options.get("device", "cpu") != "cpu":
            raise _errors.UnsupportedError("the engine reads host memory: use dipc.get() for a device")
        self._uri, self._ticket, self._client, self._options = uri, ticket, client, options
        self._schema: Schema | None = None

    def schema(self) -> Schema:
        """The schema is asked for once, because the engine's plan relies on it."""
        if self._schema is None:
            schema = self._ask()
            for column in schema.children:
                if _has_wide_decimals(column):
                    raise _errors.UnsupportedError(
                        f"the engine has no type for column {column.name!r}, a decimal of 256 bits: name the others by "
                        "the option columns=, or have the server cast it"
                    )
            self._schema = schema
        return self._schema

    def _ask(self) -> Schema:
        if self._options.get("columns") is not None:
            # A description has all columns.
            with self._get(self._options) as reader:
                return reader.schema
        known = RequestOptions.__annotations__
        options = cast("RequestOptions", {name: value for name, value in self._options.items() if name in known})
        try:
            schema = self._asked().describe(self._uri, self._ticket, **options).schema
        except _errors.UnsupportedError:
            schema = None
        if schema is not None:
            return schema
        # The stream begins with it.
        with self._get(self._options) as reader:
            return reader.schema

    def open(
        self, columns: Sequence[str] | None = None, rows: int | None = None, filter: bytes | None = None
    ) -> Reader:
        """Asks for the table.

        :param columns: Those that are needed, if not all are. A server that knows no selections sends all, and all
            are asked for if a request cannot name so many.
        :param rows: How many rows are needed; a server that knows no selections sends all.
        :param filter: A filter that all needed rows pass. Other rows may come too: from a server that cannot evaluate
            the filter, if the filter is too long for a request, and if the options select rows, because the filter
            would change which rows they count.
        :raises InvalidDataError: it has other columns than :meth:`schema` says, by which the engine would read them.
        """
        schema, wanted = self.schema(), self._wanted(columns, rows)
        if not _options.fits(wanted):
            wanted = self._wanted(None, rows)
        ways = [wanted] if wanted == self._options else [wanted, self._options]
        if filter is not None and all(self._options.get(name) is None for name in ("filter", "first_row", "rows")):
            filtered = cast("GetOptions", {**wanted, "filter": filter})
            if _options.fits(filtered):
                ways.insert(0, filtered)
        reader = self._first(ways)
        found, known = _columns(reader.schema), _columns(schema)
        if found != known and (columns is None or not set(found) <= set(known)):
            reader.close()
            raise _errors.InvalidDataError(
                f"the table is {reader.schema!r}, and was described as {schema!r}: scan or register it again if it was "
                "replaced, or have the server describe what it sends"
            )
        return reader

    def _wanted(self, columns: Sequence[str] | None, rows: int | None) -> GetOptions:
        """The options of a stream of no more than an engine needs."""
        wanted = self._options.copy()
        if columns is not None:
            wanted["columns"] = columns
        if rows is not None:
            most = wanted.get("rows")
            wanted["rows"] = rows if most is None else min(rows, most)
        return wanted

    def _first(self, ways: Sequence[GetOptions]) -> Reader:
        """The stream by the first options that the server supports."""
        for options in ways[:-1]:
            with contextlib.suppress(_errors.UnsupportedError):
                return self._get(options)
        return self._get(ways[-1])

    def _get(self, options: GetOptions) -> Reader:
        return self._asked().get(self._uri, self._ticket, **options)

    def _asked(self) -> Client:
        return self._client or shared_client()

    def __arrow_c_schema__(self) -> object:
        return self.schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A PyCapsule of a new stream."""
        return self.open().__arrow_c_stream__()

    def __repr__(self) -> str:
        return f"<dipc table {self._ticket!r} of {self._uri!r}>"


def _has_wide_decimals(schema: Schema) -> bool:
    parts = [*schema.children, *([] if schema.dictionary is None else [schema.dictionary])]
    return (schema.format.startswith("d:") and schema.format.endswith(",256")) or any(map(_has_wide_decimals, parts))


def _columns(schema: Schema) -> tuple[object, ...]:
    """Names and types of the columns."""
    return tuple((child.name, _type(child)) for child in schema.children)


def _type(schema: Schema) -> tuple[object, ...]:
    """The type. The name of a list's values is ignored, and nullability and metadata may change."""
    has_names = schema.format == "+s"
    return (
        schema.format,
        tuple((child.name if has_names else "", _type(child)) for child in schema.children),
        None if schema.dictionary is None else _type(schema.dictionary),
    )
