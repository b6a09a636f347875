"""pyarrow Flight: `DoGet` between two processes, which stay for all cases as a service would."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cases import Case
from bench.peers.flight_name import NAME
from bench.processes import PeerError, end, run, start
from bench.results import Result

ROOT = Path(__file__).resolve().parents[2]
OPS = ("get", "put", "latency", "connect", "metadata")


class Flight:
    """One server and one client, which are started for the first case."""

    def __init__(self, name: str, location: str) -> None:
        self.name = name
        self._location = location
        self._processes: list[subprocess.Popen[str]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def missing(self) -> str | None:
        if not importlib.util.find_spec("pyarrow"):
            return "pyarrow is not installed: tools/setup.sh bench"
        if self._is_tls() and not shutil.which("openssl"):
            return "openssl, which makes its certificate, is not installed"
        return None

    def _is_tls(self) -> bool:
        return self._location.startswith("grpc+tls")

    def version(self) -> str:
        return f"pyarrow {importlib.metadata.version('pyarrow')}"

    def run(self, case: Case) -> Result:
        if case.op not in OPS or case.spin or case.streams > 1:
            raise PeerError(f"{self.name} is not asked for {case.op} like this")
        if not self._processes:
            self._start()
        client = self._processes[1]
        assert client.stdin is not None
        try:
            client.stdin.write(json.dumps(case.to_json()) + "\n")
            client.stdin.flush()
            answer = _answer(client, timeout=30 + 4 * case.seconds)
        except (BrokenPipeError, PeerError) as error:
            # Whatever is wrong with them, the next case gets new ones.
            self.close()
            raise PeerError(f"{self.name}: {error}") from None
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return Result(answer)

    def _start(self) -> None:
        location = self._location
        if location == "grpc+unix":
            self._folder = tempfile.TemporaryDirectory(prefix="bench-")
            location = f"grpc+unix://{self._folder.name}/flight"
        identity: tuple[str, ...] = ()
        if self._is_tls():
            self._folder = tempfile.TemporaryDirectory(prefix="bench-")
            identity = certificate(Path(self._folder.name))
        server = self._worker("serve", location, *identity)
        where = _answer(server, timeout=30)["location"]
        self._worker("fetch", where, *identity[:1])

    def _worker(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.peers.flight_worker", *arguments]
        process = start(command, environment={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self._processes):
            end(process)
        self._processes = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def certificate(folder: Path) -> tuple[str, str]:
    """The files of a certificate, of the kind that dipc bench has, and of its key."""
    files = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-out", files[0], "-keyout", files[1]),
    ]
    run(command, timeout=30)
    return files


def _answer(process: subprocess.Popen[str], *, timeout: float) -> dict[str, Any]:
    """The next line of JSON."""
    assert process.stdout is not None
    # Each side writes one line and waits, so nothing is left in the buffer of the file object.
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    if not ready:
        raise PeerError(f"no answer within {timeout:.0f} s")
    line = process.stdout.readline()
    if not line:
        raise PeerError(f"its process ended (exit status {process.wait()})")
    answer: dict[str, Any] = json.loads(line)
    return answer
