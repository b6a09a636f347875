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
        """While the ticket is described: the error of a server that describes none has the remedy."""
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


def _message(expression: Expression, schema: pa.Schema) -> Any:
    """The expression for tables of a schema, as a message of Substrait."""
    import pyarrow as pa

    schema, left_out = pa.schema([field.with_type(_plain(field.type)) for field in schema]), []
    try:
        try:
            return expression.to_substrait(schema, allow_arrow_extensions=True)
        except NotImplementedError:
            # A column's type, maybe. The message needs none but the columns that the expression names.
            left_out = [field.name for field in schema if not _is_expressible(field)]
            if not left_out:
                raise
            fewer = pa.schema([field for field in schema if field.name not in left_out])
            return expression.to_substrait(fewer, allow_arrow_extensions=True)
    except pa.ArrowException as error:
        is_unknown = isinstance(error, NotImplementedError)
        kind = _errors.UnsupportedError if is_unknown else _errors.InvalidArgumentError
        note = f" (Substrait has no form for the types of {', '.join(left_out)})" if left_out else ""
        raise kind(f"pyarrow makes no message of the filter {expression}: {error}{note}") from error


def _plain(type: pa.DataType) -> pa.DataType:
    """The type of a column's values. The server asks for no types, and pyarrow would write casts to that one."""
    import pyarrow as pa

    if isinstance(type, (pa.DictionaryType, pa.RunEndEncodedType)):
        return _plain(type.value_type)
    if isinstance(type, pa.BaseExtensionType):
        return _plain(type.storage_type)
    if isinstance(type, pa.StructType):
        return pa.struct([field.with_type(_plain(field.type)) for field in type])
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
