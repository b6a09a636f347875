"""What the driver says to input that it cannot use, and that it works on afterwards."""

import adbc_driver_manager
import adbc_driver_manager.dbapi as adbc
import pyarrow as pa
import pytest
from conftest import DRIVER, connect

Code = adbc_driver_manager.AdbcStatusCode


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tls.ca", "/nowhere/ca.pem"),
        ("window.batches", "0"),
        ("window.bytes", "0"),
        ("deadline", "0"),
        ("stall_timeout", "0"),
        ("connect_timeout", "-1"),
        ("max_idle", "many"),
    ],
)
def test_databases_refuse_values(name, value):
    with pytest.raises(adbc.Error) as raised:
        connect("shm:@a", **{name: value})
    assert raised.value.status_code == Code.INVALID_ARGUMENT
    assert f"dipc.{name}" in str(raised.value)
    assert value in str(raised.value)


def test_times_may_be_for_ever(server):
    times = ("connect_timeout", "stall_timeout", "deadline", "idle_timeout")
    with connect(server, **dict.fromkeys(times, "inf")) as connection, connection.cursor() as cursor:
        # A number as well as a text.
        cursor.adbc_statement.set_options(**{"dipc.deadline": float("inf")})
        cursor.execute("nation")
        assert cursor.fetch_arrow_table().num_rows == 25


def test_options_are_read_back(server):
    with connect(server, deadline="2.5", connections=2) as connection:
        of = connection.adbc_connection
        assert of.get_option("dipc.deadline") == "2.5"
        assert of.get_option_float("dipc.deadline") == 2.5
        assert of.get_option_int("dipc.connections") == 2
        assert of.get_option_bytes("dipc.connections") == b"2"
        assert of.get_option("adbc.connection.autocommit") == "true"
        with pytest.raises(adbc.Error) as raised:
            of.get_option_int("dipc.deadline")
        assert raised.value.status_code == Code.INVALID_ARGUMENT
        with pytest.raises(adbc.Error) as raised:
            of.get_option("dipc.stall_timeout")
        assert raised.value.status_code == Code.NOT_FOUND
        with pytest.raises(adbc.NotSupportedError, match="an option of databases"):
            of.set_options(**{"dipc.tls.ca": "/etc/ca.pem"})


def test_a_cursor_is_of_use_after_parameters(connection):
    with connection.cursor() as cursor:
        for _ in range(2):
            with pytest.raises(adbc.NotSupportedError, match="no parameters"):
                cursor.execute("nation", (1,))
            cursor.execute("nation")
            assert cursor.fetch_arrow_table().num_rows == 25
        with pytest.raises(adbc.NotSupportedError, match="no parameters"):
            cursor.executemany("nation", [(1,), (2,)])
        cursor.execute("region")
        assert cursor.fetch_arrow_table().num_rows == 5


def test_null_rows_are_not_bound(connection):
    with connection.cursor() as cursor:
        statement = cursor.adbc_statement
        gaps = pa.array([{"n": 1}, None])
        with pytest.raises(adbc.Error, match="rows of the array to bind are null") as raised:
            statement.bind(*gaps.__arrow_c_array__()[::-1])
        assert raised.value.status_code == Code.INVALID_ARGUMENT
    # A panic would have ended the use of the driver in this process.
    assert connection.adbc_get_table_types() == ["TABLE"]


def test_tables_that_are_not_there(connection):
    for name in ("nothing", ""):
        with pytest.raises(adbc.Error) as raised:
            connection.adbc_get_table_schema(name)
        assert raised.value.status_code == Code.NOT_FOUND
    with pytest.raises(adbc.Error, match="no catalogs") as raised:
        connection.adbc_get_table_schema("nation", catalog_filter="main")
    assert raised.value.status_code == Code.NOT_FOUND


def test_each_depth_of_objects(connection):
    def objects(depth, **filters):
        return connection.adbc_get_objects(depth=depth, **filters).read_all().to_pylist()

    assert objects("catalogs") == [{"catalog_name": None, "catalog_db_schemas": None}]
    [catalog] = objects("db_schemas")
    assert catalog["catalog_db_schemas"] == [{"db_schema_name": None, "db_schema_tables": None}]
    [catalog] = objects("tables", table_types_filter=["TABLE"], table_name_filter="n_tion")
    [table] = catalog["catalog_db_schemas"][0]["db_schema_tables"]
    assert (table["table_name"], table["table_columns"]) == ("nation", None)
    [catalog] = objects("columns", table_name_filter="nation", column_name_filter="%name")
    [table] = catalog["catalog_db_schemas"][0]["db_schema_tables"]
    assert [column["column_name"] for column in table["table_columns"]] == ["n_name"]
    [catalog] = objects("all", table_types_filter=["VIEW"])
    assert catalog["catalog_db_schemas"][0]["db_schema_tables"] == []
    assert objects("all", catalog_filter="main") == []


@pytest.mark.parametrize("bytes_", [b"", b"nation", b"dipc\0\x01" + b"\xff" * 40])
def test_partitions_of_others(connection, bytes_):
    with connection.cursor() as cursor, pytest.raises(adbc.Error) as raised:
        cursor.adbc_read_partition(bytes_)
    assert raised.value.status_code == Code.INVALID_ARGUMENT


def test_a_result_set_outlives_what_it_came_from(server):
    database = adbc_driver_manager.AdbcDatabase(driver=str(DRIVER), uri=server)
    connection = adbc_driver_manager.AdbcConnection(database)
    statement = adbc_driver_manager.AdbcStatement(connection)
    statement.set_sql_query("nation")
    stream, _ = statement.execute_query()
    for handle in (statement, connection, database):
        handle.close()
    with pytest.raises(adbc.Error):
        statement.execute_query()
    assert pa.RecordBatchReader.from_stream(stream).read_all().num_rows == 25


def test_what_does_not_run_is_not_cancelled(connection):
    with connection.cursor() as cursor, pytest.raises(adbc.Error) as raised:
        cursor.adbc_cancel()
    assert raised.value.status_code == Code.INVALID_STATE
