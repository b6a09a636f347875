"""A client that is not libdipc's: Python's ssl socket, speaking the frames of docs/wire.md."""

import os
import pathlib
import socket
import ssl
import struct
import subprocess
import urllib.parse

import pyarrow as pa
import pytest

import dipc

ROWS = 1000
TAGGED, CONTROL = 1, 2
STREAM, ERROR, ERROR_WITH_HEADERS = 1, 2, 17
CERTIFICATES = pathlib.Path(__file__).parent.parent / "certificates.sh"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(["sh", str(CERTIFICATES), str(folder)], check=True, stderr=subprocess.DEVNULL)
    return folder


def request(ticket):
    """A request of version 1 for sixteen batches."""
    fields = struct.pack("<HHQQQQ", 1, 1, 0, 16, 1 << 30, 0) + os.urandom(16)
    return struct.pack("<H", 2 + len(fields)) + fields + ticket


def frame(kind, tag, payload):
    return struct.pack("<QQB7x", len(payload), tag, kind) + payload


def frames(stream):
    """The server's frames: class, tag and payload."""
    while True:
        header = stream.read(24)
        if len(header) < 24:
            return
        length, tag, kind = struct.unpack("<QQB7x", header)
        yield kind, tag, stream.read(length)


def ask(context, uri, ticket):
    parts = urllib.parse.urlsplit(uri)
    want = int(urllib.parse.parse_qs(parts.query)["dipc_want"][0], 0)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as plain:
        with context.wrap_socket(plain, server_hostname=parts.hostname) as secured:
            secured.sendall(frame(TAGGED, want, request(ticket)))
            with secured.makefile("rb") as stream:
                answers = frames(stream)
                first = next(answers)
                rest = []
                if first[2][0] == STREAM:
                    # Until the message that ends the stream (rule M5).
                    for kind, tag, payload in answers:
                        rest.append((kind, tag, payload))
                        if kind == 0 and len(payload) == 5:
                            break
                return secured.version(), first, rest


def trusting(folder, *protocols):
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.set_alpn_protocols(list(protocols))
    return context


def test_a_tls_client_of_python_is_served(folder):
    """Rule Q9: TLS 1.3 with our protocol, and the frames of tcp inside; a refusal has its text."""
    table = pa.table({"a": list(range(ROWS))})
    with dipc.Server(tls=(folder / "server.pem", folder / "server.key")) as server:
        uri = server.listen("tls://127.0.0.1:0")
        server.publish("t", table)
        version, first, rest = ask(trusting(folder, "dipc/1"), uri, b"t")
        assert version == "TLSv1.3"
        assert (first[0], first[2][0]) == (CONTROL, STREAM)
        bodies = b"".join(payload for _, _, payload in rest)
        assert struct.pack("<4q", 500, 501, 502, 503) in bodies
        _, first, _ = ask(trusting(folder, "dipc/1"), uri, b"nowhere")
        assert (first[0], first[2][0]) in ((CONTROL, ERROR), (CONTROL, ERROR_WITH_HEADERS))
        assert b"nowhere" in first[2]


@pytest.mark.parametrize("what", ["another protocol", "no protocol", "TLS 1.2", "an unknown authority"])
def test_what_is_no_client_gets_nothing(folder, what):
    """Rule Q9: without our protocol, by an older TLS or without trust there is no answer."""
    context = trusting(folder, *{"another protocol": ["h2"], "no protocol": []}.get(what, ["dipc/1"]))
    if what == "TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if what == "an unknown authority":
        context = ssl.create_default_context()
        context.set_alpn_protocols(["dipc/1"])
    with dipc.Server(tls=(folder / "server.pem", folder / "server.key")) as server:
        uri = server.listen("tls://127.0.0.1:0")
        server.publish("t", pa.table({"a": [1]}))
        with pytest.raises((OSError, StopIteration)):
            ask(context, uri, b"t")
        # It goes on for others.
        assert ask(trusting(folder, "dipc/1"), uri, b"t")[1][2][0] == STREAM
