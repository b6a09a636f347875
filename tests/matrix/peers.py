"""The programs that the matrix joins: one for each language, and the `dipc` command.

A language's program is `bindings/matrix/LANGUAGE/peer`, or what DIPC_PEER_LANGUAGE names; it may build
itself first, and one that exits with 77 says that it cannot be built or run here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = ("c", "cpp", "go", "julia", "python")
SCHEMES = ("shm", "tcp", "ucx")

WAIT = 180
"""Seconds after which a program that hangs fails the test; Julia compiles first."""
UNAVAILABLE = 77


@dataclasses.dataclass
class Got:
    """What came of `get` or `cancel`, or of one file of `put` or `exchange`."""

    code: int
    status: str | None
    """The name of the error; None for success, and for the command, which prints text alone."""
    text: str
    rows: int | None = None
    batches: int | None = None


class Peer:
    """A language's program."""

    def __init__(self, name, words):
        self.name = name
        self._words = words

    def __repr__(self):
        return self.name

    def start(self, *words, **options):
        """Runs the program, to be waited for."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen([*self._words, *map(str, words)], text=True, **pipes)

    def start_get(self, uri, ticket, out):
        """Begins to fetch; see `finish`."""
        return self.start("get", uri, ticket, out)

    def start_serve(self, uri, file, _taken):
        """A server; it takes tables in its memory, and needs no folder for them."""
        return self.start("serve", uri, file, stdin=subprocess.PIPE, stderr=None)

    def bound_uri(self, line):
        return line.strip()

    def finish(self, process):
        """Waits for `get` or `cancel`."""
        out, errors = process.communicate(timeout=WAIT)
        self._skip_where_unavailable(process.returncode, out + errors)
        got = told(process.returncode, out)
        return got or Got(process.returncode, None, out + errors)

    def _skip_where_unavailable(self, code, text):
        if code == UNAVAILABLE:
            pytest.skip(f"{self.name}: {text.strip()}")

    def get(self, uri, ticket, out):
        return self.finish(self.start_get(uri, ticket, out))

    def cancel(self, uri, ticket, number):
        return self.finish(self.start("cancel", uri, ticket, number))

    def put(self, uri, tables):
        """Sends files by one process, which tells of each by a line; `tables` are pairs of ticket and file."""
        return self._send("put", uri, tables)

    def exchange(self, uri, tables):
        """The same, where a file for what comes back is the third of each."""
        return self._send("exchange", uri, tables)

    def _send(self, verb, uri, tables):
        process = self.start(verb, uri, *itertools.chain.from_iterable(tables))
        out, errors = process.communicate(timeout=WAIT)
        self._skip_where_unavailable(process.returncode, out + errors)
        lines = out.splitlines(keepends=True)
        got = [told(3 if line.startswith("error ") else 0, line) for line in lines]
        ended = f"{self.name} ended with {process.returncode}: {out}{errors}"
        assert len(got) == len(tables), ended
        assert None not in got, ended
        assert process.returncode == max(one.code for one in got), out
        return got

    @contextlib.contextmanager
    def serve(self, uri, file, taken=None):
        """A server of a file, and its URI. It must end well when it is told to.

        The `dipc` command takes tables where it has the folder `taken` for them; the languages always do.
        """
        process = self.start_serve(uri, file, taken)
        try:
            line = process.stdout.readline()
            if not line:
                self._skip_where_unavailable(process.wait(WAIT), "")
                pytest.fail(f"{self.name} does not serve {file}: it ended with {process.returncode}")
            server = Serving(process, self.bound_uri(line))
            yield server
            if not server.killed:
                process.terminate()
                assert process.wait(WAIT) == 0, f"{self.name} does not end well at SIGTERM"
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def told(code, line):
    """What a program said by a line; None where it said nothing of the kind."""
    said = re.fullmatch(r"rows=(\d+) batches=(\d+)\n", line)
    failed = re.fullmatch(r"error (DIPC_\w+) (.*)\n", line)
    if said:
        return Got(code, None, line, int(said[1]), int(said[2]))
    if failed:
        assert code == 3, line
        return Got(3, failed[1], failed[2])
    return None


class Serving:
    """A server that runs."""

    def __init__(self, process, uri):
        self.process = process
        self.uri = uri
        self.killed = False

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()


class Command(Peer):
    """The `dipc` command, which has another command line."""

    def start_serve(self, uri, file, taken):
        accept = [] if taken is None else ["--accept", taken, "--accept-as", "arrows"]
        words = ["--listen", uri, "--trusted-network", *accept, f"table={file}"]
        return self.start("serve", *words, stdin=subprocess.PIPE, stderr=None)

    def bound_uri(self, line):
        return line.removeprefix("ready ").strip()

    def start_get(self, uri, ticket, out):
        # The command writes regular files of known formats, and none without an option.
        words = [] if out is None else ["--output", out]
        return self.start("get", "--json", uri, ticket, *words)

    def _send(self, verb, uri, tables):
        """It sends one table at a time, and exchanges none."""
        return [self.finish(self.start(verb, "--json", uri, *words)) for words in tables]

    def finish(self, process):
        out, errors = process.communicate(timeout=WAIT)
        if process.returncode == 0:
            said = json.loads(out)
            return Got(0, None, out, said["rows"], said["batches"])
        return Got(process.returncode, None, errors)


def dipc_command():
    """The command's path: DIPC_COMMAND, or of DIPC_PREFIX, or of the PATH; None where there is none."""
    named = os.environ.get("DIPC_COMMAND")
    prefix = os.environ.get("DIPC_PREFIX")
    return named or shutil.which("dipc", path=f"{prefix}/bin" if prefix else None)


def find(name):
    """A peer, or the reason why there is none."""
    if name == "dipc":
        command = dipc_command()
        return Command(name, [command]) if command else "no dipc command: DIPC_COMMAND or DIPC_PREFIX says where"
    named = os.environ.get(f"DIPC_PEER_{name.upper()}")
    if named:
        return Peer(name, shlex.split(named))
    program = ROOT / "bindings/matrix" / name / "peer"
    if not program.exists():
        return f"no {program.relative_to(ROOT)}: this language has no program yet"
    return Peer(name, [str(program)])


NAMES = (*LANGUAGES, "dipc")
FOUND = {name: find(name) for name in NAMES}


PEERS = {name: found for name, found in FOUND.items() if isinstance(found, Peer)}


def unavailable(scheme):
    """Why a transport does not work here; None where it does."""
    command = dipc_command()
    if command is None:
        return None if scheme == "shm" else "no dipc command to ask"
    said = json.loads(subprocess.run([command, "info", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    known = {transport["name"]: transport for transport in said["transports"]}
    if scheme not in known:
        return "dipc info does not know it"
    return None if known[scheme]["available"] else known[scheme]["reason"]


UNAVAILABLE_SCHEMES = {scheme: unavailable(scheme) for scheme in SCHEMES}


def read(path):
    """The schema and the batches of a stream file."""
    with pa.ipc.open_stream(pathlib.Path(path).read_bytes()) as reader:
        return reader.schema, list(reader)


def assert_same(got, path, received_schema, received, is_split=False):
    """What arrived, and what the program said of it, is what pyarrow reads in a file.

    `is_split`: the command may split tables into other batches.
    """
    schema, batches = read(path)
    rows = sum(batch.num_rows for batch in batches)
    assert received_schema.equals(schema, check_metadata=True), path
    assert (got.rows, sum(batch.num_rows for batch in received)) == (rows, rows), path
    if not is_split:
        assert [batch.num_rows for batch in received] == [batch.num_rows for batch in batches], path
        assert got.batches == len(batches), path
        assert received == batches, path
    elif schema.names:
        assert pa.Table.from_batches(received, schema).equals(pa.Table.from_batches(batches, schema)), path


# Python programs run in the suite's interpreter, with its packages.
os.environ.setdefault("DIPC_PYTHON", sys.executable)
