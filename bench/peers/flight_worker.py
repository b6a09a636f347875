"""The two processes of Flight.

python -m bench.peers.flight_worker serve LOCATION [CERTIFICATE KEY]
    prints {"location": ...}, ends with its input
python -m bench.peers.flight_worker fetch LOCATION [CERTIFICATE]
    a case on each line of its input, figures on each of its output

The files are PEM; CERTIFICATE is the authority that the client trusts.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from bench.cases import Case
from bench.peers.flight_name import NAME

# As dipc bench: so much memory at most is walked, in so many batches. Columns are slow to make in Python.
RING_BYTES = 512 << 20
MOST_DISTINCT = 4096
MOST_COLUMNS = 1 << 15
INTERVAL = 0.001
LATENCY_RING = 8


def distinct(case: Case) -> int:
    """How many different batches there are; they come round in turn."""
    if case.reuse:
        return 1
    by_bytes = RING_BYTES // max(1, case.batch_bytes)
    return max(2, min(by_bytes, MOST_COLUMNS // case.columns, MOST_DISTINCT))


def rows(case: Case) -> int:
    return max(1, case.batch_bytes // (8 * case.columns))


def batch(case: Case, number: int) -> Any:
    """The batch `number` of a ring: numbers from there on in every column."""
    values = [np.arange(number, number + rows(case), dtype=np.int64) for _ in range(case.columns)]
    return pa.record_batch([pa.array(column) for column in values], [f"c{n}" for n in range(case.columns)])


def expected_sum(case: Case, number: int) -> int:
    """What the values of the batch `number` add up to."""
    count = rows(case)
    return case.columns * (count * (count - 1) // 2 + count * number)


def total(chunk: Any) -> int:
    """What all values of a batch add up to."""
    return sum(int(column.to_numpy().sum()) for column in chunk.columns)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Server(flight.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Serves the ring of whatever case a ticket describes."""

    def __init__(self, location: str, certificates: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(location, tls_certificates=certificates)
        self._lock = threading.Lock()
        self._rings: dict[tuple[int, int, int], list[Any]] = {}

    def _ring(self, case: Case) -> list[Any]:
        key = (case.batch_bytes, case.columns, distinct(case))
        with self._lock:
            if key not in self._rings:
                # One at a time: two may be more memory than there is.
                self._rings.clear()
                self._rings[key] = [batch(case, number) for number in range(distinct(case))]
            return self._rings[key]

    def do_get(self, _context: Any, ticket: Any) -> Any:
        case = Case.from_json(json.loads(ticket.ticket))
        if case.op == "latency":
            batches = timed_batches(case)
        elif case.op == "connect":
            batches = iter([self._ring(case)[0]])
        else:
            batches = itertools.cycle(self._ring(case))
        # C++ drives it, which costs less than GeneratorStream.
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(batch(case, 0).schema, batches))

    def do_put(self, _context: Any, _descriptor: Any, reader: Any, _writer: Any) -> None:
        while True:
            try:
                reader.read_chunk()
            except StopIteration:
                return

    def do_action(self, _context: Any, _action: Any) -> Any:
        return [json.dumps(cpu_seconds()).encode()]


def timed_batches(case: Case) -> Iterator[Any]:
    """Batches that say in their first value when they were made, one for each interval."""
    columns = [np.arange(rows(case), dtype=np.int64) for _ in range(LATENCY_RING)]
    for values in itertools.cycle(columns):
        time.sleep(INTERVAL)
        array = pa.array(values)
        # The array has the memory of `values`.
        values[0] = time.monotonic_ns()
        yield pa.record_batch([array], ["c0"])


def percentiles(samples: list[int]) -> dict[str, float]:
    p50, p99, p99_9 = (float(value) for value in np.percentile(samples, [50, 99, 99.9]))
    return {"p50_ns": p50, "p99_ns": p99, "p99_9_ns": p99_9, "max_ns": float(max(samples)), "samples": len(samples)}


class Client:
    """Fetches, and measures."""

    def __init__(self, location: str, authority: bytes | None = None) -> None:
        tls = {"tls_root_certs": authority, "override_hostname": NAME} if authority else {}
        self._client = flight.connect(location, **tls)

    def measure(self, case: Case) -> dict[str, float]:
        ticket = flight.Ticket(json.dumps(case.to_json()).encode())
        method = {"latency": self._latency, "connect": self._connect, "put": self._put}.get(case.op, self._throughput)
        # Makes the server's batches, and both sides' first mistakes.
        self._warm_up(case, ticket)
        before = (self._server_cpu(), cpu_seconds())
        figures = method(case, ticket)
        after = (self._server_cpu(), cpu_seconds())
        return figures | {"cpu_server_seconds": after[0] - before[0], "cpu_client_seconds": after[1] - before[1]}

    def _server_cpu(self) -> float:
        (answer,) = self._client.do_action(flight.Action("cpu", b""))
        return float(json.loads(answer.body.to_pybytes()))

    def _warm_up(self, case: Case, ticket: Any) -> None:
        reader = self._client.do_get(ticket)
        for _ in range(1 if case.op == "connect" else 2):
            # The first sum of a process imports what it needs.
            total(reader.read_chunk().data)
        reader.cancel()

    def _throughput(self, case: Case, ticket: Any) -> dict[str, float]:
        expected = [expected_sum(case, number) for number in range(distinct(case))]
        reader = self._client.do_get(ticket)
        reader.read_chunk()
        batches = 0
        begun = time.perf_counter()
        while True:
            chunk = reader.read_chunk().data
            batches += 1
            # The first batch came before the clock was started.
            if case.touch == "sum" and total(chunk) != expected[batches % len(expected)]:
                raise ValueError(f"batch {batches} has not the values that were sent")
            spent = time.perf_counter() - begun
            if spent >= case.seconds and batches >= 3:
                break
        reader.cancel()
        return {
            "seconds": spent,
            "bytes_per_second": batches * rows(case) * case.columns * 8 / spent,
            "batches_per_second": batches / spent,
            "ns_per_column": spent * 1e9 / (batches * case.columns),
        }

    def _put(self, case: Case, _ticket: Any) -> dict[str, float]:
        ring = [batch(case, number) for number in range(distinct(case))]
        descriptor = flight.FlightDescriptor.for_path("table")
        writer, _ = self._client.do_put(descriptor, ring[0].schema)
        # Both sides' first mistakes.
        for chunk in ring[:2]:
            writer.write_batch(chunk)
        batches = 0
        begun = time.perf_counter()
        for chunk in itertools.cycle(ring):
            writer.write_batch(chunk)
            batches += 1
            if time.perf_counter() - begun >= case.seconds and batches >= 3:
                break
        # Waits until the server has read everything.
        writer.close()
        spent = time.perf_counter() - begun
        return {
            "seconds": spent,
            "bytes_per_second": batches * rows(case) * case.columns * 8 / spent,
            "batches_per_second": batches / spent,
        }

    def _latency(self, case: Case, ticket: Any) -> dict[str, float]:
        samples = []
        reader = self._client.do_get(ticket)
        deadline = time.perf_counter() + case.seconds
        while time.perf_counter() < deadline:
            made = reader.read_chunk().data.column(0)
            now = time.monotonic_ns()
            samples.append(now - made[0].as_py())
        reader.cancel()
        return percentiles(samples)

    def _connect(self, case: Case, ticket: Any) -> dict[str, float]:
        samples = []
        deadline = time.perf_counter() + case.seconds
        while time.perf_counter() < deadline:
            time.sleep(INTERVAL)
            begun = time.perf_counter_ns()
            reader = self._client.do_get(ticket)
            reader.read_chunk()
            samples.append(time.perf_counter_ns() - begun)
            reader.read_all()
        return percentiles(samples)


def serve(location: str, *files: str) -> None:
    identity = [Path(file).read_bytes() for file in files]
    server = Server(location, [(identity[0], identity[1])] if identity else None)
    unix = location.startswith("grpc+unix")
    scheme = location.partition(":")[0]
    print(json.dumps({"location": location if unix else f"{scheme}://127.0.0.1:{server.port}"}), flush=True)
    sys.stdin.read()
    server.shutdown()


def fetch(location: str, *files: str) -> None:
    client = Client(location, *(Path(file).read_bytes() for file in files))
    for line in sys.stdin:
        case = Case.from_json(json.loads(line))
        try:
            answer: dict[str, Any] = client.measure(case)
        except (pa.ArrowException, OSError, ValueError) as error:
            answer = {"error": " ".join(str(error).split())}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    {"serve": serve, "fetch": fetch}[sys.argv[1]](*sys.argv[2:])
