"""Programs that a peer runs: each bounded in time and ended by us."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class PeerError(Exception):
    """A peer could not run a case; the text says why."""


def find_program(name: str) -> str | None:
    """Its path, or none where it is not installed."""
    return shutil.which(name)


def end(process: subprocess.Popen[str], *, patience: float = 2.0) -> None:
    """Ends a process that we started, with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        # It leads a group of its own: see start().
        os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            # What could not be written any more is written no more.
            with suppress(BrokenPipeError):
                stream.close()


def start(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[str] = subprocess.PIPE,
    stderr: IO[str] | None = None,
) -> subprocess.Popen[str]:
    """A process that leads a group of its own, so that end() reaches its children."""
    try:
        return subprocess.Popen(
            arguments,
            env={**os.environ, **(environment or {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise PeerError(f"{arguments[0]} cannot be started: {error.strerror}") from None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def run(
    arguments: Sequence[str],
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0,),
) -> str:
    """What a program prints. It is ended after `timeout` seconds, and must have ended with an accepted status."""
    with tempfile.TemporaryFile("w+") as errors:
        process = start(arguments, environment=environment, stderr=errors)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{os.path.basename(arguments[0])} did not end within {timeout:.0f} s") from None
        finally:
            end(process)
        if process.returncode not in accepted:
            errors.seek(0)
            said = errors.read() or output
            raise PeerError(f"{os.path.basename(arguments[0])} failed: {_last_line(said)}")
        return output


@contextmanager
def serving(
    arguments: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A server whose output nobody reads, for as long as the block runs."""
    with tempfile.TemporaryFile("w+") as nowhere:
        process = start(arguments, environment=environment, stdout=nowhere, stderr=nowhere)
        try:
            yield process
        finally:
            end(process)


def free_port() -> int:
    """A TCP port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_listener(server: subprocess.Popen[str], port: int) -> None:
    """Until a socket listens at `port`. To connect would take the place of the one client that a server may serve."""
    wanted = f":{port:04X}"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and server.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            path = Path(table)
            if path.exists() and any(_listens(line, wanted) for line in path.read_text().splitlines()):
                return
        time.sleep(0.005)
    raise PeerError(f"the server (process {server.pid}) does not listen at port {port}")


def _listens(line: str, wanted: str) -> bool:
    """Of a line of /proc/net/tcp: its local address, and the state LISTEN."""
    fields = line.split()
    return fields[1].endswith(wanted) and fields[3] == "0A"
