"""The driver under Python's DB-API, pyarrow, polars and DuckDB, with `dipc serve`."""

import pathlib
import threading
import time

import adbc_driver_manager
import adbc_driver_manager.dbapi as adbc
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import DRIVER, connect


def test_a_table_arrives(connection):
    with connection.cursor() as cursor:
        cursor.execute("nation")
        assert [column[0] for column in cursor.description][:2] == ["n_nationkey", "n_name"]
        rows = cursor.fetchall()
        assert len(rows) == 25
        assert rows[0][1] == "ALGERIA"
        cursor.execute("region")
        assert cursor.fetch_arrow_table().num_rows == 5
        cursor.execute("region")
        assert sum(len(batch) for batch in cursor.fetch_record_batch()) == 5


def test_the_example_of_the_crate(server, capsys):
    page = (pathlib.Path(__file__).parents[2] / "src/lib.rs").read_text()
    lines = [line.removeprefix("//!").removeprefix(" ") for line in page.splitlines()]
    begin = lines.index("```python")
    example = "\n".join(lines[begin + 1 : lines.index("```", begin)])
    for name, value in {
        "/usr/local/lib/libadbc_driver_dipc.so": str(DRIVER),
        "shm:@tpch": server,
        "lineitem": "nation",
    }.items():
        assert name in example
        example = example.replace(name, value)
    exec(example, {})
    assert capsys.readouterr().out == "25\n"


def test_polars_reads(connection):
    frame = polars.read_database("nation", connection)
    assert frame.shape == (25, 4)
    assert frame.filter(polars.col("n_name") == "GERMANY")["n_regionkey"].item() == 3


def test_duckdb_reads(connection):
    with connection.cursor() as nations, connection.cursor() as regions:
        nations.execute("nation")
        regions.execute("region")
        nation, region = nations.fetch_record_batch(), regions.fetch_record_batch()
        joined = duckdb.sql(
            "SELECT r_name, count(*) FROM nation JOIN region ON n_regionkey = r_regionkey"
            " GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert [name for name, _ in joined] == ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
    assert {count for _, count in joined} == {5}


def test_metadata(connection):
    info = connection.adbc_get_info()
    assert (info["vendor_name"], info["driver_adbc_version"]) == ("libdipc", 1001000)
    assert connection.adbc_get_table_types() == ["TABLE"]
    schema = connection.adbc_get_table_schema("region")
    assert schema.names == ["r_regionkey", "r_name", "r_comment"]
    [catalog] = connection.adbc_get_objects(depth="all", table_name_filter="na%").read_all().to_pylist()
    [schema] = catalog["catalog_db_schemas"]
    [table] = schema["db_schema_tables"]
    assert (table["table_name"], table["table_type"]) == ("nation", "TABLE")
    columns = [(it["ordinal_position"], it["column_name"]) for it in table["table_columns"]]
    assert columns[1] == (2, "n_name")
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema("region").names == ["r_regionkey", "r_name", "r_comment"]


def test_partitions(connection, server):
    with connection.cursor() as cursor:
        partitions, schema = cursor.adbc_execute_partitions("nation")
    assert schema.names[0] == "n_nationkey"
    with connect(server) as reading, reading.cursor() as cursor:
        rows = 0
        for partition in partitions:
            cursor.adbc_read_partition(partition)
            rows += cursor.fetch_arrow_table().num_rows
        assert rows == 25


def test_ingestion(connection, server):
    table = pa.table({"n": [1, 2, 3], "t": ["a", None, "c"]})
    with connection.cursor() as cursor:
        assert cursor.adbc_ingest("mine", table, mode="create") == 3
        cursor.execute("mine")
        assert cursor.fetch_arrow_table() == table
        with pytest.raises(adbc.Error) as raised:
            cursor.adbc_ingest("mine", table, mode="create")
        assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.ALREADY_EXISTS
        with pytest.raises(adbc.NotSupportedError, match='"replace"'):
            cursor.adbc_ingest("mine", table, mode="replace")
    with connect(server, **{"ingest.modes": "create,replace"}) as replacing:
        with replacing.cursor() as cursor:
            # A stream, and a frame of another library.
            stream = table.slice(1).to_reader()
            assert cursor.adbc_ingest("mine", stream, mode="replace") == 2
            cursor.execute("mine")
            assert cursor.fetch_arrow_table() == table.slice(1)
            frame = polars.DataFrame({"n": [7]})
            assert cursor.adbc_ingest("frame", frame.to_arrow(), mode="create") == 1
            assert frame.write_database("frame2", replacing, engine="adbc") == 1
            assert polars.read_database("frame2", replacing).equals(frame)


def test_errors(connection):
    with connection.cursor() as cursor:
        with pytest.raises(adbc.ProgrammingError) as raised:
            cursor.execute("nothing")
        assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.NOT_FOUND
        assert (b"dipc.status", b"DIPC_ERR_NOT_FOUND") in raised.value.details
        with pytest.raises(adbc.NotSupportedError):
            cursor.execute("nation", (1,))
    with pytest.raises(adbc.Error, match="nothing"):
        connect("shm:@a", nothing="1")
    with pytest.raises(adbc.OperationalError), connect("shm:@dipc-adbc-python-nobody") as nobody:
        nobody.cursor().execute("nation")


def test_threads(server):
    """Each thread has a connection of its own, as the DB-API's `threadsafety` demands."""
    with connect(server) as connection:
        rows = []

        def read(own):
            with own.cursor() as cursor:
                for _ in range(5):
                    cursor.execute("nation")
                    rows.append(cursor.fetch_arrow_table().num_rows)

        clones = [connection.adbc_clone() for _ in range(4)]
        threads = [threading.Thread(target=read, args=(own,)) for own in clones]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for own in clones:
            own.close()
        assert rows == [25] * 20


def test_sql_of_the_host(sql_server):
    modes = "create,append,replace,create_append"
    table = pa.table({"n": pa.array([1, 2, 3], pa.int64())})
    with connect(sql_server, **{"ingest.modes": modes}) as connection:
        with connection.cursor() as cursor:
            assert cursor.adbc_ingest("t", table, mode="create") == 3
            assert cursor.adbc_ingest("t", table, mode="append") == 3
            cursor.execute("SELECT sum(n) AS s FROM t")
            assert cursor.fetchone() == (12,)
            assert cursor.adbc_execute_schema("SELECT n AS m FROM t").names == ["m"]
            with pytest.raises(adbc.Error, match="Parser Error"):
                cursor.execute("SELECT FROM WHERE")
        frame = polars.read_database("SELECT n FROM t WHERE n > 1 ORDER BY n", connection)
        assert frame["n"].to_list() == [2, 2, 3, 3]


def test_an_error_in_the_middle(sql_server):
    """A result set that breaks off says as much as a query that fails."""
    with connect(sql_server) as connection, connection.cursor() as cursor:
        cursor.execute("breaks off")
        assert len(cursor.fetchmany(5)) == 5
        with pytest.raises(adbc.Error, match="the file ends too early") as raised:
            cursor.fetch_arrow_table()
        assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.INVALID_DATA
        assert (b"dipc.status", b"DIPC_ERR_INVALID_DATA") in raised.value.details


def test_cancel(sql_server):
    with connect(sql_server) as connection, connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        begun = time.monotonic()
        with pytest.raises(adbc.OperationalError) as raised:
            cursor.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")
            cursor.fetchall()
        assert raised.value.status_code == adbc_driver_manager.AdbcStatusCode.CANCELLED
        assert time.monotonic() - begun < 8


def test_columns_and_rows_of_a_statement(connection):
    schema = connection.adbc_get_table_schema("nation")
    message = bytes((pc.field("n_regionkey") == 3).to_substrait(schema))
    with connection.cursor() as cursor:

        def names(**options):
            options = {f"dipc.{name}": value for name, value in options.items()}
            cursor.adbc_statement.set_options(**options)
            cursor.execute("nation")
            table = cursor.fetch_arrow_table()
            assert table.schema == pa.schema(cursor.adbc_statement.execute_schema())
            return table

        cursor.adbc_statement.set_sql_query("nation")
        europe = names(columns="n_nationkey,n_name", filter=message)
        assert europe.column_names == ["n_nationkey", "n_name"]
        assert europe["n_name"].to_pylist() == [
            "FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM",
        ]
        # A range counts the rows that pass.
        assert names(columns='"n_name"', offset=1, limit="2")["n_name"].to_pylist() == ["GERMANY", "ROMANIA"]
        assert cursor.adbc_statement.get_option_int("dipc.limit") == 2
        assert cursor.adbc_statement.get_option_bytes("dipc.filter") == message
        assert names(limit=0).num_rows == 0
        with pytest.raises(adbc.NotSupportedError, match="has all of it"):
            cursor.adbc_statement.execute_partitions()
        assert names(columns="", filter="", offset="", limit="").num_rows == 25


def test_selections_that_cannot_be_used(connection):
    Code = adbc_driver_manager.AdbcStatusCode
    with connection.cursor() as cursor:
        for name, value in (("columns", "a,,b"), ("offset", -1), ("limit", "many"), ("filter", b"x" * 70_000)):
            with pytest.raises(adbc.Error) as raised:
                cursor.adbc_statement.set_options(**{f"dipc.{name}": value})
            assert raised.value.status_code == Code.INVALID_ARGUMENT
        for name, value in (("columns", "nothing"), ("filter", b"no filter")):
            cursor.adbc_statement.set_options(**{f"dipc.{name}": value})
            with pytest.raises(adbc.Error) as raised:
                cursor.execute("nation")
            assert raised.value.status_code == Code.INVALID_ARGUMENT, name
            cursor.adbc_statement.set_options(**{f"dipc.{name}": ""})
        cursor.execute("nation")
        assert cursor.fetch_arrow_table().num_rows == 25
    with pytest.raises(adbc.NotSupportedError, match="an option of statements"):
        connection.adbc_connection.set_options(**{"dipc.limit": 1})
