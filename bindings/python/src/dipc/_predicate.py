"""Predicates of polars as filters of a server.

Polars evaluates its predicate in any case, so a filter may let more rows pass: conditions without a translation are
left out. The only public form of expressions is JSON, which may change with a version of polars: an expression of
another form than those here has no translation.
"""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, Any

from . import _substrait

if TYPE_CHECKING:
    import polars as pl

_MOST_BYTES = 64 << 10
_MOST_LEVELS = 32
_MOST_CONDITIONS = 200
"""The server's own limits are higher, because some conditions become several expressions."""

_COMPARISONS = {"Eq": "equal", "NotEq": "not_equal", "Lt": "lt", "LtEq": "lte", "Gt": "gt", "GtEq": "gte"}
_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_BETWEEN = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_DIGITS = {"Milliseconds": 3, "Microseconds": 6, "Nanoseconds": 9}
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}

_INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_FLOATS = ("Float32", "Float64")
_CATEGORIES = ("Categorical", "Enum")
_ORDERED = ("Boolean", "String", "Binary", "Date", "Time", "Datetime", "Duration", "Decimal", *_INTEGERS)
_KINDS = (*_ORDERED, *_FLOATS, *_CATEGORIES)


class _NoTranslation(Exception):  # noqa: N818  it never leaves this file
    """The server cannot be asked for this."""


def filter_of(predicate: pl.Expr, schema: pl.Schema) -> bytes | None:
    """A filter that passes at least the rows that `predicate` passes.

    None if `predicate` cannot be translated, so that the server has to send every row.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        translation = _Translation(schema)
        condition, _ = translation.condition(tree, 0)
        message = translation.message.encode(condition)
    except (_NoTranslation, ValueError, TypeError, RecursionError, ArithmeticError):
        return None
    return message if len(message) <= _MOST_BYTES else None


def _parts(node: Any, *keys: str) -> list[Any]:
    """The values of an object that has these keys and no others."""
    if not isinstance(node, dict) or set(node) != set(keys):
        raise _NoTranslation
    return [node[key] for key in keys]


def _is(node: Any, key: str) -> bool:
    return isinstance(node, dict) and set(node) == {key}


class _Translation:
    """Conditions as bytes, each with a flag: whether exactly the rows pass that pass in polars."""

    def __init__(self, schema: pl.Schema) -> None:
        self.message = _substrait.Message()
        self._schema = schema
        self._conditions = 0

    def condition(self, node: Any, level: int) -> tuple[bytes, bool]:
        self._conditions += 1
        if level > _MOST_LEVELS or self._conditions > _MOST_CONDITIONS:
            raise _NoTranslation
        if _is(node, "Column"):
            name = node["Column"]
            if self._kind(name) != "Boolean":
                raise _NoTranslation
            return self.message.column(name), True
        if _is(node, "BinaryExpr"):
            left, op, right = _parts(node["BinaryExpr"], "left", "op", "right")
            if op in ("And", "Or"):
                return self._joined(op, left, right, level + 1)
            return self._comparison(op, left, right)
        [call] = _parts(node, "Function")
        inputs, function = _parts(call, "input", "function")
        if _is(function, "Boolean"):
            return self._boolean(function["Boolean"], inputs, level + 1)
        [test] = _parts(function, "StringExpr")
        return self._text(test, inputs)

    def _joined(self, op: str, left: Any, right: Any, level: int) -> tuple[bytes, bool]:
        both = []
        for side in (left, right):
            try:
                both.append(self.condition(side, level))
            except _NoTranslation:
                # Rows that pass both pass the side that has a translation.
                if op == "Or":
                    raise
        if not both:
            raise _NoTranslation
        if len(both) == 1:
            return both[0][0], False
        (one, is_exact), (other, is_other_exact) = both
        return self.message.call(op.lower(), one, other), is_exact and is_other_exact

    def _comparison(self, op: str, left: Any, right: Any) -> tuple[bytes, bool]:
        if op not in _COMPARISONS:
            raise _NoTranslation
        if _is(left, "Literal"):
            left, op, right = right, _TURNED.get(op, op), left
        [name] = _parts(left, "Column")
        if _is(right, "Literal"):
            return self._compared(op, name, right["Literal"])
        [other] = _parts(right, "Column")
        if self._kind(name) not in _ORDERED or self._schema[name] != self._schema.get(other):
            raise _NoTranslation
        return self.message.call(_COMPARISONS[op], self.message.column(name), self.message.column(other)), True

    def _compared(self, op: str, name: str, literal: Any) -> tuple[bytes, bool]:
        kind = self._kind(name)
        # Categories have orders of their own.
        if kind in _CATEGORIES and op not in ("Eq", "NotEq"):
            raise _NoTranslation
        column, value = self.message.column(name), self._literal(name, literal)
        condition = self.message.call(_COMPARISONS[op], column, value)
        # To polars NaN is the largest number; to the server it is not comparable.
        if kind in _FLOATS and op in ("Gt", "GtEq"):
            condition = self.message.call("or", condition, self.message.call("is_nan", column))
        return condition, kind not in _FLOATS

    def _boolean(self, function: Any, inputs: list[Any], level: int) -> tuple[bytes, bool]:
        first, *others = inputs
        if function == "Not":
            condition, is_exact = self.condition(first, level)
            # If more rows pass a condition than in polars, fewer pass its opposite.
            if not is_exact:
                raise _NoTranslation
            return self.message.call("not", condition), True
        if _is(function, "IsBetween"):
            [closed] = _parts(function["IsBetween"], "closed")
            if closed not in _BETWEEN:
                raise _NoTranslation
            bounds = zip(_BETWEEN[closed], others)
            (low, is_exact), (high, _) = (self._comparison(op, first, bound) for op, bound in bounds)
            return self.message.call("and", low, high), is_exact
        [name] = _parts(first, "Column")
        if _is(function, "IsIn"):
            [nulls_equal] = _parts(function["IsIn"], "nulls_equal")
            [literal] = _parts(*others, "Literal")
            if nulls_equal is not False:
                raise _NoTranslation
            return self._any_of(name, literal)
        called = {"IsNull": "is_null", "IsNotNull": "is_not_null", "IsNan": "is_nan"}.get(function)
        if called is None or name not in self._schema or (called == "is_nan" and self._kind(name) not in _FLOATS):
            raise _NoTranslation
        return self.message.call(called, self.message.column(name)), True

    def _any_of(self, name: str, literal: Any) -> tuple[bytes, bool]:
        import polars as pl

        kind = self._kind(name)
        if kind not in (*_INTEGERS, "String", *_CATEGORIES):
            raise _NoTranslation
        [scalar] = _parts(literal, "Scalar")
        [stored] = _parts(scalar, "List")
        try:
            # A series, as a stream of Arrow.
            values = pl.read_ipc_stream(io.BytesIO(bytes(stored))).to_series().to_list()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _NoTranslation from error
        known = [value for value in values if value is not None]
        if not known or not all(isinstance(value, int if kind in _INTEGERS else str) for value in known):
            raise _NoTranslation
        literals = [_substrait.integer(value) if kind in _INTEGERS else _substrait.text(value) for value in known]
        # A null in the list equals no value, and makes the result for other values unknown.
        return _substrait.any_of(self.message.column(name), literals), len(known) == len(values)

    def _text(self, test: Any, inputs: list[Any]) -> tuple[bytes, bool]:
        column, pattern = inputs
        [name], [literal] = _parts(column, "Column"), _parts(pattern, "Literal")
        called = {"StartsWith": "starts_with", "EndsWith": "ends_with"}.get(test) if isinstance(test, str) else None
        if _is(test, "Contains"):
            is_plain, _ = _parts(test["Contains"], "literal", "strict")
            called = "contains" if is_plain is True else None
        if called is None or self._kind(name) != "String":
            raise _NoTranslation
        return self.message.call(called, self.message.column(name), self._literal(name, literal)), True

    def _kind(self, name: str) -> str:
        """The type of a column that the server compares as polars does."""
        kind = type(self._schema.get(name)).__name__
        return kind if kind in _KINDS else "other"

    def _literal(self, name: str, literal: Any) -> bytes:
        """A value of the column's own type: polars casts values of other types first."""
        kind = self._kind(name)
        [scalar] = _parts(literal, "Scalar")
        [value] = _parts(scalar, "String" if kind in _CATEGORIES else kind)
        if value is None:
            raise _NoTranslation
        if kind in _INTEGERS:
            return _substrait.integer(value)
        if kind in _FLOATS:
            # An integer is an integer in JSON too.
            if not math.isfinite(value):
                raise _NoTranslation
            return _substrait.single(value) if kind == "Float32" else _substrait.double(value)
        if kind in ("Datetime", "Duration"):
            return self._time(name, *value)
        if kind == "Decimal":
            return _substrait.decimal(*value)
        make = {
            "Boolean": _substrait.boolean,
            "Binary": lambda value: _substrait.binary(bytes(value)),
            "Date": _substrait.date,
            "Time": lambda value: _substrait.time(value, 9),
        }
        literal_of: Any = make.get(kind, _substrait.text)
        made: bytes = literal_of(value)
        return made

    def _time(self, name: str, value: int, unit: str, zone: Any = None) -> bytes:
        data_type: Any = self._schema[name]
        if _UNITS.get(unit) != data_type.time_unit:
            raise _NoTranslation
        if self._kind(name) == "Duration":
            return _substrait.duration(value, _DIGITS[unit])
        if (zone is None) != (data_type.time_zone is None):
            raise _NoTranslation
        return _substrait.timestamp(value, _DIGITS[unit], zoned=zone is not None)
