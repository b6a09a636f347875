"""Tables of a server in another process, under names of DuckDB's."""

from __future__ import annotations

import pytest

import dipc
from conftest import table
from engines import MOST, ROWS, made, serving

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("duckdb")) as remote:
        yield remote


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def client():
    with dipc.Client() as client:
        yield client


QUERIES = {
    "all": "FROM there",
    "again": "SELECT sum(number), count(*), min(text) FROM there",
    "a count": "SELECT count(*) FROM there",
    "a filter": "SELECT text FROM there WHERE half > 2000 AND number % 7 = 0",
    "rows": "SELECT half, number FROM there ORDER BY number LIMIT 7 OFFSET 4998",
    "groups": "SELECT number % 3, sum(half) FROM there GROUP BY ALL",
    "a self join": "SELECT count(*) FROM there a JOIN there b ON a.number = b.number + 1",
    "a subquery": "SELECT text FROM there WHERE number = (SELECT max(number) FROM there)",
}


def test_queries_give_what_they_give_of_a_table_here(remote, connection):
    """All of one registration."""
    dipc.duckdb.register(connection, "there", remote.uri, "table")
    connection.register("here", made())
    for query in QUERIES.values():
        got, expected = (connection.sql(query.replace("there", name)).fetchall() for name in ("there", "here"))
        assert sorted(got) == sorted(expected) != [], query


def test_each_mention_is_a_stream(remote, connection, client):
    dipc.duckdb.register(connection, "there", remote.uri, "table", client=client)
    # Its schema, and no stream before a query.
    assert client.stats.streams == 1
    assert connection.sql("SELECT count(*) FROM there").fetchall() == [(ROWS,)]
    assert client.stats.streams == 2
    assert connection.sql("SELECT count(*) FROM there").fetchall() == [(ROWS,)]
    assert client.stats.streams == 3
    assert connection.sql("SELECT count(*) FROM there a JOIN there b USING (number)").fetchall() == [(ROWS,)]
    assert client.stats.streams == 5


def test_only_the_columns_of_a_query_are_taken(remote, connection):
    dipc.duckdb.register(connection, "there", remote.uri, "table")
    plan = connection.execute("EXPLAIN SELECT sum(half) FROM there").fetchall()[0][1]
    assert "Projections: half" in plan
    assert "text" not in plan


def test_rows_that_are_enough_end_the_stream(tmp_path, connection):
    with serving(tmp_path) as remote:
        dipc.duckdb.register(connection, "there", remote.uri, "long")
        assert connection.sql("SELECT number FROM there LIMIT 3").fetchall() == [(0,), (1,), (2,)]
        [line] = remote.lines()
    # The batches of the window had been sent.
    assert 1 <= int(line.removesuffix(" batches")) < MOST // 10


def test_a_table_without_a_description(remote, connection):
    dipc.duckdb.register(connection, "there", remote.uri, "undescribed")
    for _ in range(2):
        assert connection.sql("SELECT sum(number) FROM there").fetchall() == [(sum(range(ROWS)),)]


@pytest.mark.parametrize(
    ("ticket", "text"),
    [
        ("fails", "out of paper"),
        ("misdescribed", "the table is <dipc.Schema half: g>, and was described as <dipc.Schema number: l, text: u"),
    ],
)
def test_failures_end_the_query(remote, connection, ticket, text):
    dipc.duckdb.register(connection, "there", remote.uri, ticket)
    with pytest.raises(duckdb.Error, match=text):
        connection.sql("FROM there").fetchall()
    # The connection goes on.
    assert connection.sql("SELECT 1").fetchall() == [(1,)]


def test_a_table_that_is_not_there_is_not_registered(server, connection):
    server.publish("x", table(10))
    with pytest.raises(dipc.NotFoundError, match="nowhere"):
        dipc.duckdb.register(connection, "there", server.uri, "nowhere")
    with pytest.raises(duckdb.Error, match="there"):
        connection.sql("FROM there")


def test_a_table_that_is_replaced(server, connection):
    """The next query has the new rows; new columns are not taken for the old ones."""
    server.publish("x", table(10))
    dipc.duckdb.register(connection, "there", server.uri, "x")
    assert connection.sql("SELECT sum(number) FROM there").fetchall() == [(45,)]
    server.replace("x", table(10, start=10))
    assert connection.sql("SELECT sum(number) FROM there").fetchall() == [(145,)]
    server.replace("x", table(10).select(["text"]))
    with pytest.raises(duckdb.Error, match="register it again"):
        connection.sql("SELECT sum(number) FROM there").fetchall()
    dipc.duckdb.register(connection, "there", server.uri, "x")
    assert connection.sql("SELECT min(text) FROM there").fetchall() == [("row 0",)]
    connection.unregister("there")
    with pytest.raises(duckdb.Error, match="there"):
        connection.sql("FROM there")


def test_options_are_those_of_each_request(tmp_path, connection):
    with serving(tmp_path) as remote:
        options = {"headers": {"user": "ada"}, "deadline": 60, "window": (4, 1 << 20)}
        dipc.duckdb.register(connection, "there", remote.uri, "a query", **options)
        for _ in range(2):
            assert connection.sql("SELECT count(*) FROM there").fetchall() == [(ROWS,)]
        assert remote.lines() == ["ada describes", "ada gets", "ada gets"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"device": "cuda"}, dipc.UnsupportedError, "host memory"),
        ({"dead_line": 1}, TypeError, "dead_line"),
        ({"validation": "none"}, dipc.InvalidArgumentError, "validation"),
    ],
)
def test_options_are_checked_at_once(connection, options, error, text):
    with pytest.raises(error, match=text):
        dipc.duckdb.register(connection, "there", "shm:@nobody", "x", **options)


def test_a_version_that_is_too_old_is_named(monkeypatch, connection):
    monkeypatch.setattr(duckdb, "__version__", "1.4.5")
    with pytest.raises(ImportError, match=r"duckdb is 1\.4\.5.* 1\.5 or later: .*libdipc\[duckdb\]"):
        dipc.duckdb.register(connection, "there", "shm:@nobody", "x")


def test_a_server_of_this_process_may_need_python(server, connection):
    server.serve("x", lambda: (table(100, start) for start in range(0, 1000, 100)))
    dipc.duckdb.register(connection, "there", server.uri, "x")
    for _ in range(2):
        assert connection.sql("SELECT sum(number) FROM there").fetchall() == [(sum(range(1000)),)]


@pytest.mark.parametrize("type", [pa.decimal256(50, 2), pa.list_(pa.decimal256(50, 2))])
def test_a_type_that_engines_lack_is_named_with_the_remedy(server, type):
    server.publish("wide", pa.table({"number": [1], "big": pa.array([None], type)}))
    connection = duckdb.connect()
    with pytest.raises(Exception, match="column 'big', a decimal of 256 bits: name the others by the option columns="):
        dipc.duckdb.register(connection, "wide", server.uri, "wide")
    dipc.duckdb.register(connection, "narrow", server.uri, "wide", columns=["number"])
    assert connection.sql("FROM narrow").fetchall() == [(1,)]
