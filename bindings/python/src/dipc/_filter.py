"""Filters of a get that are expressions of pyarrow: they become messages by the schema of the ticket's table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from . import _arguments, _errors, _options
from ._arguments import Expression, Ticket
from ._description import Description
from ._options import GetOptions, RequestOptions

if TYPE_CHECKING:
    import pyarrow as pa


class Unbound:
    """A get whose filter is an expression. The ticket is described first, and then the filter is bytes."""

    def __init__(self, ticket: Ticket, expression: Expression, options: GetOptions) -> None:
        """Checks the options, so that the server is asked nothing for those that are wrong."""
        _options.of_get(options)
        self._ticket, self._expression, self._options = ticket, expression, options
        self._begun = time.monotonic()
        known = RequestOptions.__annotations__
        asked = {name: value for name, value in options.items() if name in known}
        self.question = cast("RequestOptions", asked)
        """The options of the request for a description."""

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Wraps the description of the ticket: if the server describes none, the error names the remedy."""
        try:
            yield
        except _errors.UnsupportedError as error:
            raise self._undescribed() from error

    def _undescribed(self) -> _errors.UnsupportedError:
        return _errors.UnsupportedError(
            f"the server does not say the schema of {self._ticket!r}, which a filter needs that is an expression: "
            "give filter=expression.to_substrait(schema), or have the server describe the ticket"
        )

    def bound(self, description: Description) -> GetOptions:
        """The options of the get itself, in the time that is left."""
        if description.schema is None:
            raise self._undescribed()
        import pyarrow as pa

        options = self._options.copy()
        options["filter"] = _message(self._expression, pa.schema(description.schema))
        deadline = options.get("deadline")
        if deadline is not None:
            options["deadline"] = max(deadline - (time.monotonic() - self._begun), 0.0)
        return options


def unbound(ticket: Ticket, options: GetOptions) -> Unbound | None:
    """The get, if its filter is an expression."""
    given = options.get("filter")
    return Unbound(ticket, given, options) if _arguments.is_expression(given) else None


_ARITHMETIC = ("add", "subtract", "multiply", "divide", "modulus", "negate")


def _message(expression: Expression, schema: pa.Schema) -> Any:
    """The expression for tables of a schema, as a message of Substrait."""
    import pyarrow as pa

    try:
        return _substrait_of(expression, schema, pa.int64())
    except _errors.UnsupportedError:
        # If integers are compared with other numbers, pyarrow would put a cast of the column into the message.
        with contextlib.suppress(_errors.DipcError):
            message = _substrait_of(expression, schema, pa.float64())
            # The quotient of integers differs from that of floats. A function's name is field 3 of its declaration.
            if not any(bytes([0x1A, len(name)]) + name.encode() in bytes(message) for name in _ARITHMETIC):
                return message
        raise


def _substrait_of(expression: Expression, schema: pa.Schema, whole: pa.DataType) -> Any:
    """The message, with `whole` as the type of integers."""
    import pyarrow as pa

    schema = pa.schema([field.with_type(_plain(field.type, whole)) for field in schema])
    # The message needs only the columns that the expression names.
    expressible = pa.schema([field for field in schema if _is_expressible(field)])
    try:
        return expression.to_substrait(expressible, allow_arrow_extensions=True)
    except pa.ArrowException as error:
        left_out = [name for name in schema.names if name not in expressible.names]
        named = [name for name in left_out if f"FieldRef.Name({name})" in str(error)]
        is_wrong = "No match for FieldRef" in str(error) and not named
        why = f"Substrait has no form for the type of column {named[0]}" if named else str(error)
        text = f"pyarrow makes no message of the filter {expression}: {why}"
        if is_wrong:
            raise _errors.InvalidArgumentError(text) from error
        raise _errors.UnsupportedError(f"{text}; leave this condition out, and filter the rows that come") from error


def _plain(type: pa.DataType, whole: pa.DataType) -> pa.DataType:
    """A type for a column's values that makes pyarrow write no casts. The server ignores these types.

    Numbers get the widest type, because its literals are plain numbers; for other number types pyarrow may fail to make
    a message.
    """
    import pyarrow as pa
    from pyarrow import types

    if isinstance(type, (pa.DictionaryType, pa.RunEndEncodedType)):
        return _plain(type.value_type, whole)
    if isinstance(type, pa.BaseExtensionType):
        return _plain(type.storage_type, whole)
    if isinstance(type, pa.StructType):
        return pa.struct([field.with_type(_plain(field.type, whole)) for field in type])
    if types.is_integer(type):
        # No other type holds all values of the widest unsigned type.
        return type if type == pa.uint64() and whole == pa.int64() else whole
    if type in (pa.float16(), pa.float32()):
        return pa.float64()
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(type, type)


def _is_expressible(field: pa.Field) -> bool:
    """Whether Substrait has a form for the type of a column."""
    import pyarrow as pa
    from pyarrow import substrait

    try:
        substrait.serialize_schema(pa.schema([field]))
    except NotImplementedError:
        return False
    return True
