"""Lazy frames of polars over tables of a server in another process."""

from __future__ import annotations

import pytest

import dipc
from conftest import table
from dipc._table import Table
from engines import MOST, ROWS, is_lent, made, serving

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

ENGINES = pytest.mark.parametrize("engine", ["in-memory", "streaming"])


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("polars")) as remote:
        yield remote


@pytest.fixture(scope="module")
def frame(remote):
    return dipc.polars.scan(remote.uri, "table")


QUERIES = {
    "all": lambda frame: frame,
    "a count": lambda frame: frame.select(pl.len()),
    "columns in another order": lambda frame: frame.select("half", "number"),
    "a filter": lambda frame: frame.filter(pl.col("number") % 7 == 0),
    "a filter by another column": lambda frame: frame.filter(pl.col("half") > 2000).select("text"),
    "rows": lambda frame: frame.head(7),
    "rows of two batches": lambda frame: frame.head(ROWS // 2 + 1),
    "more rows than there are": lambda frame: frame.head(2 * ROWS),
    "no rows": lambda frame: frame.head(0),
    "a slice": lambda frame: frame.slice(ROWS // 2 - 1, 3),
    "the last rows": lambda frame: frame.tail(2),
    "rows, then a filter": lambda frame: frame.head(100).filter(pl.col("number") >= 90).select("text"),
    "a filter, then rows": lambda frame: frame.filter(pl.col("number") >= 90).select("text").head(3),
    "the largest": lambda frame: frame.sort("number", descending=True).head(3),
    "groups": lambda frame: frame.group_by(pl.col("number") % 3).agg(pl.col("half").sum()),
    "a self join": lambda frame: frame.join(frame.filter(pl.col("number") < 10), on="number"),
    "a union": lambda frame: pl.concat([frame.head(3), frame.tail(3)]),
}


@ENGINES
@pytest.mark.parametrize("query", QUERIES)
def test_queries_give_what_they_give_of_a_frame_here(frame, query, engine):
    got, expected = (QUERIES[query](source).collect(engine=engine) for source in (frame, pl.DataFrame(made()).lazy()))
    assert got.schema == expected.schema
    assert got.sort(pl.all()).equals(expected.sort(pl.all()))


def test_nothing_is_asked_before_polars_needs_it(remote):
    with dipc.Client() as client:
        frame = dipc.polars.scan(remote.uri, "table", client=client)
        lazy = frame.filter(pl.col("number") > 1)
        assert client.stats.streams == 0
        assert lazy.collect_schema() == pl.Schema({"number": pl.Int64, "text": pl.String, "half": pl.Float64})
        assert client.stats.streams == 1
        for count in (2, 3):
            assert lazy.collect().height == ROWS - 2
            assert client.stats.streams == count


def test_a_self_join_may_read_the_table_once(remote):
    with dipc.Client() as client:
        frame = dipc.polars.scan(remote.uri, "table", client=client)
        assert frame.join(frame, on="number").collect(engine="in-memory").height == ROWS
        # The schema, and one stream.
        assert client.stats.streams == 2


def test_only_the_columns_of_a_query_are_taken(frame, monkeypatch):
    taken = set()

    class Batch(dipc.Batch):
        def column(self, which):
            taken.add(which)
            return super().column(which)

        def __arrow_c_array__(self, requested_schema=None):
            raise AssertionError("the whole batch is taken")

    monkeypatch.setattr(dipc._reader, "Batch", Batch)
    lazy = frame.filter(pl.col("half") > 2).select("number")
    assert "2/3 COLUMNS" in lazy.explain()
    assert lazy.collect().height == ROWS - 5
    assert taken == {"number", "half"}


def test_memory_stays_where_the_server_lent_it(frame):
    whole, some = frame.collect(engine="in-memory"), frame.select("number").collect(engine="in-memory")
    for column in (whole["number"], whole["half"], some["number"]):
        chunks = column.get_chunks()
        assert len(chunks) == 2
        for chunk in chunks:
            assert is_lent(chunk.to_arrow().buffers()[1].address)
    # Memory that polars made itself is not shared, so the checks above prove something.
    assert not is_lent((whole["number"] + 1).to_arrow().buffers()[1].address)


@ENGINES
def test_rows_that_are_enough_end_the_stream(tmp_path, engine):
    with serving(tmp_path) as remote:
        frame = dipc.polars.scan(remote.uri, "long")
        assert frame.head(ROWS + 1).collect(engine=engine).height == ROWS + 1
        [line] = remote.lines()
    # The batches of the window had been sent.
    assert 2 <= int(line.removesuffix(" batches")) < MOST // 10


def test_rows_behind_a_filter_end_the_stream_of_the_streaming_engine(tmp_path):
    with serving(tmp_path) as remote:
        frame = dipc.polars.scan(remote.uri, "long").filter(pl.col("number") >= 10)
        assert frame.head(3).collect(engine="streaming")["number"].to_list() == [10, 11, 12]
        [line] = remote.lines()
    assert 1 <= int(line.removesuffix(" batches")) < MOST // 10


def test_batches_are_as_small_as_polars_asks(remote):
    source = Table(remote.uri, "table", None, {})
    frames = list(dipc.polars._read(source, ["half"], None, None, 1000))
    assert [frame.height for frame in frames] == [1000] * 10
    assert pl.concat(frames).equals(pl.DataFrame(made().select(["half"])))


def test_a_predicate_may_read_a_column_that_is_not_asked_for(remote):
    source = Table(remote.uri, "table", None, {})
    frames = list(dipc.polars._read(source, ["text"], pl.col("number") == 7, 100, None))
    assert pl.concat(frames).to_dict(as_series=False) == {"text": ["row 7"]}


def test_a_table_without_a_description(remote):
    frame = dipc.polars.scan(remote.uri, "undescribed")
    assert frame.collect().equals(pl.DataFrame(made()))


@ENGINES
@pytest.mark.parametrize(
    ("ticket", "text"),
    [
        ("fails", "out of paper"),
        ("misdescribed", "the table is <dipc.Schema half: g>, and was described as <dipc.Schema number: l, text: u"),
    ],
)
def test_failures_end_the_query(remote, ticket, text, engine):
    with pytest.raises((dipc.DipcError, pl.exceptions.PolarsError), match=text):
        dipc.polars.scan(remote.uri, ticket).collect(engine=engine)


def test_a_server_that_is_not_there():
    frame = dipc.polars.scan("shm:@dipc-python-nobody", "table")
    with pytest.raises((dipc.DipcError, pl.exceptions.PolarsError), match="UnreachableError"):
        frame.collect_schema()


def test_options_are_those_of_each_request(tmp_path):
    with serving(tmp_path) as remote:
        frame = dipc.polars.scan(remote.uri, "a query", headers={"user": "ada"}, deadline=60, window=(4, 1 << 20))
        for _ in range(2):
            assert frame.collect().height == ROWS
        assert remote.lines() == ["ada describes", "ada gets", "ada gets"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"device": "cuda"}, dipc.UnsupportedError, "host memory"),
        ({"dead_line": 1}, TypeError, "dead_line"),
        ({"validation": "none"}, dipc.InvalidArgumentError, "validation"),
    ],
)
def test_options_are_checked_at_once(options, error, text):
    with pytest.raises(error, match=text):
        dipc.polars.scan("shm:@nobody", "x", **options)


@pytest.mark.parametrize(("version", "is_refused"), [("1.43.2", True), ("1.5.0", True), ("1.44.1", False)])
def test_a_version_that_is_too_old_is_named(monkeypatch, version, is_refused):
    monkeypatch.setattr(pl, "__version__", version)
    if is_refused:
        with pytest.raises(ImportError, match=rf"polars is {version}.* 1\.44 or later: .*libdipc\[polars\]"):
            dipc.polars.scan("shm:@nobody", "x")
    else:
        dipc.polars.scan("shm:@nobody", "x")


def test_odd_names_are_names(server):
    """Polars has patterns and selectors of its own."""
    made = {"^a$": [1, 2], "*": [3, 4], "": [5, 6], "a": [7, 8]}
    server.publish("odd", pl.DataFrame(made))
    frame = dipc.polars.scan(server.uri, "odd")
    for index, name in enumerate(made):
        assert frame.select(pl.nth(index)).collect().to_dict(as_series=False) == {name: made[name]}


TYPES = {
    "dictionary": pl.Series(["x", None], dtype=pl.Categorical),
    "enumeration": pl.Series(["x", None], dtype=pl.Enum(["x", "y"])),
    "decimal": pl.Series(["1.5", None]).str.to_decimal(scale=2),
    "list": pl.Series([[1, 2], None]),
    "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int16, 2)),
    "struct": pl.Series([{"x": 1, "y": ["z"]}, None]),
    "bytes": pl.Series([b"x", None]),
    "zone": pl.Series([0, None]).cast(pl.Datetime("ns", "Europe/Berlin")),
    "date": pl.Series([0, None]).cast(pl.Date),
    "time": pl.Series([0, None]).cast(pl.Time),
    "duration": pl.Series([0, None]).cast(pl.Duration("ms")),
    "null": pl.Series([None, None], dtype=pl.Null),
    "truth": pl.Series([True, None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(server, name):
    """As a column of the whole table, and alone."""
    made = pl.DataFrame({"number": [1, 2], "it": TYPES[name]})
    server.publish("x", made)
    frame = dipc.polars.scan(server.uri, "x")
    assert frame.collect().equals(made)
    assert frame.select("it").collect().equals(made.select("it"))
    assert frame.collect_schema() == made.schema


def test_a_server_of_this_process_may_need_python(server):
    server.serve("x", lambda: (table(100, start) for start in range(0, 1000, 100)))
    assert dipc.polars.scan(server.uri, "x").select(pl.col("number").sum()).collect().item() == sum(range(1000))


WIDE = {
    "all": lambda frame, names: frame,
    "a filter": lambda frame, names: frame.filter(pl.col(names[5]) == 5),
    "more columns than a request names": lambda frame, names: frame.select(names[:5000]),
    "these and a filter": lambda frame, names: frame.filter(pl.col(names[5]) == 5).select(names[5:5005]),
    "these and rows": lambda frame, names: frame.select(names[:5000]).head(1),
    "names of too many bytes": lambda frame, names: frame.select(names[:3600]),
    "names and a filter of too many bytes": lambda frame, names: frame.filter(
        pl.col(names[1]).is_in(list(range(10_000)))
    ).select(names[:2500]),
    "all but one": lambda frame, names: frame.drop(names[0]),
}


@pytest.mark.parametrize("query", WIDE)
def test_tables_wider_than_a_request_can_name(server, query):
    names = [f"column number {number}" for number in range(6000)]
    wide = pl.DataFrame({name: [number, None] for number, name in enumerate(names)}, dict.fromkeys(names, pl.Int32))
    server.publish("wide", wide)
    got = WIDE[query](dipc.polars.scan(server.uri, "wide"), names).collect()
    assert got.equals(WIDE[query](wide.lazy(), names).collect())


@pytest.mark.parametrize("type", [pa.decimal256(50, 2), pa.list_(pa.decimal256(50, 2))])
def test_a_type_that_engines_lack_is_named_with_the_remedy(server, type):
    server.publish("wide", pa.table({"number": [1], "big": pa.array([None], type)}))
    with pytest.raises(Exception, match="column 'big', a decimal of 256 bits: name the others by the option columns="):
        dipc.polars.scan(server.uri, "wide").collect()
    assert dipc.polars.scan(server.uri, "wide", columns=["number"]).collect().shape == (1, 1)
