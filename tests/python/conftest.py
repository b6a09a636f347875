"""A server process of each kind, shared by all tests."""

import json
import pathlib
import subprocess
import sys

import pytest

import dipc
import streams


class Process:
    """tests/python/server.py, running."""

    def __init__(self, body):
        script = pathlib.Path(__file__).with_name("server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.body = body
        self.uris = json.loads(self._process.stdout.readline())

    def figures(self):
        self._process.stdin.write("figures\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0


@pytest.fixture(scope="session", params=["auto", "packed"], ids=["kind1", "kind0"])
def server(request):
    process = Process(request.param)
    yield process
    process.close()


@pytest.fixture(scope="session")
def client():
    client = dipc.Client()
    yield client
    client.close()


def pytest_report_header():
    if not streams.GOLDEN.is_dir():
        return f"golden streams are skipped: no folder {streams.GOLDEN} (DIPC_GOLDEN names another)"
    return None
