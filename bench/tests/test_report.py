"""Goals, tables and pictures of a run that was made up, where every answer is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import plots, report
from bench.__main__ import chosen
from bench.cases import KIB, MIB, Case, matrix, size_text
from bench.goals import outcomes
from bench.lookup import find, ratio
from bench.results import Result, Row, Run

ABOUT: dict[str, Any] = {
    "date": "2001-02-03 04:05 UTC",
    "mode": "quick",
    "rounds": 3,
    "commit": "abc",
    "processor": "an abacus",
    "cores": 2,
    "memory_gib": 1.0,
    "kernel": "6",
    "huge_pages": "madvise",
    "congestion_control": "cubic",
    "load": 0.1,
    "versions": {"dipc tcp": "dipc 0.1.0", "Flight tcp": "pyarrow 1"},
}


def row(group: str, peer: str, case: Case, figure: str, *values: float) -> Row:
    return Row(group, peer, case, [Result({figure: value}) for value in values])


def throughput(peer: str, size: int, *values: float, touch: str = "none", op: str = "get") -> Row:
    case = Case(op, batch_bytes=size, touch=touch)
    return row(f"throughput {size_text(size)}", peer, case, "bytes_per_second", *values)


def measured(run: Run, case: str) -> tuple[str, bool | None]:
    (outcome,) = [outcome for outcome in outcomes(run) if outcome.case == case]
    return outcome.measured, outcome.met


def test_a_ratio_is_of_medians_and_its_range_of_rounds() -> None:
    ours, theirs = throughput("dipc tcp", 64, 2.0, 30.0, 4.0), throughput("iperf3", 64, 1.0, 10.0, 4.0)
    found = ratio(ours, theirs, "bytes_per_second")
    assert found is not None
    assert (found.value, found.least, found.most) == (1.0, 1.0, 3.0)
    assert ratio(ours, None, "bytes_per_second") is None
    assert ratio(ours, theirs, "p50_ns") is None


def test_a_goal_is_met_at_its_limit_and_not_below() -> None:
    case = "shm, heap: 2 MiB, in memcpy's"
    for rate, met in ((90.0, True), (89.0, False)):
        run = Run(
            ABOUT, [throughput("dipc shm heap", 2 * MIB, rate), throughput("memcpy", 2 * MIB, 100.0, op="memcpy")]
        )
        assert measured(run, case) == (f"{rate / 100:.2f}× ({rate / 100:.2f}–{rate / 100:.2f})", met)


def test_flight_is_judged_by_its_faster_way() -> None:
    rows = [
        throughput("dipc tcp", 2 * MIB, 30.0),
        throughput("Flight tcp", 2 * MIB, 10.0),
        throughput("Flight unix", 2 * MIB, 25.0),
    ]
    assert measured(Run(ABOUT, rows), "tcp: 2 MiB, untouched, in Flight's") == ("1.20× (1.20–1.20)", False)


def test_what_tls_adds_to_a_connection_is_judged_by_what_it_adds_without_libdipc() -> None:
    connect = Case("connect", batch_bytes=64, fresh=True)
    ours, plain = 500.0, 180.0
    for theirs, resumed, whole_met, resumed_met in ((370.0, 220.0, True, False), (360.0, 230.0, False, True)):
        rows = [
            row("tls connection", "dipc tls", connect, "p50_ns", ours),
            row("tls connection", "dipc tcp", connect, "p50_ns", plain),
            row("tls connection", "dipc tls", replace(connect, resume=True), "p50_ns", 330.0),
            row("tls connection", "TCP connection", Case("tcp_connection"), "p50_ns", 100.0),
            row("tls connection", "TLS connection", Case("tls_connection"), "p50_ns", theirs),
            row("tls connection", "TLS resumption", Case("tls_resumption"), "p50_ns", resumed),
        ]
        for handshake, added, least, met in (
            ("whole handshake", ours - plain, theirs - 100, whole_met),
            ("session resumed", 150.0, resumed - 100, resumed_met),
        ):
            case = f"tls: a new connection, {handshake}, what it adds to tcp, in what bare rustls adds (p50)"
            text, found = measured(Run(ABOUT, rows), case)
            assert text.startswith(f"{added / least:.2f}×")
            assert found is met
        # A machine that has not measured one of them has no goal met or missed.
        assert measured(Run(ABOUT, rows[:1] + rows[2:]), case)[1] is None


def test_flight_within_tls_is_judged_beside_tls() -> None:
    case = Case("get", batch_bytes=2 * MIB)
    for ours, met in ((15.0, True), (14.0, False)):
        rows = [
            row("tls 2 MiB", "dipc tls", case, "bytes_per_second", ours),
            row("tls 2 MiB", "Flight tls", case, "bytes_per_second", 10.0),
        ]
        assert measured(Run(ABOUT, rows), "tls: 2 MiB, one stream, in Flight's over TLS")[1] is met


def test_a_shed_request_costs_less_than_a_served_one() -> None:
    case = "tcp: a request refused by a busy server, in a served one's processor time"
    for shed, met in ((9e-6, True), (11e-6, False)):
        found = row("shed requests", "dipc tcp", Case("shed"), "request_cpu_shed_seconds", shed)
        found.rounds[0].figures["request_cpu_served_seconds"] = 10e-6
        assert measured(Run(ABOUT, [found]), case)[1] is met


def test_opened_streams_are_judged_beside_flights() -> None:
    case = "tcp: streams of one batch opened in a second, 1,000 at once, in Flight's over tcp"
    for ours, met in ((31.0, True), (29.0, False)):
        found = row("opened streams", "dipc tcp", Case("open", streams=1_000), "streams_per_second", ours)
        found.rounds[0].figures["flight_streams_per_second"] = 10.0
        assert measured(Run(ABOUT, [found]), case)[1] is met


def test_iperf3_is_judged_by_its_own_default_and_the_best_is_told() -> None:
    rows = [
        throughput("dipc tcp", 2 * MIB, 30.0),
        throughput("iperf3", 128 * KIB, 20.0),
        throughput("iperf3", 512 * KIB, 40.0),
        throughput("iperf3", 2 * MIB, 25.0),
        throughput("iperf3 -C reno", 2 * MIB, 60.0),
    ]
    text, met = measured(Run(ABOUT, rows), "tcp: 2 MiB, one stream, in iperf3's")
    best = "0.75× its best block size's; 0.50× its best with libdipc's congestion control"
    assert text == f"1.50× (1.50–1.50); {best}"
    assert met is True


def test_cost_of_a_batch_is_the_inverse_of_its_rate() -> None:
    rows = [
        row("throughput", "dipc shm arena", Case("get", batch_bytes=size), "batches_per_second", rate)
        for size, rate in ((64 * KIB, 300.0), (32 * MIB, 200.0))
    ]
    text, met = measured(Run(ABOUT, rows), "shm, arena: cost of a batch, 32 MiB in that of 64 KiB")
    assert text.startswith("1.50×")
    assert met is False


def test_ucx_walking_is_judged_by_the_lesser_of_both() -> None:
    size = 64 * KIB
    reused = Case("get", batch_bytes=size, reuse=True)
    rows = [
        throughput("dipc ucx tcp", size, 18.0),
        throughput("memcpy", size, 20.0, op="memcpy"),
        row("one buffer", "dipc ucx tcp", reused, "bytes_per_second", 90.0),
        row("one buffer", "ucx_perftest tcp", reused, "bytes_per_second", 100.0),
    ]
    run = Run(ABOUT, rows)
    text, met = measured(run, "ucx tcp: 64 KiB, walking memory, in the lesser of tag_bw's and memcpy's")
    assert (text, met) == ("0.90× (0.90–0.90)", True)
    assert measured(run, "ucx tcp: 64 KiB, one buffer, in tag_bw's")[1] is False
    # Without one of them it is not known which is the lesser.
    run.rows.pop()
    text, met = measured(run, "ucx tcp: 64 KiB, walking memory, in the lesser of tag_bw's and memcpy's")
    assert met is None


def test_ucx_alone_is_the_limit_where_it_walks_memory_too() -> None:
    size = 64 * KIB
    reused = Case("get", batch_bytes=size, reuse=True)
    case = "ucx tcp: 64 KiB, walking memory, in the lesser of tag_bw's and memcpy's"
    # Ours, and UCX alone, in percent of tag_bw: where UCX alone meets the goal, that is no excuse.
    cases = ((90.0, 99.0, True), (76.0, 80.0, True), (75.0, 80.0, False), (89.0, 99.0, False), (88.0, 92.0, False))
    for ours, alone, met in cases:
        rows = [
            throughput("dipc ucx tcp", size, ours),
            throughput("ucx walking tcp", size, alone),
            throughput("memcpy", size, 200.0, op="memcpy"),
            row("one buffer", "dipc ucx tcp", reused, "bytes_per_second", 100.0),
            row("one buffer", "ucx_perftest tcp", reused, "bytes_per_second", 100.0),
        ]
        text, found = measured(Run(ABOUT, rows), case)
        # The limit is told where the goal itself is not met.
        limit = f"UCX alone, walking: {alone / 100:.2f}×, of which {ours / alone:.2f}×"
        assert (limit in text) == (ours < 90)
        assert found is met


def test_summing_is_judged_beside_a_c_stream_where_that_is_slower_than_the_goal() -> None:
    size = 64 * KIB
    case = "shm, arena: 64 KiB, summed, in the sum of local memory"
    for ours, stream, met in ((95.0, 80.0, True), (76.0, 80.0, True), (75.0, 80.0, False), (94.0, 96.0, False)):
        rows = [
            throughput("dipc shm arena", size, ours, touch="sum"),
            throughput("sum", size, 100.0, op="sum"),
            throughput("Arrow C stream", size, stream, op="arrow_stream"),
        ]
        text, found = measured(Run(ABOUT, rows), case)
        limit = f"Arrow's C stream in one process: {stream / 100:.2f}×, of which {ours / stream:.2f}×"
        assert (limit in text) == (ours < 95)
        assert found is met


def test_ucx_latency_may_take_two_microseconds_more() -> None:
    spinning = Case("latency", batch_bytes=64, spin=True)
    for p50, met in ((3200.0, True), (3201.0, False)):
        rows = [
            row("latency", "dipc ucx tcp", spinning, "p50_ns", p50),
            row("latency", "ucx_perftest tcp", spinning, "p50_ns", 1000.0),
        ]
        assert measured(Run(ABOUT, rows), "ucx tcp: latency, 64 B, both awake (p50)")[1] is met


def test_headers_are_judged_by_time_and_by_both_others() -> None:
    def header(peer: str, op: str, per_column: float) -> Row:
        figures = {"batch_ns": per_column * 10, "ns_per_column": per_column}
        return Row("header", peer, Case(op, columns=10), [Result(figures)])

    rows = [
        header("dipc header", "header_build", 80.0),
        header("arrow-rs header", "header_build", 160.0),
        header("pyarrow IPC write", "metadata", 159.0),
    ]
    run = Run(ABOUT, rows)
    assert measured(run, "headers: build, 10 columns") == ("800 ns (800–800); at most 800 ns", True)
    assert measured(run, "headers: build, 10 columns, in arrow-rs'")[1] is True
    assert measured(run, "headers: build, 10 columns, in Arrow C++'s (pyarrow)")[1] is False


def idle(server: float, client: float, memory: float) -> Row:
    figures = {
        "seconds": 2.0,
        "cpu_server_seconds": server,
        "cpu_client_seconds": client,
        "stream_memory_server_bytes": memory,
    }
    return Row("1,000 idle streams", "dipc tcp", Case("idle", streams=1000), [Result(figures)])


def test_idle_streams_are_judged_by_processor_and_memory() -> None:
    case = "tcp: 1,000 idle streams"
    assert measured(Run(ABOUT, [idle(0.0005, 0.0005, 4 * KIB)]), case) == ("0.050 %; 4.0 KiB", True)
    assert measured(Run(ABOUT, [idle(0.001, 0.0015, 4 * KIB)]), case)[1] is False
    assert measured(Run(ABOUT, [idle(0.0, 0.0, 5 * KIB)]), case)[1] is False


def peak(op: str, server: float, client: float) -> Row:
    case = Case(op, batch_bytes=4 * MIB, reuse=True, window_bytes=64 * MIB)
    figures = {"peak_memory_server_bytes": server * MIB, "peak_memory_client_bytes": client * MIB}
    return Row("slow consumer", "dipc tcp", case, [Result(figures)])


def test_a_slow_consumer_is_judged_by_what_both_ends_take_beyond_an_idle_stream() -> None:
    case = "tcp: slow consumer, memory at both ends beyond that of an idle stream"
    for server, client, met in ((30.0, 90.0, True), (30.0, 91.0, False), (101.0, 20.0, False)):
        run = Run(ABOUT, [peak("get", server, client), peak("idle", 30.0, 19.6)])
        expected = f"server {server - 30:.1f} MiB, client {client - 19.6:.1f} MiB; window 64 MiB"
        assert measured(run, case) == (expected, met)
    assert measured(Run(ABOUT, [peak("get", 1.0, 1.0)]), case)[1] is None


def test_long_columns_are_judged_by_the_cost_of_a_row() -> None:
    def long(size: int, rate: float) -> Row:
        case = Case("get", batch_bytes=size, values="bool")
        return row("2^31 rows", "dipc tcp", case, "bytes_per_second", rate)

    case = "tcp: cost of a row, 2^31 rows of one column in that of 2^28"
    for rate, met in ((80.0, True), (79.0, False)):
        run = Run(ABOUT, [long(256 * MIB, rate), long(32 * MIB, 100.0)])
        assert measured(run, case)[1] is met
    short = Row("2^31 rows", "dipc tcp", Case("get", batch_bytes=256 * MIB), problem="no room")
    assert measured(Run(ABOUT, [short, long(32 * MIB, 1.0)]), case) == ("not measured: no room", None)


def test_copies_of_many_streams_are_judged_beside_one_with_as_much_memory() -> None:
    one = Case("get", batch_bytes=64 * KIB, seconds=2)
    for name, many, spread, met in (
        ("shm heap", 80.0, 100.0, True),
        ("shm heap", 77.0, 79.0, True),
        ("shm heap", 75.0, 79.0, False),
        ("shm heap", 79.0, 81.0, False),
        ("shm arena", 79.0, 79.0, False),
    ):
        cases = ((replace(one, streams=256), many), (replace(one, window_batches=4096), spread), (one, 100.0))
        rows = [row("256 streams", f"dipc {name}", case, "bytes_per_second", rate) for case, rate in cases]
        text, found = measured(Run(ABOUT, rows), f"{name}: 256 streams of 64 KiB batches, in one stream's")
        assert (text.startswith(f"{many / 100:.2f}×"), found) == (True, met)


def test_the_reference_peer_is_judged_beside_ucx_alone() -> None:
    case = Case("get", batch_bytes=2 * MIB)

    def pair(ours: float, theirs: float, *alone: float) -> Run:
        figure = "bytes_per_second"
        rows = [
            row("reference peer 2 MiB", "dipc ucx tcp", case, figure, ours),
            row("reference peer 2 MiB", "reference peer tcp", case, figure, theirs),
            *(throughput("ucx walking tcp", 2 * MIB, rate) for rate in alone),
        ]
        return Run(ABOUT, rows)

    name = "ucx tcp: 2 MiB, in the reference peer's client and server"
    assert measured(pair(50.0, 10.0), name) == ("5.00× (5.00–5.00)", True)
    assert measured(pair(49.0, 10.0), name)[1] is False
    # Nothing that sends by UCX comes to five times of it where UCX alone does not.
    text, met = measured(pair(40.0, 10.0, 20.0), name)
    assert (text, met) == ("4.00× (4.00–4.00); UCX alone, walking: 2.00×, of which 2.00×", True)
    assert measured(pair(40.0, 10.0, 60.0), name)[1] is False
    # Where it is nowhere, the list of what is left out says so.
    absent = Run(ABOUT, [Row("reference peer", "reference peer tcp", case, problem="nobody built it")])
    assert not any("reference" in outcome.case for outcome in outcomes(absent))
    assert "- reference peer tcp (reference peer: get, 2 MiB): nobody built it" in report.markdown(absent)


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    row_that_failed = Row("256 streams", "dipc tcp", Case("get", batch_bytes=64 * KIB, streams=256), problem="it broke")
    run = Run(ABOUT, [row_that_failed])
    assert all(outcome.met is None for outcome in outcomes(run))
    assert measured(run, "tcp: 256 streams of 64 KiB batches, in one stream's")[0] == "not measured: it broke"
    assert "0 met, 0 not met" in report.goals(run)


def test_rows_are_told_apart_by_what_they_touch() -> None:
    run = Run(ABOUT, [throughput("dipc tcp", 64, 1.0), throughput("dipc tcp", 64, 2.0, touch="sum")])
    found = find(run, "dipc tcp", "get", touch="sum")
    assert found is run.rows[1]
    assert find(run, "dipc tcp", "get", touch="sum", group="one buffer") is None


def sample() -> Run:
    rows = [
        throughput("dipc tcp", 64 * KIB, 1.5e9, 2e9, 2.5e9),
        throughput("dipc tcp", 2 * MIB, 12e9, 13e9, 14e9),
        throughput("memcpy", 64 * KIB, 7e9, op="memcpy"),
        throughput("iperf3", 64 * KIB, 5e9),
        throughput("iperf3", 2 * MIB, 8e9),
        row("latency", "dipc tcp", Case("latency", batch_bytes=64), "p50_ns", 81_000.0, 82_000.0, 83_000.0),
        Row("throughput 64 KiB", "Flight tcp", Case("get", batch_bytes=64 * KIB), problem="pyarrow is not installed"),
    ]
    return Run(dict(ABOUT), rows)


def test_the_page_has_medians_and_what_is_missing() -> None:
    page = report.markdown(sample())
    assert "|  | 64 KiB | 2 MiB | 32 MiB | 2 MiB, summed | asleep | spinning | first |" in page
    assert "| dipc tcp | 2.00 | 13.0 | - | - | 82.00 | - | - |" in page
    # A limit of the machine needs two figures for a line.
    assert "| iperf3 | 5.00 | 8.00 |" in page
    assert "| memcpy |" not in page
    assert "- Flight tcp (throughput 64 KiB: get, 64 KiB): pyarrow is not installed" in page
    for text in ("an abacus, 2 cores", "2001-02-03", "dipc 0.1.0", "cubic"):
        assert text in page
    assert "the figures are worth less" not in page


def test_of_goals_alike_the_worst_is_shown_and_the_worst_of_those_that_are_missed() -> None:
    alone = Case("get", reuse=True)
    rows = [
        row("one buffer", peer, replace(alone, batch_bytes=size), "bytes_per_second", rate)
        for size, ours in ((64 * KIB, 93.0), (512 * KIB, 96.0), (2 * MIB, 90.0), (8 * MIB, 150.0))
        for peer, rate in (("dipc ucx tcp", ours), ("ucx_perftest tcp", 100.0))
    ]
    lines = report.goals(Run(ABOUT, rows)).splitlines()
    assert [line for line in lines if "one buffer" in line] == [
        "| ucx tcp: one buffer, in tag_bw's (2 of 4) | ≥ 0.95× | 2 MiB: 0.90× (0.90–0.90); also 64 KiB | **no** |",
        "| ucx tcp: one buffer, in tag_bw's (2 of 4) | ≥ 0.95× | 512 KiB: 0.96× (0.96–0.96) | yes |",
    ]
    assert "2 met, 2 not met" in "".join(lines)
    # One alone has its own name.
    lines = report.goals(Run(ABOUT, rows[2:4])).splitlines()
    assert "| ucx tcp: 512 KiB, one buffer, in tag_bw's | ≥ 0.95× | 0.96× (0.96–0.96) | yes |" in lines


def test_the_nearest_to_a_limit_is_the_worst_of_what_is_to_be_small() -> None:
    rows = [
        row("latency", peer, Case("latency", batch_bytes=size, spin=True), "p50_ns", p50)
        for size, ours, theirs in ((64, 3_000.0, 1_000.0), (4 * KIB, 13_900.0, 10_000.0), (64 * KIB, 9_000.0, 9_000.0))
        for peer, p50 in (("dipc ucx tcp", ours), ("ucx_perftest tcp", theirs))
    ]
    assert "(3) | ≤ 1.2 × tag_lat + 2 µs | 4 KiB: 13.90 µs;" in report.goals(Run(ABOUT, rows))


def test_a_goal_that_is_met_by_its_limit_alone_is_shown_before_others() -> None:
    rows = [
        row
        for size, ours, stream in ((64 * KIB, 70.0, 71.0), (512 * KIB, 96.0, 98.0))
        for row in (
            throughput("dipc shm arena", size, ours, touch="sum"),
            throughput("sum", size, 100.0, op="sum"),
            throughput("Arrow C stream", size, stream, op="arrow_stream"),
        )
    ]
    page = report.goals(Run(ABOUT, rows))
    assert "64 KiB: 0.70× (0.70–0.70); Arrow's C stream in one process: 0.71×, of which 0.99× | yes |" in page


def test_a_busy_machine_is_named() -> None:
    run = sample()
    run.about["load"] = 1.5
    assert "the figures are worth less" in report.markdown(run)


def test_results_are_the_same_when_they_are_read_again(tmp_path: Path) -> None:
    run = sample()
    run.save(tmp_path / "results.json")
    again = Run.load(tmp_path / "results.json")
    assert again == run
    assert report.markdown(again) == report.markdown(run)


def test_pictures_are_drawn_of_what_there_is_and_are_reproducible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = plots.draw(sample(), tmp_path)
    assert [path.name for path in drawn] == ["throughput-untouched.svg", "latency-asleep.svg"]
    first = [path.read_bytes() for path in drawn]
    assert b"dipc tcp" in first[0]
    assert b"Flight tcp" not in first[0]
    assert [path.read_bytes() for path in plots.draw(sample(), tmp_path)] == first


def test_every_picture_that_the_page_shows_is_drawn_by_the_same_rows() -> None:
    page = report.markdown(sample())
    assert page.count(".svg)") == 2


def test_entries_are_chosen_by_group_and_peer() -> None:
    groups = chosen(matrix(quick=False), r"^throughput 2 MiB / (dipc tcp|iperf3)$")
    (group,) = groups
    assert {entry.peer for entry in group.entries} == {"dipc tcp", "iperf3"}
    assert chosen(matrix(quick=False), "no such thing") == []
