"""Conditions of polars that a server evaluates."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math

import pytest

import dipc
from dipc import _predicate
from dipc._table import Table

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

NAN = math.nan
UTC = dt.timezone.utc
COLUMNS = {
    "int8": pl.Series([-1, 0, None, 5, 100], dtype=pl.Int8),
    "int64": pl.Series([-(2**63), 0, None, 5, 2**63 - 1], dtype=pl.Int64),
    "uint32": pl.Series([1, 0, None, 5, 2**32 - 1], dtype=pl.UInt32),
    "uint64": pl.Series([1, 0, None, 5, 2**64 - 1], dtype=pl.UInt64),
    "float32": pl.Series([-0.0, 1.5, None, NAN, math.inf], dtype=pl.Float32),
    "float64": pl.Series([0.0, -1.5, None, NAN, 1e300], dtype=pl.Float64),
    "text": pl.Series(["", "abc", None, "a_c%", "Ä"]),
    "bytes": pl.Series([b"", b"abc", None, b"\xff", b"b"]),
    "truth": pl.Series([True, False, None, True, False]),
    "date": pl.Series([-1, 0, None, 5, 20_000]).cast(pl.Date),
    "millis": pl.Series([-1, 0, None, 5, 20_000]).cast(pl.Datetime("ms")),
    "zoned": pl.Series([-1, 0, None, 5, 20_000]).cast(pl.Datetime("us", "UTC")),
    "time": pl.Series([1, 0, None, 5, 20_000]).cast(pl.Time),
    "duration": pl.Series([-1, 0, None, 5, 86_400_000_001]).cast(pl.Duration("us")),
    "decimal": pl.Series(["-1.5", "0", None, "2.25", "99999"]).str.to_decimal(scale=2),
    "category": pl.Series(["b", "a", None, "c", "a"], dtype=pl.Categorical),
    "enumeration": pl.Series(["b", "a", None, "c", "a"], dtype=pl.Enum(["c", "b", "a"])),
    "list": pl.Series([[1], [], None, [2, 3], [None]]),
}
ROWS = 5


def table():
    frame = pl.DataFrame({"row": range(ROWS), **COLUMNS})
    others = frame.reverse().select(pl.col(name).alias(f"{name} turned") for name in COLUMNS)
    return frame.hstack(others)


def column(name):
    return pl.col(name)


COMPARED = {
    "int8": 5,
    "int64": 5,
    "uint32": 5,
    "uint64": 2**64 - 1,
    "float32": 1.5,
    "float64": -1.5,
    "text": "abc",
    "bytes": b"abc",
    "truth": True,
    "date": dt.date(1970, 1, 6),
    "millis": dt.datetime(1970, 1, 1, 0, 0, 0, 5000),
    "zoned": dt.datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC),
    "time": dt.time(0, 0, 0, 0),
    "duration": dt.timedelta(microseconds=-1),
    "decimal": decimal.Decimal("2.25"),
}
COMPARISONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
CONDITIONS = {
    **{
        f"{name} {op} {value!r}": compare(column(name), value)
        for name, value in COMPARED.items()
        for op, compare in COMPARISONS.items()
    },
    **{
        f"{name} {op} {name} turned": compare(column(name), column(f"{name} turned"))
        for name in COMPARED
        if "float" not in name
        for op, compare in COMPARISONS.items()
    },
    **{f"{name} is null": column(name).is_null() for name in COLUMNS},
    **{f"{name} is not null": column(name).is_not_null() for name in COLUMNS},
    **{
        f"{name} between, {closed}": column(name).is_between(
            pl.lit(COMPARED[name]), pl.lit(COMPARED[name]), closed=closed
        )
        for name in ("int8", "float64", "text", "date")
        for closed in ("both", "left", "right", "none")
    },
    "zero and above": column("float32") >= 0,
    "below zero": column("float32") < 0,
    "nan": column("float64").is_nan(),
    "a truth": column("truth"),
    "no truth": ~column("truth"),
    "a category": column("category") == "a",
    "a value of an enumeration": column("enumeration") != "a",
    "in a list": column("int8").is_in([5, 0]),
    "in a list of texts": column("text").is_in(["abc", "Ä", "x"]),
    "in a list with a null": column("int8").is_in([5, None]),
    "not in a list": ~column("int8").is_in([5, 0]),
    "begins": column("text").str.starts_with("a"),
    "ends": column("text").str.ends_with("%"),
    "contains": column("text").str.contains("_", literal=True),
    "does not contain": ~column("text").str.contains("_", literal=True),
    "both": (column("int8") > 0) & (column("text") != "Ä"),
    "one": (column("int8") < 0) | column("float64").is_nan() | (column("row") == 1),
    "the value first": pl.lit(2) < column("int64"),
    "one of which the server knows": (column("int64") % 3 == 2) & (column("int8") > 0),
}
HERE = {
    # The remainder of polars has the sign of the divisor.
    "a remainder": column("int64") % 3 == 2,
    "one of which the server knows": (column("int64") % 3 == 2) | (column("int8") > 0),
    "the opposite of a part": ~((column("int64") % 3 == 2) & (column("int8") > 0)),
    "the opposite of floats": (column("float64") > 1).eq_missing(False),
    "floats of two columns": column("float64") < column("float64 turned"),
    "another type": column("int64") > 2.5,
    "the order of an enumeration": column("enumeration") > "b",
    "a pattern": column("text").str.contains("a.c"),
    "the same null": column("text").eq_missing("abc"),
    "in a list with null as a value": column("int8").is_in([5, None], nulls_equal=True),
    "a list": column("list").list.len() > 1,
}


@pytest.fixture
def asked(server):
    """The URI of a server of the table, and the filters that it was asked for."""
    filters = []

    def table_of(request):
        filters.append(request.filter)
        return table()

    server.serve("table", table_of)
    schema = pa.RecordBatchReader.from_stream(table()).schema
    server.set_description("table", dipc.Description(schema))
    return server.uri, filters


def collected(uri, condition, **options):
    return dipc.polars.scan(uri, "table", **options).filter(condition).collect()


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_passes_the_rows_of_polars(asked, name):
    uri, filters = asked
    assert collected(uri, CONDITIONS[name]).equals(table().filter(CONDITIONS[name]))
    [filter] = filters
    assert filter is not None
    # Few other rows came over: those with NaN, or with conditions that only polars knows.
    came = dipc.get(uri, "table", filter=filter, columns=["row"]).read_all()
    expected = set(table().filter(CONDITIONS[name])["row"])
    assert expected <= set(came["row"].to_pylist())
    assert len(came) <= len(expected) + (1 if "float" in name else 2 * ("knows" in name) + ("zero" in name))


@pytest.mark.parametrize("name", HERE)
def test_what_the_server_does_not_know_is_evaluated_here(asked, name):
    uri, filters = asked
    assert collected(uri, HERE[name]).equals(table().filter(HERE[name]))
    assert filters == [None]


def test_rows_are_counted_before_a_condition(asked):
    uri, filters = asked
    source = Table(uri, "table", None, {})
    [frame] = dipc.polars._read(source, ["row"], pl.col("row") > 1, 3, None)
    assert frame["row"].to_list() == [2]
    assert filters == [None]
    lazy = dipc.polars.scan(uri, "table")
    assert lazy.head(3).filter(pl.col("row") > 1).collect()["row"].to_list() == [2]
    assert lazy.filter(pl.col("row") > 1).head(2).collect()["row"].to_list() == [2, 3]


def test_fewer_rows_come(server):
    server.publish("long", pl.DataFrame({"number": range(100_000), "half": [n / 2 for n in range(100_000)]}))
    lazy = dipc.polars.scan(server.uri, "long").filter(pl.col("number") >= 99_990).select("half")
    # The description is a row too.
    lazy.collect_schema()
    before = server.stats.rows
    assert lazy.collect().height == 10
    assert server.stats.rows - before == 10


def test_the_callers_own_filter_is_kept(asked):
    uri, filters = asked
    own = _predicate.filter_of(pl.col("row") < pl.lit(3, dtype=pl.Int64), table().schema)
    assert own is not None
    frame = collected(uri, pl.col("row") > 0, filter=own)
    assert frame["row"].to_list() == [1, 2]
    assert filters == [own]


@pytest.mark.parametrize(("options", "rows"), [({"rows": 2}, [1]), ({"first_row": 3}, [3, 4]), ({"rows": 0}, [])])
def test_the_callers_own_rows_are_kept(asked, options, rows):
    uri, filters = asked
    assert collected(uri, pl.col("row") > 0, **options)["row"].to_list() == rows
    assert filters == [None]


@pytest.mark.parametrize("refused", ["filter", "selection"])
def test_a_server_of_an_earlier_release(refused):
    def refuse(request):
        if request.filter is not None or (refused == "selection" and request.columns is not None):
            raise dipc.UnsupportedError("what may this be?")

    with dipc.Server(authorizer=refuse) as server:
        server.publish("table", table())
        uri = server.listen(f"shm:@dipc-python-earlier-{refused}")
        frame = dipc.polars.scan(uri, "table").filter(pl.col("int8") > 0).select("row").collect()
        assert frame["row"].to_list() == [3, 4]


@pytest.mark.parametrize(
    "tree",
    [
        "no JSON",
        [],
        {"Column": 1},
        {"BinaryExpr": {"left": {"Column": "int8"}, "op": "Gt"}},
        {"BinaryExpr": {"left": {"Column": "int8"}, "op": "Gt", "right": {"Literal": {"Scalar": {"Int8": "1"}}}}},
        {"BinaryExpr": {"left": {"Column": "int8"}, "op": "Gt", "right": {"Literal": 1}}, "options": {}},
        {"BinaryExpr": {"left": {"Column": "int8"}, "op": "Gt", "right": {"Literal": 1}, "nulls": "last"}},
        {"Function": {"input": [], "function": {"Boolean": "Not"}}},
        {"Function": {"input": [{"Column": "int8"}], "function": {"Boolean": {"IsIn": {}}}}},
    ],
)
def test_a_form_of_another_version_is_no_condition(tree):
    class Predicate:
        meta = property(lambda self: self)

        def serialize(self, format):  # noqa: ARG002  the name of polars
            return tree if isinstance(tree, str) else json.dumps(tree)

    assert _predicate.filter_of(Predicate(), table().schema) is None


def test_a_condition_that_is_too_large_is_no_filter():
    wide = pl.col("text").is_in([f"{n:09}" for n in range(10_000)])
    deep = pl.col("int8") > 0
    for value in range(300):
        deep = deep | (pl.col("int8") == value % 100)
    for condition in (wide, deep):
        assert _predicate.filter_of(condition, table().schema) is None
