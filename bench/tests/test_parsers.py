"""What the peers' programs print, as recorded from them."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench.cases import Case
from bench.peers import dipc, header, iperf3, reference, ucx
from bench.processes import PeerError

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_ucx_perftest_bandwidth_is_bytes_per_second() -> None:
    raw = ucx.parse(recorded("ucx_perftest-tag_bw.txt"))
    figures = ucx.figures("tag_bw", 65536, raw)
    # It prints MB/s of 2^20 bytes, with two digits.
    assert figures["bytes_per_second"] == pytest.approx(raw["overall_bw"] * (1 << 20), rel=1e-3)
    assert figures["batches_per_second"] == pytest.approx(raw["overall_mr"], rel=1e-3)
    assert figures["seconds"] == pytest.approx(65536 * raw["iterations"] / figures["bytes_per_second"])


def test_ucx_perftest_latency_is_its_median_in_nanoseconds() -> None:
    raw = ucx.parse(recorded("ucx_perftest-tag_lat.txt"))
    assert ucx.figures("tag_lat", 8, raw) == {"p50_ns": 4199.0, "mean_ns": 50763.0}


def test_ucx_perftest_without_figures_is_an_error() -> None:
    names = recorded("ucx_perftest-tag_bw.txt").splitlines()[0]
    for output in ("", "some warning\n", names + "\n"):
        with pytest.raises(PeerError, match="no figures"):
            ucx.parse(output)


def test_walking_counts_what_the_receiver_saw() -> None:
    found = ucx.parse_walk('{"seconds": 0.500000000, "bytes": 6553600, "messages": 100}\n')
    assert found.figures == {"seconds": 0.5, "bytes_per_second": 13107200.0, "batches_per_second": 200.0}
    for output in ("", "some warning\n", '{"seconds": 0.0, "bytes": 0, "messages": 0}', '{"seconds": 1.0}'):
        with pytest.raises(PeerError, match="no figures"):
            ucx.parse_walk(output)


def test_ucx_info_names_transports() -> None:
    assert ucx.parse_transports(recorded("ucx_info.txt")) == {"self", "tcp", "sysv", "posix", "cma"}


def test_iperf3_counts_what_arrived() -> None:
    said = json.loads(recorded("iperf3.json"))
    # More may have been sent: it is still under way when the time is up.
    said["end"]["sum_sent"]["bits_per_second"] *= 2
    result = iperf3.parse(json.dumps(said))
    received = result.raw["sum_received"]
    assert result.figures["bytes_per_second"] == pytest.approx(received["bytes"] / received["seconds"])
    assert result.figures["block_bytes"] == 128 << 10


def test_iperf3_says_why_it_failed() -> None:
    with pytest.raises(PeerError, match="Connection refused"):
        iperf3.parse(recorded("iperf3-refused.json"))


def test_a_line_of_dipc_bench_gives_its_figures() -> None:
    line = dipc.parse(recorded("dipc-get.jsonl"))
    figures = dipc.figures(line)
    assert figures["bytes_per_second"] == line["bytes_per_second"]
    assert figures["cpu_server_seconds"] == line["cpu_seconds"]["server"]
    assert figures["cpu_client_seconds"] == line["cpu_seconds"]["client"]
    assert figures["peak_memory_client_bytes"] == line["peak_memory_bytes"]["client"]
    assert figures["stream_min_bytes_per_second"] == line["streams_bytes_per_second"]["min"]
    # This case has no latency, and a figure that is not there is not zero.
    assert not [name for name in figures if name.startswith("p") and name.endswith("_ns")]


def test_dipc_bench_with_other_than_one_line_is_an_error() -> None:
    line = recorded("dipc-get.jsonl")
    for output in ("", line + line):
        with pytest.raises(PeerError, match="lines where one was expected"):
            dipc.parse(output)


def test_idle_streams_have_memory_and_processor_of_both() -> None:
    line = dipc.parse(recorded("dipc-idle.jsonl"))
    figures = dipc.figures(line)
    assert figures["stream_memory_server_bytes"] == line["stream_memory_bytes"]["server"]
    assert {"cpu_server_seconds", "cpu_client_seconds", "seconds"} <= figures.keys()


def test_latency_is_in_nanoseconds() -> None:
    figures = dipc.figures(dipc.parse(recorded("dipc-latency.jsonl")))
    # A hand-over takes more than a microsecond and less than a second.
    assert 1e3 < figures["p50_ns"] <= figures["p99_ns"] <= figures["p99_9_ns"] <= figures["max_ns"] < 1e9


def test_machine_lines_are_told_apart() -> None:
    output = recorded("dipc-machine.jsonl")
    lines = {line["what"]: line for line in map(json.loads, output.splitlines())}
    for what in ("memcpy", "sum"):
        assert dipc.select(output, what).figures["bytes_per_second"] == lines[what]["bytes_per_second"]
    trip = dipc.select(output, "socket_round_trip").figures
    assert trip["p50_ns"] == lines["socket_round_trip"]["latency_ns"]["p50"]
    assert "bytes_per_second" not in trip
    with pytest.raises(PeerError, match="nonsense"):
        dipc.select(output, "nonsense")


def test_both_programs_of_ucx_go_the_same_way() -> None:
    assert f"ucx.TLS={ucx.ENVIRONMENT['UCX_TLS']}" in ucx.DIPC_SETTINGS


def test_a_case_is_told_to_dipc_bench() -> None:
    peer = dipc.Dipc("dipc ucx tcp", Path("dipc"), "ucx", "heap")
    case = Case("get", batch_bytes=65536, columns=10, touch="sum", spin=True, reuse=True, batches=7, seconds=0.25)
    words = " ".join(peer.arguments(case))
    for expected in (
        "--op get", "--transport ucx", "--memory heap", "--batch-bytes 65536", "--columns 10", "--touch sum",
        "--distinct 1", "--batches 7", "--seconds 250ms", "--spin 50ms", "--set ucx.TLS=tcp",
        "--set ucx.error_handling=peer", "--json",
    ):  # fmt: skip
        assert expected in words
    assert "--distinct 262" in " ".join(peer.arguments(replace(case, reuse=False, distinct=262)))
    plain = " ".join(peer.arguments(Case("get", batch_bytes=65536)))
    for absent in ("--spin", "--distinct", "--batches"):
        assert absent not in plain


def test_the_window_is_wide_where_that_pays() -> None:
    case = Case("get", batch_bytes=65536)
    for transport, wide in (("shm", True), ("tcp", True), ("ucx", False)):
        peer = dipc.Dipc("dipc", Path("dipc"), transport, "arena")
        assert ("--window-batches" in peer.arguments(case)) == wide
        assert "--window-batches" not in peer.arguments(replace(case, default_window=True))
        assert ("--window-batches" in peer.arguments(replace(case, streams=256))) == wide
        peer = dipc.Dipc("dipc", Path("dipc"), transport, "heap")
        assert "--window-batches" not in peer.arguments(replace(case, streams=256))
    for transport, memory, batches in (("shm", "arena", 256), ("shm", "heap", 128), ("tcp", "arena", 128)):
        peer = dipc.Dipc("dipc", Path("dipc"), transport, memory)
        assert f"--window-batches {batches} " in " ".join(peer.arguments(case))


def test_criterion_s_middle_time_is_in_nanoseconds_wherever_the_line_breaks() -> None:
    for name in ("criterion-short.txt", "criterion-long.txt"):
        output = recorded(name)
        _, middle, _ = re.findall(r"([0-9.]+) (?:ns|µs)", output)
        scale = 1000 if "µs" in output else 1
        assert header.parse(output) == pytest.approx(float(middle) * scale)
    # A name that fits nothing, and one that fits two, are no answer.
    for output in ("", recorded("criterion-short.txt") * 2):
        with pytest.raises(PeerError, match="where one was expected"):
            header.parse(output)


def test_a_client_of_the_reference_peer_ends_with_its_figures() -> None:
    result = reference.parse('schema\n{"seconds": 0.5, "bytes": 1000, "batches": 4}\n', 1000)
    assert result.figures == {"seconds": 0.5, "bytes_per_second": 2000.0, "batches_per_second": 8.0}
    for output in ("", "done\n", '{"seconds": 1}\n', "3\n"):
        with pytest.raises(PeerError, match="line of figures"):
            reference.parse(output, 1000)
    with pytest.raises(PeerError, match="had 999 bytes of 1,000"):
        reference.parse('{"seconds": 0.5, "bytes": 999, "batches": 4}', 1000)


def test_the_reference_peer_has_two_programs(tmp_path: Path) -> None:
    assert "--reference-peer" in (reference.Reference(None).missing() or "")
    assert str(tmp_path / "server") in (reference.Reference(tmp_path).missing() or "")


def test_a_case_asks_dipc_bench_for_window_pause_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = dipc.Dipc("dipc tcp", Path("dipc"), "tcp", "heap")
    case = Case("get", batch_bytes=64, window_batches=3, window_bytes=99, pause=0.01, values="bool")
    asked = peer.arguments(case)
    pairs = set(itertools.pairwise(asked))
    wanted = {("--window-batches", "3"), ("--window-bytes", "99"), ("--consumer-pause", "10ms"), ("--values", "bool")}
    assert wanted <= pairs
    # Each once: the usual window is not asked for as well.
    assert asked.count("--window-batches") == 1
    usual = peer.arguments(Case("get", batch_bytes=64))
    assert not {"--window-bytes", "--consumer-pause", "--values"} & set(usual)
    monkeypatch.setattr(dipc, "available_memory", lambda: (1 << 30) - 1)
    with pytest.raises(PeerError, match="1 GiB of free memory"):
        peer.run(replace(case, free_bytes=1 << 30))
