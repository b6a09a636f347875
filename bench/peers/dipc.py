"""libdipc itself, and what the machine does without it: both by `dipc bench`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from bench.cases import Case
from bench.peers.ucx import DIPC_SETTINGS, missing_tcp
from bench.processes import PeerError, run
from bench.results import Result

# Small batches outlast with it the time that it takes to wake a thread; the default is smaller, so that a
# server runs less far ahead of who stops early.
WINDOW_BATCHES = 128
# Of batches that are lent where they lie no more than a few hundred bytes each is on the way; of others copies are,
# which more of them would drive out of the caches.
LENT_WINDOW_BATCHES = 256
# Far longer than the interval between two batches, so that a side that spins never sleeps.
SPIN = "50ms"
# Between two batches whose delay is measured, where both ends spin: ucx_perftest sends the next one at once.
SPINNING_INTERVAL = "100us"


def figures(line: dict[str, Any]) -> dict[str, float]:
    """The figures of one line of `dipc bench --json`."""
    found: dict[str, float | None] = {
        name: line.get(name)
        for name in (
            "seconds",
            "bytes_per_second",
            "batches_per_second",
            "ns_per_column",
            "streams_per_second",
            "flight_streams_per_second",
        )
    }
    for name, value in (line.get("latency_ns") or {}).items():
        if name != "count":
            found[f"{name}_ns"] = value
    for figure in ("cpu_seconds", "peak_memory_bytes", "stream_memory_bytes", "request_cpu_seconds"):
        for end, value in (line.get(figure) or {}).items():
            prefix, _, unit = figure.rpartition("_")
            found[f"{prefix}_{end}_{unit}"] = value
    for name, value in (line.get("streams_bytes_per_second") or {}).items():
        found[f"stream_{name}_bytes_per_second"] = value
    return {name: float(value) for name, value in found.items() if value is not None}


def parse(output: str) -> dict[str, Any]:
    """The one line of JSON of one case."""
    lines = output.splitlines()
    if len(lines) != 1:
        raise PeerError(f"dipc bench printed {len(lines)} lines where one was expected")
    line: dict[str, Any] = json.loads(lines[0])
    return line


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def available_memory() -> int:
    """Bytes that programs can have without any being written out."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)


def _has_bench(command: Path) -> str | None:
    if not os.access(command, os.X_OK):
        return f"{command} is not there: cargo build --release --package libdipc-cli"
    try:
        run([str(command), "bench", "--help"], timeout=10)
    except PeerError as error:
        return str(error)
    return None


class Dipc:
    """libdipc over one transport, with its batches in one kind of memory."""

    def __init__(self, name: str, command: Path, transport: str, memory: str) -> None:
        self.name = name
        self._command = command
        self._transport = transport
        self._memory = memory

    def missing(self) -> str | None:
        return _has_bench(self._command) or (missing_tcp() if self._transport == "ucx" else None)

    def version(self) -> str:
        return run([str(self._command), "--version"], timeout=10).strip()

    def arguments(self, case: Case) -> list[str]:
        """What `dipc bench` is asked."""
        memory = self._memory
        arguments = [
            *("--op", case.op, "--transport", self._transport, "--memory", memory),
            *("--columns", str(case.columns), "--touch", case.touch, "--source", case.source),
            *("--streams", str(case.streams), "--seconds", _milliseconds(case.seconds)),
        ]
        if case.op != "metadata":
            arguments += ["--batch-bytes", str(case.batch_bytes)]
        if case.batches is not None:
            arguments += ["--batches", str(case.batches)]
        # Over UCX more bodies would be received at once than the caches hold; with many streams gigabytes of copies
        # would be out.
        few = case.streams == 1 or memory == "arena"
        wide = case.op in ("get", "put", "metadata") and self._transport != "ucx" and few
        if wide and not case.default_window and case.window_batches is None:
            lent = case.op in ("get", "put") and self._transport == "shm" and memory == "arena"
            window = LENT_WINDOW_BATCHES if lent else WINDOW_BATCHES
            arguments += ["--window-batches", str(window)]
        for option, value in (
            ("--window-batches", case.window_batches),
            ("--window-bytes", case.window_bytes),
            ("--consumer-pause", _milliseconds(case.pause) if case.pause else None),
            ("--distinct", 1 if case.reuse else case.distinct),
            ("--consumers", case.consumers),
            ("--take", case.take if case.take != "next" else None),
            ("--values", case.values if case.values != "int64" else None),
        ):
            if value is not None:
                arguments += [option, str(value)]
        if case.spin:
            arguments += ["--spin", SPIN]
            if case.op == "latency":
                arguments += ["--interval", SPINNING_INTERVAL]
        if case.apart:
            arguments += ["--apart"]
        if case.fresh:
            arguments += ["--fresh", *(["--resume"] if case.resume else [])]
        for setting in DIPC_SETTINGS if self._transport == "ucx" else ():
            arguments += ["--set", setting]
        return [*arguments, "--json"]

    def run(self, case: Case) -> Result:
        if available_memory() < case.free_bytes:
            raise PeerError(f"it takes {case.free_bytes >> 30} GiB of free memory")
        try:
            output = run([str(self._command), "bench", *self.arguments(case)], timeout=60 + 4 * case.seconds)
        except PeerError as error:
            # Ports are new each time; the same failure should read the same.
            raise PeerError(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", str(error))) from None
        line = parse(output)
        return Result(figures(line), line)

    def close(self) -> None:
        """Nothing runs between cases."""


class Machine:
    """What one thread, or two with a bare socket, can do here."""

    def __init__(self, name: str, command: Path, what: str) -> None:
        self.name = name
        self._command = command
        self._what = what

    def missing(self) -> str | None:
        return _has_bench(self._command)

    def version(self) -> str:
        return "dipc bench --op machine"

    def run(self, case: Case) -> Result:
        arguments = [
            "--op",
            "machine",
            "--what",
            self._what,
            "--batch-bytes",
            str(case.batch_bytes),
            "--seconds",
            _milliseconds(case.seconds),
            *(["--apart"] if case.apart else []),
        ]
        output = run([str(self._command), "bench", *arguments, "--json"], timeout=60)
        return select(output, self._what)

    def close(self) -> None:
        """Nothing runs between cases."""


def select(output: str, what: str) -> Result:
    """The line about `what` among those that one call prints."""
    for text in output.splitlines():
        line = json.loads(text)
        if line.get("what") == what:
            return Result(figures(line), line)
    raise PeerError(f"dipc bench --op machine does not tell about {what}")
