"""UCX without libdipc: `ucx_perftest`, a program that walks memory, and how UCX is told to go by tcp."""

from __future__ import annotations

import csv
import functools
import json
import os
from pathlib import Path

from bench.cases import MIB, Case
from bench.processes import PeerError, find_program, free_port, run, serving, wait_for_listener
from bench.results import Result

# Built from ucx_walk.c, beside this file, by `make bench-build`.
WALK = Path(__file__).parents[2] / "build" / "ucx_walk"
# As much as `dipc bench` has of distinct batches.
WALKED_BYTES = 512 * MIB


@functools.cache
def _transports() -> frozenset[str]:
    """Those that UCX has on this machine, as `ucx_info -d` names them."""
    return parse_transports(run(["ucx_info", "-d"], timeout=20))


def parse_transports(output: str) -> frozenset[str]:
    """The lines `#      Transport: tcp`."""
    fields = (line.lstrip("# ").partition(":") for line in output.splitlines())
    return frozenset(value.strip() for name, _, value in fields if name == "Transport")


# What `--set` tells libdipc: the way, and the error mode that notices a dead peer. UCX's programs
# have that mode by their own options.
DIPC_SETTINGS = ("ucx.TLS=tcp", "ucx.error_handling=peer")
# The same way for a program of UCX.
ENVIRONMENT = {"UCX_TLS": "tcp", "UCX_WARN_UNUSED_ENV_VARS": "n"}


def missing_tcp() -> str | None:
    """Why UCX cannot go by tcp here."""
    if find_program("ucx_info") is None:
        return "ucx_info is not installed: tools/setup.sh bench"
    return None if "tcp" in _transports() else "UCX has no tcp here (ucx_info -d)"


def parse(output: str) -> dict[str, float]:
    """The last line of figures that `ucx_perftest -f -v` prints, with the names of its columns."""
    lines = [row for row in csv.reader(output.splitlines()) if len(row) > 1]
    names = [index for index, row in enumerate(lines) if row[0].strip() == "iterations"]
    if not names or names[-1] + 1 >= len(lines):
        raise PeerError("ucx_perftest printed no figures")
    return {name.strip(): float(value) for name, value in zip(lines[names[-1]], lines[-1], strict=True)}


class Perftest:
    """`ucx_perftest`: tag_bw, which sends one buffer again and again, and tag_lat, both ends of which spin."""

    name = "ucx_perftest tcp"

    def __init__(self) -> None:
        # Seconds of one iteration as last seen, to know how many fill the time.
        self._pace: dict[tuple[str, int], float] = {}

    def missing(self) -> str | None:
        if find_program("ucx_perftest") is None:
            return "ucx_perftest is not installed: tools/setup.sh bench"
        return missing_tcp()

    def version(self) -> str:
        first = run(["ucx_info", "-v"], timeout=10).splitlines()[0]
        return f"UCX {first.rpartition(' ')[2]}"

    def run(self, case: Case) -> Result:
        test = {"get": "tag_bw", "latency": "tag_lat"}.get(case.op)
        if test is None:
            raise PeerError(f"ucx_perftest has nothing like {case.op}")
        key = (test, case.batch_bytes)
        if key not in self._pace:
            # The first exchanges make connections and register memory: not to be believed.
            self._measure(test, case.batch_bytes, 20 if case.batch_bytes > MIB else 1000)
        iterations = max(10, int(case.seconds / self._pace[key]))
        raw = self._measure(test, case.batch_bytes, iterations)
        return Result(figures(test, case.batch_bytes, raw), dict(raw))

    def _measure(self, test: str, size: int, iterations: int) -> dict[str, float]:
        port = free_port()
        with serving(["ucx_perftest", "-p", str(port)], environment=ENVIRONMENT) as server:
            wait_for_listener(server, port)
            arguments = ["ucx_perftest", "127.0.0.1", "-p", str(port), "-t", test, "-s", str(size)]
            arguments += ["-n", str(iterations), "-w", str(max(2, iterations // 10)), "-f", "-v", "-e"]
            raw = parse(run(arguments, timeout=30, environment=ENVIRONMENT))
        self._pace[test, size] = raw["overall_lat"] * 1e-6 * (2 if test == "tag_lat" else 1)
        return raw

    def close(self) -> None:
        """Nothing runs between cases."""


class Walk:
    """Tagged messages out of memory that is walked, as `dipc bench` walks its batches, and nothing else."""

    name = "ucx walking tcp"

    def __init__(self) -> None:
        # Seconds of one message as last seen, as above.
        self._pace: dict[int, float] = {}

    def missing(self) -> str | None:
        if not os.access(WALK, os.X_OK):
            return "its program is not built: make bench-build"
        return missing_tcp()

    def version(self) -> str:
        return Perftest().version()

    def run(self, case: Case) -> Result:
        if case.op != "get":
            raise PeerError(f"ucx_walk has nothing like {case.op}")
        size = case.batch_bytes
        if size not in self._pace:
            # The first messages make connections: not to be believed.
            self._measure(size, 20 if size > MIB else 1000)
        return self._measure(size, max(10, int(case.seconds / self._pace[size])))

    def _measure(self, size: int, count: int) -> Result:
        arguments = [str(WALK), str(size), str(count), str(WALKED_BYTES)]
        result = parse_walk(run(arguments, timeout=30, environment=ENVIRONMENT))
        self._pace[size] = 1 / result.figures["batches_per_second"]
        return result

    def close(self) -> None:
        """Nothing runs between cases."""


def parse_walk(output: str) -> Result:
    """The line that ucx_walk prints."""
    try:
        line = json.loads(output)
        seconds, size, messages = (float(line[name]) for name in ("seconds", "bytes", "messages"))
        rates = {"bytes_per_second": size / seconds, "batches_per_second": messages / seconds}
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise PeerError("ucx_walk printed no figures") from error
    return Result({"seconds": seconds, **rates}, line)


def figures(test: str, size: int, raw: dict[str, float]) -> dict[str, float]:
    """In our units: its times are microseconds, and those of tag_lat half of a round trip."""
    seconds = raw["overall_lat"] * 1e-6
    if test == "tag_lat":
        return {"p50_ns": raw["50.0_percentile_lat"] * 1e3, "mean_ns": raw["overall_lat"] * 1e3}
    return {
        "seconds": seconds * raw["iterations"],
        "bytes_per_second": size / seconds,
        "batches_per_second": 1 / seconds,
    }
