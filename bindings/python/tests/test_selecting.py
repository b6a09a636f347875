"""Columns and rows of a get: only these are sent."""

from __future__ import annotations

import asyncio

import polars as pl
import pyarrow as pa
import pytest

import dipc
from conftest import table

ROWS = 1000
TABLE = table(ROWS)
SELECTIONS = [
    ({"columns": ["text"]}, TABLE.select(["text"])),
    ({"columns": ("text", "number"), "first_row": 150}, TABLE.select(["text", "number"])[150:]),
    ({"first_row": 100, "rows": 250}, TABLE[100:350]),
    ({"rows": 0}, TABLE[:0]),
    ({"columns": ["number"], "first_row": 990, "rows": 100}, TABLE.select(["number"])[990:]),
]


def batches():
    return TABLE.to_batches(max_chunksize=100)


async def coroutine():
    for batch in batches():
        yield batch


@pytest.fixture
def forms(server):
    """Tickets that stand for the table, each served in another form."""
    server.publish("published", pa.Table.from_batches(batches()))
    server.serve("stream", lambda: pa.Table.from_batches(batches()))
    server.serve("generator", lambda: (batch for batch in batches()))
    return ["published", "stream", "generator"]


@pytest.mark.parametrize(("options", "expected"), SELECTIONS)
def test_every_form_gives_the_selection(server, forms, options, expected):
    for ticket in forms:
        assert pa.table(dipc.get(server.uri, ticket, **options)).equals(expected), ticket


def test_coroutines_select_and_are_selected_of(server, run):
    async def main():
        server.serve("coroutine", coroutine)
        for options, expected in SELECTIONS:
            async with await dipc.aget(server.uri, "coroutine", **options) as reader:
                got = [pa.record_batch(batch) async for batch in reader]
                schema = pa.schema(reader.schema)
            assert pa.Table.from_batches(got, schema).equals(expected)
        await asyncio.sleep(0)

    run(main())


def test_rows_without_columns_are_counted(server, forms):
    for ticket in forms:
        with dipc.get(server.uri, ticket, columns=[], first_row=50, rows=200) as reader:
            got = [pa.record_batch(batch) for batch in reader]
        assert [batch.num_columns for batch in got] == [0] * len(got)
        assert sum(batch.num_rows for batch in got) == 200


def test_a_provider_is_asked_for_no_more_than_is_wanted(server):
    made = []

    def endless():
        while True:
            made.append(1)
            yield batches()[0]

    server.serve("endless", endless)
    assert pa.table(dipc.get(server.uri, "endless", first_row=150, rows=200)).num_rows == 200
    assert len(made) == 4


def test_what_is_not_wanted_is_not_sent(server, forms):
    uri = server.listen("tcp://127.0.0.1:0")
    for ticket in forms:
        with dipc.get(uri, ticket, columns=["number"], rows=100) as reader:
            for _ in reader:
                pass
            assert reader.stats.bytes_received == 832, ticket


def test_a_column_that_is_not_there_is_named(server, forms):
    for ticket in forms:
        with pytest.raises(dipc.InvalidArgumentError, match='"price"; the table has "number", "text"'):
            dipc.get(server.uri, ticket, columns=["price"])


def test_a_provider_may_select_by_itself(server):
    seen = []

    def provider(request):
        seen.append((request.columns, request.first_row, request.rows))
        if request.columns is None:
            return TABLE
        request.take_selection()
        return TABLE.select(request.columns)[request.first_row :][: request.rows]

    server.serve("table", provider)
    assert pa.table(dipc.get(server.uri, "table")).equals(TABLE)
    got = pa.table(dipc.get(server.uri, "table", columns=["text"], first_row=7, rows=5))
    assert got.equals(TABLE.select(["text"])[7:12])
    assert seen == [(None, 0, None), (["text"], 7, 5)]


def test_arguments_are_checked(server):
    with pytest.raises(TypeError, match="list of names"):
        dipc.get(server.uri, "table", columns="text")
    with pytest.raises(dipc.InvalidArgumentError, match="twice"):
        dipc.get(server.uri, "table", columns=["a", "a"])
    with pytest.raises(dipc.InvalidArgumentError, match="first_row"):
        dipc.get(server.uri, "table", first_row=-1)
    with pytest.raises(TypeError, match="no option 'columns'"):
        dipc.Client().describe(server.uri, "table", columns=["a"])


def test_polars_asks_for_what_a_query_needs(server):
    seen = []
    wide = TABLE.append_column("twice", pa.array(range(0, 2 * ROWS, 2)))

    def provider(request):
        seen.append((request.columns, request.rows))
        return wide

    server.serve("table", provider)
    frame = dipc.polars.scan(server.uri, "table")
    frame.collect_schema()
    seen.clear()
    assert frame.select("text").head(3).collect().equals(pl.from_arrow(TABLE.select(["text"])[:3]))
    found = frame.filter(pl.col("number") > 990).select("text").collect()
    assert found.equals(pl.from_arrow(TABLE.select(["text"])[991:]))
    assert seen[0] == (["text"], 3)
    assert sorted(seen[1][0]) == ["number", "text"]
    # Options of the frame narrow the selection further.
    own = dipc.polars.scan(server.uri, "table", columns=["number"], rows=10)
    assert own.collect().equals(pl.from_arrow(TABLE.select(["number"])[:10]))
