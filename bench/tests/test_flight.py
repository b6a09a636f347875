"""One case of each kind through two processes of Flight."""

from collections.abc import Iterator

import pytest
from bench.cases import Case
from bench.peers.flight import Flight
from bench.processes import PeerError


@pytest.fixture(scope="module", params=["grpc://127.0.0.1:0", "grpc+unix", "grpc+tls://127.0.0.1:0"])
def flight(request: pytest.FixtureRequest) -> Iterator[Flight]:
    peer = Flight("Flight", request.param)
    assert peer.missing() is None
    yield peer
    peer.close()


@pytest.mark.parametrize(
    "case",
    [
        Case("get", batch_bytes=64, seconds=0.02),
        Case("get", batch_bytes=160, columns=10, touch="sum", reuse=True, seconds=0.02),
        Case("metadata", batch_bytes=800, columns=100, seconds=0.02),
    ],
    ids=lambda case: case.op,
)
def test_batches_arrive(flight: Flight, case: Case) -> None:
    # Sums are checked by the process that fetches.
    figures = flight.run(case).figures
    assert figures["batches_per_second"] > 0
    assert figures["bytes_per_second"] == pytest.approx(figures["batches_per_second"] * case.batch_bytes)
    assert figures["cpu_server_seconds"] >= 0


@pytest.mark.parametrize("op", ["latency", "connect"])
def test_latency_has_percentiles(flight: Flight, op: str) -> None:
    figures = flight.run(Case(op, batch_bytes=64, seconds=0.05)).figures
    assert 0 < figures["p50_ns"] <= figures["p99_ns"] <= figures["max_ns"]


def test_what_flight_cannot_do_is_refused(flight: Flight) -> None:
    for case in (Case("idle"), Case("latency", batch_bytes=64, spin=True), Case("get", batch_bytes=64, streams=2)):
        with pytest.raises(PeerError, match="is not asked for"):
            flight.run(case)


def test_a_process_that_died_is_an_error_and_the_next_case_gets_another() -> None:
    peer = Flight("Flight", "grpc://127.0.0.1:0")
    case = Case("get", batch_bytes=64, seconds=0.02)
    try:
        peer.run(case)
        for process in peer._processes:
            process.kill()
            process.wait()
        with pytest.raises(PeerError, match="Flight: "):
            peer.run(case)
        assert peer.run(case).figures["batches_per_second"] > 0
    finally:
        peer.close()
