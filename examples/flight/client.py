"""Fetches a table that a Flight server knows: by libdipc where one of its locations allows it, else by DoGet.

    python client.py [--trusted-network] grpc://127.0.0.1:PORT NAME

A peer on ucx can read and write this process's memory, and a Flight server is not believed when it names one,
unless --trusted-network says so.
"""

from __future__ import annotations

import argparse
import logging

import dipc

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trusted-network", action="store_true", help="take ucx addresses, too")
    parser.add_argument("uri", help="the Flight server, as grpc://127.0.0.1:5005")
    parser.add_argument("name", help="the table")
    arguments = parser.parse_args()
    # To see which locations are skipped, and which one is taken.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("dipc.flight").setLevel(logging.INFO)
    reader = dipc.flight.get(arguments.uri, arguments.name, trusted_network=arguments.trusted_network)
    print(reader.read_all())
