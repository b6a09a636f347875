"""Headers of record batches, built and read by libdipc and by arrow-rs: the criterion benchmark `header`."""

from __future__ import annotations

import re
from pathlib import Path

from bench.cases import Case
from bench.processes import PeerError, find_program, run
from bench.results import Result

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "benches" / "header.rs"
NANOSECONDS = {"ps": 1e-3, "ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}


def parse(output: str) -> float:
    """The middle of the three times that criterion prints of one benchmark, in nanoseconds."""
    found = re.findall(r"time:\s+\[\S+ \S+ (\S+) (\S+) \S+ \S+\]", output)
    if len(found) != 1:
        raise PeerError(f"cargo bench printed {len(found)} times where one was expected")
    value, unit = found[0]
    return float(value) * NANOSECONDS[unit]


class Header:
    """One of the two that the benchmark compares."""

    def __init__(self, which: str) -> None:
        self.name = f"{which} header"
        self._which = which

    def missing(self) -> str | None:
        if not BENCH.exists():
            return "benches/header.rs is not there"
        return None if find_program("cargo") else "cargo is not installed"

    def version(self) -> str:
        return "cargo bench -p libdipc --bench header"

    def run(self, case: Case) -> Result:
        what = {"header_build": "build", "header_read": "read"}.get(case.op)
        if what is None:
            raise PeerError(f"{self.name} has nothing like {case.op}")
        # It was built before (make bench): the time is for measuring.
        arguments = ["cargo", "bench", "--quiet", "--locked", "--bench", "header"]
        arguments += ["--manifest-path", str(ROOT / "Cargo.toml")]
        one = f"^{what}/int64/{self._which}/{case.columns}$"
        batch_ns = parse(run([*arguments, "--", "--quick", one], timeout=60))
        return Result({"batch_ns": batch_ns, "ns_per_column": batch_ns / case.columns})

    def close(self) -> None:
        """Nothing runs between cases."""
