"""Filters of a get: the server gives the rows that pass."""

from __future__ import annotations

import datetime as dt
import decimal
import struct

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dipc
from conftest import table

ROWS = 1000
TABLE = table(ROWS)
DAY = dt.date(2024, 1, 1)
NOON = dt.datetime(2024, 1, 1, 12)
TYPES = pa.table(
    {
        "flag": pa.array([True, False, None, True]),
        "small": pa.array([1, -2, None, 100], pa.int8()),
        "age": pa.array([1, 200, None, 7], pa.uint8()),
        "port": pa.array([1, 40_000, None, 80], pa.uint16()),
        "id": pa.array([1, 4_000_000_000, None, 5], pa.uint32()),
        "count": pa.array([1, 2, None, 3], pa.int64()),
        "single": pa.array([0.5, 1.6, None, 2.0], pa.float32()),
        "large": pa.array([1, 2**64 - 1, None, 0], pa.uint64()),
        "half": pa.array([0.5, float("nan"), None, -0.0]),
        "money": pa.array([decimal.Decimal(text) if text else None for text in ("1.10", "-2.00", "", "99.99")]),
        "text": pa.array(["apple", "Banana", None, ""]),
        "long": pa.array(["a", "b", None, "c"], pa.large_string()),
        "raw": pa.array([b"a", b"\xff", None, b""]),
        "day": pa.array([DAY, DAY + dt.timedelta(1), None, DAY - dt.timedelta(9)]),
        "time": pa.array([NOON, NOON + dt.timedelta(1), None, NOON], pa.timestamp("us")),
        "word": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "inner": pa.array([{"a": 1}, {"a": 2}, None, {"a": None}]),
        # Substrait has no form for them.
        "lasts": pa.array([1, 2, None, 4], pa.duration("s")),
        "vector": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int8(), 2)),
    }
)
FIELD = pc.field
EXPRESSIONS = [
    FIELD("flag"),
    ~FIELD("flag"),
    FIELD("small") > 0,
    FIELD("small") + 1 == 2,
    FIELD("small") < 99.5,
    FIELD("age") > 5,
    FIELD("age") > pa.scalar(5, pa.uint8()),
    FIELD("port") == 40_000,
    FIELD("id") < 3_000_000_000.5,
    FIELD("count") > 1.5,
    FIELD("count") > FIELD("half"),
    FIELD("single") > 1.6,
    FIELD("single") == pa.scalar(1.6, pa.float32()),
    FIELD("single").isin([0.5, 2.0]),
    FIELD("large") == pa.scalar(2**64 - 1, pa.uint64()),
    FIELD("half") >= 0.0,
    pc.is_nan(FIELD("half")),
    FIELD("money") < decimal.Decimal("1.11"),
    FIELD("text") == "apple",
    FIELD("text").isin(["apple", ""]),
    FIELD("text").is_null(),
    FIELD("text").is_valid() & (FIELD("small") < 50),
    (FIELD("text") == "") | (FIELD("small") == 1),
    pc.starts_with(FIELD("text"), "app"),
    pc.utf8_lower(FIELD("text")) == "banana",
    FIELD("long") != "b",
    FIELD("raw") == b"\xff",
    FIELD("day") > DAY,
    FIELD("time") <= NOON,
    FIELD("word") == "x",
    FIELD("inner", "a") == 2,
]


def batches():
    return TABLE.to_batches(max_chunksize=100)


async def coroutine():
    for batch in batches():
        yield batch


def message(expression, schema=TABLE.schema):
    return expression.to_substrait(schema, allow_arrow_extensions=True)


@pytest.fixture
def forms(server):
    """Tickets that stand for the table, each served in another form, and described."""
    server.publish("published", pa.Table.from_batches(batches()))
    server.serve("stream", lambda: pa.Table.from_batches(batches()))
    server.serve("generator", lambda: (batch for batch in batches()))
    for ticket in ("stream", "generator"):
        server.set_description(ticket, dipc.Description(TABLE.schema))
    return ["published", "stream", "generator"]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_rows_pass_as_in_pyarrow(server, expression):
    server.publish("types", TYPES)
    expected = TYPES.filter(expression)
    assert 0 < expected.num_rows < TYPES.num_rows
    found = dipc.get(server.uri, "types", filter=expression).read_all()
    # Where NaN is, nothing equals.
    assert found.drop_columns("half").equals(expected.drop_columns("half"))
    assert str(found["half"]) == str(expected["half"])


def test_every_form_is_filtered(server, forms):
    expression = (FIELD("number") >= 250) & pc.ends_with(FIELD("text"), "7")
    for ticket in forms:
        for filter in (expression, message(expression), bytes(message(expression))):
            assert dipc.get(server.uri, ticket, filter=filter).read_all().equals(TABLE.filter(expression)), ticket


def test_coroutines_filter_and_are_filtered(server, run):
    async def main():
        server.serve("coroutine", coroutine)
        server.set_description("coroutine", dipc.Description(TABLE.schema))
        expression = FIELD("number") > 900
        for filter in (expression, message(expression)):
            reader = await dipc.aget(server.uri, "coroutine", filter=filter, deadline=30)
            assert (await reader.aread_all()).equals(TABLE.filter(expression))

    run(main())


def test_rows_are_counted_behind_the_filter_and_columns_taken_last(server, forms):
    expression = pc.ends_with(FIELD("text"), "5")
    passing = TABLE.filter(expression)
    for ticket in forms:
        found = dipc.get(server.uri, ticket, filter=expression, first_row=10, rows=20, columns=["number"])
        assert found.read_all().equals(passing.select(["number"])[10:30]), ticket
        # The filter reads a column that is not wanted.
        found = dipc.get(server.uri, ticket, filter=FIELD("number") == 7, columns=["text"]).read_all()
        assert found.to_pydict() == {"text": ["row 7"]}, ticket
        with dipc.get(server.uri, ticket, filter=expression, columns=[]) as reader:
            assert sum(len(batch) for batch in reader) == passing.num_rows


def test_what_does_not_pass_is_not_sent(server, forms):
    uri = server.listen("tcp://127.0.0.1:0")
    for ticket in forms:
        with dipc.get(uri, ticket, filter=FIELD("number") < 3, columns=["number"]) as reader:
            for _ in reader:
                pass
            assert 0 < reader.stats.bytes_received < 500, ticket


def test_a_provider_sees_the_filter_and_may_filter_by_itself(server):
    seen = []

    def provider(request):
        seen.append(request.filter)
        if request.filter is None:
            return TABLE
        request.take_selection()
        rows = TABLE.filter(pc.Expression.from_substrait(request.filter))
        return rows.select(request.columns)[request.first_row :][: request.rows]

    server.serve("table", provider)
    given = message(FIELD("number") > 500)
    assert dipc.get(server.uri, "table").read_all().equals(TABLE)
    found = dipc.get(server.uri, "table", filter=given, columns=["text"], first_row=1, rows=2).read_all()
    assert found.to_pydict() == {"text": ["row 502", "row 503"]}
    assert seen == [None, bytes(given)]


def test_what_a_provider_gives_is_not_filtered_again(server):
    def provider(request):
        request.take_selection()
        return TABLE

    server.serve("table", provider)
    assert dipc.get(server.uri, "table", filter=message(FIELD("number") > 500)).read_all().equals(TABLE)


def test_a_provider_that_raises_is_heard(server):
    def provider(request):
        raise RuntimeError(f"no table for {len(request.filter)} bytes")

    server.serve("table", provider)
    given = message(FIELD("number") > 500)
    with pytest.raises(dipc.ProviderError, match=f"no table for {len(given)} bytes"):
        dipc.get(server.uri, "table", filter=given)


def test_a_column_that_is_not_there_is_named(server, forms):
    expression = FIELD("price") > 1
    other = message(expression, pa.schema([("price", pa.int64())]))
    for ticket in forms:
        for filter in (expression, other):
            with pytest.raises(dipc.InvalidArgumentError, match="price"):
                dipc.get(server.uri, ticket, filter=filter)


def test_a_function_that_is_not_supported_is_named(server, forms):
    expression = pc.utf8_length(FIELD("text")) > 5
    for ticket in forms:
        with pytest.raises(dipc.UnsupportedError, match="utf8_length"):
            dipc.get(server.uri, ticket, filter=expression)


def test_columns_are_compared_as_their_values(server):
    """Types that pyarrow itself cannot compare or filter."""
    columns = {
        "row": pa.array(range(4)),
        "runs": pa.RunEndEncodedArray.from_arrays([2, 3, 4], pa.array(["x", None, "y"])),
        "view": pa.array(["x", "y", None, "z"], pa.string_view()),
        "id": pa.array([bytes(16), bytes(range(16)), None, bytes(16)], pa.uuid()),
    }
    server.publish("types", pa.table(columns))
    for expression, rows in [
        (FIELD("runs") == "x", [0, 1]),
        (FIELD("view") >= "y", [1, 3]),
        (FIELD("id") == pa.scalar(bytes(16), pa.binary(16)), [0, 3]),
    ]:
        found = dipc.get(server.uri, "types", filter=expression, columns=["row"]).read_all()
        assert found.to_pydict() == {"row": rows}, expression


def test_what_pyarrow_makes_no_message_of_is_said(server):
    server.publish("types", TYPES)
    with pytest.raises(dipc.UnsupportedError, match=r"filter \(text > 1\).*no kernel"):
        dipc.get(server.uri, "types", filter=FIELD("text") > 1)
    for refused, why in [
        (FIELD("lasts") > pa.scalar(1, pa.duration("s")), "no form for the type of column lasts"),
        # In floating point the quotient, or the number, would differ.
        ((FIELD("count") / 2 == 0) & (FIELD("count") > 1.5), "casts"),
        ((FIELD("count") == 2**53 + 1) | (FIELD("count") > 1.5), "casts"),
    ]:
        with pytest.raises(dipc.UnsupportedError, match=f"{why}.*leave this condition out, and filter the rows that"):
            dipc.get(server.uri, "types", filter=refused)
    with pytest.raises(dipc.InvalidArgumentError, match="No match for .*nothing"):
        dipc.get(server.uri, "types", filter=FIELD("nothing") > 1)


def test_a_row_without_a_result_fails_the_get(server):
    server.publish("published", TABLE)
    with pytest.raises(dipc.InvalidArgumentError, match=r"(?i)divide by zero"):
        dipc.get(server.uri, "published", filter=FIELD("number") / FIELD("number") == 1).read_all()


def test_a_malformed_filter_is_refused(server, forms):
    for ticket in forms:
        for filter in (b"\xff\xff", b"\x00", bytes(70_000), b""):
            with pytest.raises(dipc.InvalidArgumentError):
                dipc.get(server.uri, ticket, filter=filter)


@pytest.mark.parametrize("filter", ["number > 1", 5, pl.col("number") > 1, ["number"]])
def test_what_is_no_filter_is_refused(server, filter):
    with pytest.raises(TypeError, match=r"filter is an expression of pyarrow.compute, or bytes"):
        dipc.get(server.uri, "table", filter=filter)


def test_an_expression_needs_a_described_schema(server, run):
    asked = []

    def provider():
        asked.append(1)
        return TABLE

    server.serve("table", provider)
    expression = FIELD("number") > 1
    with pytest.raises(dipc.UnsupportedError, match=r"does not say the schema of 'table'.*to_substrait\(schema\)"):
        dipc.get(server.uri, "table", filter=expression)
    with pytest.raises(dipc.UnsupportedError, match=r"to_substrait\(schema\)"):
        run(dipc.aget(server.uri, "table", filter=expression))
    # A handler that answers every request by its table.
    server.set_handler(lambda _request: TABLE)
    with pytest.raises(dipc.UnsupportedError, match=r"to_substrait\(schema\)"):
        dipc.get(server.uri, "of the handler", filter=expression)
    assert not asked
    assert dipc.get(server.uri, "table", filter=message(expression)).read_all().num_rows == ROWS - 2


def test_a_ticket_that_is_not_there_is_not_found(server):
    with pytest.raises(dipc.NotFoundError):
        dipc.get(server.uri, "nothing", filter=FIELD("number") > 1)


def test_other_options_are_checked_before_the_server_is_asked():
    with pytest.raises(dipc.InvalidArgumentError, match="first_row"):
        dipc.get("shm:@nobody-listens-here", "table", filter=FIELD("number") > 1, first_row=-1)
    with pytest.raises(TypeError, match="no option 'filter'"):
        dipc.Client().describe("shm:@nobody-listens-here", "table", filter=FIELD("number") > 1)


def test_describing_takes_of_the_deadline_and_can_be_cancelled(server):
    server.publish("table", TABLE)
    expression = FIELD("number") > 1
    with pytest.raises(dipc.TimeoutError):
        dipc.get(server.uri, "table", filter=expression, deadline=0)
    cancel = dipc.Cancel()
    cancel.trigger()
    with pytest.raises(dipc.CancelledError):
        dipc.get(server.uri, "table", filter=expression, cancel=cancel)


def test_lazy_frames_have_filters_of_their_own(server):
    server.publish("table", TABLE)
    frame = dipc.polars.scan(server.uri, "table", filter=FIELD("number") >= 500)
    assert frame.head(3).select("text").collect()["text"].to_list() == ["row 500", "row 501", "row 502"]
    assert frame.filter(pl.col("number") < 510).collect().height == 10


def test_views_of_null_rows_are_undefined(server):
    """Arrow leaves the view of a null row undefined: a filter does not follow it."""
    views = struct.pack("<I4sII", 200, b"xxxx", 5, 900) + struct.pack("<I12s", 3, b"abc")
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(views), pa.py_buffer(b"x" * 1000)]
    column = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    column.validate(full=True)
    server.publish("undefined", pa.table({"text": column}))
    got = dipc.get(server.uri, "undefined", filter=pc.field("text") == "x" * 200).read_all()
    assert pa.table(got).num_rows == 0
    got = dipc.get(server.uri, "undefined", filter=pc.field("text") == "abc").read_all()
    assert pa.table(got)["text"].to_pylist() == ["abc"]
