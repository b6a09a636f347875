"""A server whose tickets are names of tables or SQL, which DuckDB answers.

    sql_server.py URI
"""

import re
import signal
import sys
import threading

import dipc
import duckdb
import pyarrow as pa

database = duckdb.connect()
# DuckDB lets one thread at a time change a table.
changing = threading.Lock()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def has(name):
    found = database.cursor().execute(
        "SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [name]
    )
    return found.fetchone() is not None


SQL = re.compile(r"\s*(SELECT|WITH|CREATE|DROP|INSERT|DELETE|UPDATE)\s", re.IGNORECASE)


def asked(request):
    """The SQL of a ticket."""
    text = request.ticket.decode()
    return text if SQL.match(text) else f"SELECT * FROM {quoted(text)}"


def run(sql):
    try:
        with changing:
            return database.cursor().execute(sql)
    except duckdb.CatalogException as error:
        raise dipc.NotFoundError(str(error)) from error
    except duckdb.Error as error:
        raise dipc.InvalidArgumentError(str(error)) from error


def get(request):
    if request.ticket == b"breaks off":
        return breaks_off()
    return run(asked(request)).to_arrow_table()


def breaks_off():
    """Batches, and then an error."""
    for number in range(3):
        yield pa.record_batch({"n": [number] * 10})
    raise dipc.InvalidDataError("the file ends too early")


def describe(request):
    sql = asked(request)
    if not sql.lstrip().upper().startswith(("SELECT", "WITH")):
        raise dipc.UnsupportedError("only queries and tables have a description")
    rows = run(f"SELECT * FROM ({sql.rstrip('; ')}) LIMIT 0").to_arrow_table()
    return dipc.Description(rows.schema)


def list_tickets(request):
    names = database.cursor().execute("SELECT table_name FROM duckdb_tables()").fetchall()
    prefix = request.ticket.decode()
    return [dipc.Endpoint(name) for (name,) in names if name.startswith(prefix)]


def put(request):
    name = request.ticket.decode()
    mode = request.headers.get("adbc.ingest.mode", b"").decode()
    if mode == "create" and has(name):
        raise dipc.AlreadyExistsError(f"there is a table {name}")
    if mode == "append" and not has(name):
        raise dipc.NotFoundError(f"there is no table {name}")
    data = request.source().read_all()
    table = quoted(name)
    with changing:
        cursor = database.cursor().register("data", data)
        if mode == "replace":
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM data LIMIT 0")
        try:
            cursor.execute(f"INSERT INTO {table} BY NAME FROM data")
        except duckdb.Error as error:
            raise dipc.AlreadyExistsError(str(error)) from error


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with dipc.Server() as server:
    server.set_handler(get, put=put, describe=describe, list_tickets=list_tickets)
    print("ready", server.listen(sys.argv[1]), flush=True)
    sys.stdin.read()
