"""Arrow's IPC stream within one process, by pyarrow: what writing and reading headers costs there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from typing import Any

from bench.cases import Case
from bench.processes import PeerError
from bench.results import Result

# Batches between two looks at the clock.
TURN = 200


class ArrowIpc:
    """Writes, or reads, batches of one row in memory, from and into pyarrow's record batches."""

    def __init__(self, direction: str) -> None:
        self.name = f"pyarrow IPC {direction}"
        self._direction = direction

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("pyarrow") else "pyarrow is not installed: tools/setup.sh bench"

    def version(self) -> str:
        return f"pyarrow {importlib.metadata.version('pyarrow')}"

    def run(self, case: Case) -> Result:
        if case.op != "metadata":
            raise PeerError(f"{self.name} has nothing like {case.op}")
        batch = _one_row(case.columns)
        # Once for what is done once.
        stream, _ = _write(batch)
        spent, batches = 0.0, 0
        while spent < case.seconds:
            spent += _write(batch)[1] if self._direction == "write" else _read(stream)
            batches += TURN
        figures = {
            "seconds": spent,
            "batches_per_second": batches / spent,
            "ns_per_column": spent * 1e9 / (batches * case.columns),
        }
        return Result(figures)

    def close(self) -> None:
        """Nothing runs between cases."""


def _one_row(columns: int) -> Any:
    import pyarrow as pa

    return pa.record_batch([pa.array([n], pa.int64()) for n in range(columns)], [f"c{n}" for n in range(columns)])


def _write(batch: Any) -> tuple[Any, float]:
    """TURN batches as a stream in memory, and the seconds that their writing took."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        begun = time.perf_counter()
        for _ in range(TURN):
            writer.write_batch(batch)
        spent = time.perf_counter() - begun
    return sink.getvalue(), spent


def _read(stream: Any) -> float:
    """The seconds that reading TURN batches took."""
    import pyarrow as pa

    reader = pa.ipc.open_stream(stream)
    begun = time.perf_counter()
    for _ in range(TURN):
        reader.read_next_batch()
    return time.perf_counter() - begun
