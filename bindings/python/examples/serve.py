"""Serves a table and a query until SIGTERM or Ctrl-C.

serve.py URI        prints the URI for clients; tickets "squares" and "fresh"
"""

import datetime as dt
import signal
import sys

import pyarrow as pa

import dipc

squares = pa.table({"n": range(1000), "square": [n * n for n in range(1000)]})


def fresh():
    """Made anew for each client."""
    return pa.table({"now": [dt.datetime.now(dt.timezone.utc)]})


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with dipc.Server() as server:
    server.publish("squares", squares)
    server.serve("fresh", fresh)
    print(server.listen(sys.argv[1]), flush=True)
    signal.pause()
