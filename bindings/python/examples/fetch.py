"""Fetches a table, and shows its first rows.

fetch.py URI TICKET
"""

import sys

import pyarrow as pa

import dipc

try:
    table = dipc.get(sys.argv[1], sys.argv[2]).read_all()
except dipc.DipcError as error:
    sys.exit(f"{dipc.status_name(error.status)}: {error}")
print(f"{table.num_rows} rows")
print(pa.table(table.slice(0, 5)).to_pydict())
