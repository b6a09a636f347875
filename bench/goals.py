"""The goals: what each asks, what this run measured, and whether that is enough."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from bench.cases import (
    DEFAULT_WINDOW_BATCHES,
    DIPC,
    FLIGHT,
    IPERF3,
    KIB,
    MIB,
    PERFTEST,
    REFERENCE,
    REFERENCE_SIZES,
    SIZES,
    SLOW,
    UCX,
    WALKING,
    size_text,
)
from bench.lookup import Ratio, figures, find, median, ratio
from bench.results import Row, Run

RATE = "bytes_per_second"
ARENA = "dipc shm arena"
HEAP = "dipc shm heap"


@dataclass(frozen=True)
class Outcome:
    """One goal. `met` is none where nothing was measured.

    In `what` brackets are around what tells the goals of one kind apart: `tcp: [2 MiB], in
    Flight's`. `margin` is how far the goal is surpassed, as a ratio. Below 1 it is met by its measured
    limit alone, or missed.
    """

    what: str
    goal: str
    measured: str
    met: bool | None
    margin: float = 0

    @property
    def case(self) -> str:
        """Its name."""
        return self.what.replace("[", "").replace("]", "")

    @property
    def kind(self) -> str:
        """The name of all goals of its kind."""
        return re.sub(r"\[[^]]*\][,:]? ?", "", self.what).strip(",: ")

    @property
    def which(self) -> str:
        """What it is within its kind."""
        return ", ".join(re.findall(r"\[([^]]*)\]", self.what))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _text(found: Ratio) -> str:
    return f"{_number(found.value)}× ({_number(found.least)}–{_number(found.most)})"


def _absent(case: str, goal: str, row: Row | None = None) -> Outcome:
    reason = row.problem if row is not None and row.problem else "not part of this run"
    return Outcome(case, goal, f"not measured: {reason}", None)


def _problem(*rows: Row | None) -> Row | None:
    """The first row that says why it has no figures."""
    return next((row for row in rows if row is not None and row.problem), None)


def _most(case: str, goal: str, text: str, value: float, most: float) -> Outcome:
    return Outcome(case, goal, text, value <= most, most / value if value > 0 else math.inf)


def _least(case: str, goal: str, text: str, value: float, least: float) -> Outcome:
    return Outcome(case, goal, text, value >= least, value / least)


def _at_least(case: str, goal: str, least: float, ours: Row | None, theirs: Row | None, note: str = "") -> Outcome:
    found = ratio(ours, theirs, RATE)
    if found is None:
        return _absent(case, goal, _problem(ours, theirs))
    return _least(case, goal, _text(found) + note, found.value, least)


def _get(run: Run, peer: str, size: int, touch: str = "none") -> Row | None:
    return find(run, peer, "get", group="throughput", batch_bytes=size, touch=touch)


def _flight(run: Run, size: int, touch: str) -> Row | None:
    """The faster of Flight's two ways."""
    rows = [_get(run, peer, size, touch) for peer in FLIGHT]
    return max(rows, key=lambda row: median(row, RATE) or 0)


def _per_batch(run: Run) -> Iterator[Outcome]:
    case, goal = "shm, arena: cost of a batch, 32 MiB in that of 64 KiB", "≤ 1.2×"
    large, small = _get(run, ARENA, 32 * MIB), _get(run, ARENA, 64 * KIB)
    # The cost is the inverse of the rate.
    found = ratio(small, large, "batches_per_second")
    if found is None:
        yield _absent(case, goal, _problem(large, small))
    else:
        yield _most(case, goal, _text(found), found.value, 1.2)
    case, goal = "shm, arena: ten columns, 64 KiB, level structure", "≥ 400,000 batches/s (≤ 2.5 µs)"
    row = find(run, ARENA, "get", columns=10, default_window=False)
    rate = figures(row, "batches_per_second")
    if rate is None:
        yield _absent(case, goal, row)
    else:
        text = f"{rate.median:,.0f} ({rate.least:,.0f}–{rate.most:,.0f}); {1e6 / rate.median:.2f} µs"
        yield _least(case, goal, text, rate.median, 400_000)


def _tls(run: Run) -> Iterator[Outcome]:
    """TLS in one run beside its parts: the bytes cross tcp, are sealed, and are copied once more."""
    case, goal = "tls: 2 MiB, in 1/(1/tcp + 1/AES-128-GCM + 1/memcpy)", "≥ 0.8×"
    size, group = 2 * MIB, "tls 2 MiB"
    rows = [
        find(run, "dipc tls", "get", group=group, batch_bytes=size),
        find(run, "dipc tcp", "get", group=group, batch_bytes=size),
        find(run, "AES-128-GCM", "aes_128_gcm", group=group, batch_bytes=size),
        find(run, "memcpy", "memcpy", group=group, batch_bytes=size),
    ]
    rates = [median(row, RATE) for row in rows]
    if any(not rate for rate in rates):
        yield _absent(case, goal, _problem(*rows))
        return
    ours, *parts = (rate for rate in rates if rate)
    found = ours * sum(1 / part for part in parts)
    yield _least(case, goal, f"{_number(found)}×", found, 0.8)


def _flight_tls(run: Run) -> Iterator[Outcome]:
    size, group = 2 * MIB, "tls 2 MiB"
    ours, theirs = (find(run, peer, "get", group=group, batch_bytes=size) for peer in ("dipc tls", "Flight tls"))
    yield _at_least("tls: 2 MiB, one stream, in Flight's over TLS", "≥ 1.5×", 1.5, ours, theirs)


def _tls_connection(run: Run) -> Iterator[Outcome]:
    """What TLS adds to a new connection up to the first answer: to libdipc's, in what it adds to one with rustls."""
    group, goal = "tls connection", "≤ 1.2×"
    plain = find(run, "dipc tcp", "connect", group=group), find(run, "TCP connection", "tcp_connection", group=group)
    for resume, bare, name in (
        (False, "tls_connection", "a new connection, [whole handshake]"),
        (True, "tls_resumption", "a new connection, [session resumed]"),
    ):
        case = f"tls: {name}, what it adds to tcp, in what bare rustls adds (p50)"
        tls = (
            find(run, "dipc tls", "connect", group=group, resume=resume),
            find(run, bare.replace("tls_", "TLS "), bare, group=group),
        )
        times = [[median(row, "p50_ns") for row in pair] for pair in zip(tls, plain, strict=True)]
        added = [with_tls - without for with_tls, without in times if with_tls and without]
        if len(added) < 2 or added[1] <= 0:
            yield _absent(case, goal, _problem(*tls, *plain))
            continue
        ours, theirs = added
        text = f"{ours / theirs:.2f}×; {ours / 1e3:.0f} µs, and {theirs / 1e3:.0f} µs"
        yield _most(case, goal, text, ours / theirs, 1.2)


def _shed(run: Run) -> Iterator[Outcome]:
    for peer in (ARENA, "dipc tcp"):
        case = f"[{peer.removeprefix('dipc ')}]: a request refused by a busy server, in a served one's processor time"
        row = find(run, peer, "shed")
        shed, served = (median(row, f"request_cpu_{kind}_seconds") for kind in ("shed", "served"))
        if not shed or not served:
            yield _absent(case, "< 1×", row)
            continue
        text = f"{shed / served:.2f}×; {shed * 1e6:.1f} µs, and {served * 1e6:.1f} µs"
        yield Outcome(case, "< 1×", text, shed < served, served / shed)


def _open(run: Run) -> Iterator[Outcome]:
    """Other ways and numbers of streams have figures, but no goal."""
    case, goal = "tcp: streams of one batch opened in a second, 1,000 at once, in Flight's over tcp", "≥ 3×"
    row = find(run, "dipc tcp", "open", streams=1_000)
    ours, theirs = (median(row, f"{whose}streams_per_second") for whose in ("", "flight_"))
    if not ours or not theirs:
        yield _absent(case, goal, row)
    else:
        yield _least(case, goal, f"{ours / theirs:.2f}×; {ours:,.0f}, and {theirs:,.0f}", ours / theirs, 3)


def _or_limit(case: str, least: float, ours: Row | None, theirs: Row | None, limit: Row | None, name: str) -> Outcome:
    """A goal, or 0.95 of a measured limit where that limit is below the goal."""
    goal = f"≥ {least}×, or ≥ 0.95× {name}"
    of_goal, of_limit = ratio(limit, theirs, RATE), ratio(ours, limit, RATE)
    if of_goal is None or of_limit is None:
        return _at_least(case, goal, least, ours, theirs)
    outcome = _at_least(case, goal, least, ours, theirs)
    if outcome.met:
        return outcome
    text = f"{outcome.measured}; {name}: {of_goal.value:.2f}×, of which {of_limit.value:.2f}×"
    if of_goal.value >= least:
        return replace(outcome, measured=text)
    return replace(outcome, measured=text, met=of_limit.value >= 0.95)


def _shared_memory(run: Run) -> Iterator[Outcome]:
    size = 32 * MIB
    untouched, flight = _get(run, ARENA, size), _flight(run, size, "none")
    yield _at_least("shm, arena: 32 MiB, untouched, in Flight's", "≥ 1,000×", 1000, untouched, flight)
    for size in SIZES:
        ours, theirs = _get(run, ARENA, size, "sum"), find(run, "sum", "sum", batch_bytes=size)
        if ours is not None:
            case = f"shm, arena: [{size_text(size)}], summed, in the sum of local memory"
            stream = find(run, "Arrow C stream", "arrow_stream", batch_bytes=size)
            yield _or_limit(case, 0.95, ours, theirs, stream, "Arrow's C stream in one process")
    for size in (2 * MIB, 32 * MIB):
        ours, theirs = _get(run, HEAP, size), find(run, "memcpy", "memcpy", batch_bytes=size)
        yield _at_least(f"shm, heap: [{size_text(size)}], in memcpy's", "≥ 0.9×", 0.9, ours, theirs)
        for touch, name in (("none", "untouched"), ("sum", "summed")):
            case = f"shm, heap: [{size_text(size)}, {name}], in Flight's"
            yield _at_least(case, "≥ 4×", 4, _get(run, HEAP, size, touch), _flight(run, size, touch))


def _first_batch(run: Run) -> Iterator[Outcome]:
    for apart, (source, most) in product((False, True), (("published", 1.2), ("provider", 2.0))):
        trip = find(run, "socket", "socket_round_trip", apart=apart)
        where = "on processors of their own" if apart else "where the system puts them"
        case = f"shm: first batch of a stream, {source}, both asleep, [{where}], in a socket's round trip (p50)"
        row = find(run, ARENA, "connect", source=source, spin=False, apart=apart)
        found, tail = ratio(row, trip, "p50_ns"), median(row, "p99_ns")
        if found is None:
            yield _absent(case, f"≤ {most}×", _problem(row, trip))
        else:
            note = f"; p99 {tail / 1e3:.0f} µs" if tail is not None else ""
            yield _most(case, f"≤ {most}×", _text(found) + note, found.value, most)
    case, goal = "shm: hand-over of a 64 B batch, both awake (p50)", "≤ 3 µs"
    row = find(run, ARENA, "latency", batch_bytes=64, spin=True)
    p50 = figures(row, "p50_ns")
    if p50 is None:
        yield _absent(case, goal, row)
    else:
        text = f"{p50.median / 1e3:.2f} µs ({p50.least / 1e3:.2f}–{p50.most / 1e3:.2f})"
        yield _most(case, goal, text, p50.median, 3000)


def _tcp(run: Run) -> Iterator[Outcome]:
    size = 2 * MIB
    ours = _get(run, "dipc tcp", size)
    usual, same = ([row for row in run.rows if row.peer == peer and row.rounds] for peer in IPERF3)
    # Its own default is to write 128 KiB at once; the other sizes are for comparison.
    default = next((row for row in usual if row.case.batch_bytes == 128 * KIB), None)
    beside = find(run, "iperf3", "get", batch_bytes=size)
    note = ""
    for rows, name in ((usual, "best block size's"), (same, "best with libdipc's congestion control")):
        best = max(rows, key=lambda row: median(row, RATE) or 0, default=None)
        other = ratio(ours, best, RATE)
        note += f"; {other.value:.2f}× its {name}" if other is not None else ""
    case = "tcp: 2 MiB, one stream, in iperf3's"
    yield _at_least(case, "≥ 1.0×", 1.0, ours, default or beside, note)
    for touch, name in (("none", "untouched"), ("sum", "summed")):
        ours = _get(run, "dipc tcp", size, touch)
        yield _at_least(f"tcp: 2 MiB, [{name}], in Flight's", "≥ 1.5×", 1.5, ours, _flight(run, size, touch))


def _ucx(run: Run) -> Iterator[Outcome]:
    for size in SIZES:
        ours, test = (find(run, peer, "get", reuse=True, batch_bytes=size) for peer in (UCX, PERFTEST))
        if ours is None:
            continue
        case = f"ucx tcp: [{size_text(size)}], one buffer, in tag_bw's"
        yield _at_least(case, "≥ 0.95×", 0.95, ours, test)
        copy = find(run, "memcpy", "memcpy", batch_bytes=size)
        rates = [(median(row, RATE), row) for row in (test, copy)]
        known = [(rate, row) for rate, row in rates if rate is not None]
        lesser = min(known, key=lambda pair: pair[0])[1] if len(known) == len(rates) else None
        case = f"ucx tcp: [{size_text(size)}], walking memory, in the lesser of tag_bw's and memcpy's"
        walked = _get(run, UCX, size)
        if lesser is None:
            yield _absent(case, "≥ 0.9×", _problem(walked, test, copy))
        else:
            # tag_bw sends out of a cache; UCX alone, of memory that is walked, shows what is left of that.
            yield _or_limit(case, 0.9, walked, lesser, _get(run, WALKING, size), "UCX alone, walking")
    yield from _ucx_latency(run)


def _ucx_latency(run: Run) -> Iterator[Outcome]:
    for ours in run.rows:
        if ours.peer != UCX or ours.case.op != "latency" or not ours.case.spin:
            continue
        size = ours.case.batch_bytes
        theirs = find(run, PERFTEST, "latency", batch_bytes=size)
        case, goal = f"ucx tcp: latency, [{size_text(size)}], both awake (p50)", "≤ 1.2 × tag_lat + 2 µs"
        p50, lat = median(ours, "p50_ns"), median(theirs, "p50_ns")
        if p50 is None or lat is None:
            yield _absent(case, goal, _problem(ours, theirs))
        else:
            limit = 1.2 * lat + 2000
            text = f"{p50 / 1e3:.2f} µs; tag_lat {lat / 1e3:.2f} µs, so at most {limit / 1e3:.2f} µs"
            yield _most(case, goal, text, p50, limit)


def _headers(run: Run) -> Iterator[Outcome]:
    for ours in run.rows:
        if ours.peer != "dipc header":
            continue
        columns, what = ours.case.columns, ours.case.op.removeprefix("header_")
        name = f"headers: [{what}, {columns:,} columns]"
        limit = 30 * columns + 500
        spent = figures(ours, "batch_ns")
        if spent is None:
            yield _absent(name, "≤ 30 ns per column + 500 ns", ours)
            continue
        text = f"{spent.median:,.0f} ns ({spent.least:,.0f}–{spent.most:,.0f}); at most {limit:,} ns"
        yield _most(name, "≤ 30 ns per column + 500 ns", text, spent.median, limit)
        theirs = find(run, "arrow-rs header", ours.case.op, columns=columns)
        direction = "write" if what == "build" else "read"
        other = find(run, f"pyarrow IPC {direction}", "metadata", columns=columns)
        for whose, row in (("arrow-rs'", theirs), ("Arrow C++'s (pyarrow)", other)):
            found = ratio(ours, row, "ns_per_column")
            case, goal = f"{name}, in {whose}", "≤ 0.5×"
            yield _absent(case, goal, row) if found is None else _most(case, goal, _text(found), found.value, 0.5)


def _many(run: Run) -> Iterator[Outcome]:
    kinds = (("1,000 idle streams", 1000, "published", 4), ("5,000 streams pushed by one thread", 5000, "push", 32))
    for peer, (kind, streams, source, most) in product((ARENA, "dipc tcp"), kinds):
        row = find(run, peer, "idle", streams=streams, source=source)
        case, goal = f"[{peer.removeprefix('dipc ')}]: {kind}", f"< 0.1 % CPU; ≤ {most} KiB each at the server"
        spans = row.values("seconds") if row is not None else []
        server, client = median(row, "cpu_server_seconds"), median(row, "cpu_client_seconds")
        memory = median(row, "stream_memory_server_bytes")
        if not spans or server is None or client is None or memory is None:
            yield _absent(case, goal, row)
            continue
        # Of one core, both processes together.
        share = 100 * (server + client) / statistics.median(spans)
        text, met = f"{share:.3f} %; {memory / KIB:.1f} KiB", share < 0.1 and memory <= most * KIB
        yield Outcome(case, goal, text, met, 1 / max(share / 0.1, memory / most / KIB, 1e-9))
    for peer in (ARENA, HEAP, "dipc tcp"):
        many = find(run, peer, "get", group="256 streams", streams=256, consumers=None, default_window=False)
        narrow = find(run, peer, "get", group="256 streams", streams=256, default_window=True) or many
        one = find(run, peer, "get", group="256 streams", streams=1, default_window=False, window_batches=None)
        alike = ratio(narrow, find(run, peer, "get", group="256 streams", streams=1, default_window=True), RATE)
        note = f"; {alike.value:.2f}× with the default window at both" if alike is not None else ""
        turns = ratio(find(run, peer, "get", group="256 streams", streams=256, consumers=1), one, RATE)
        note += f"; {turns.value:.2f}× where one thread takes them by turns" if turns is not None else ""
        case, goal = f"[{peer.removeprefix('dipc ')}]: 256 streams of 64 KiB batches, in one stream's", "≥ 0.8×"
        if peer == HEAP:
            # The copies of one lie in a cache, where those of the many have no room.
            windows = 256 * DEFAULT_WINDOW_BATCHES
            spread = find(run, peer, "get", group="256 streams", streams=1, window_batches=windows)
            outcome = _or_limit(case, 0.8, many, one, spread, "one stream with as much memory for copies")
            yield replace(outcome, measured=outcome.measured + note)
        else:
            yield _at_least(case, goal, 0.8, many, one, note)
        case, goal = f"[{peer.removeprefix('dipc ')}]: the slowest of 256 streams, in the median", "≥ 0.5×"
        slowest, middle = median(many, "stream_min_bytes_per_second"), median(many, "stream_median_bytes_per_second")
        if slowest is None or not middle:
            yield _absent(case, goal, many)
        else:
            yield _least(case, goal, f"{slowest / middle:.2f}×", slowest / middle, 0.5)


def _linear(run: Run) -> Iterator[Outcome]:
    case, goal = "shm: cost of a column, 10,000 columns in that of 1,000", "linear: ≤ 1.25×"
    wide, narrow = (find(run, ARENA, "metadata", group="10,000", columns=count) for count in (10_000, 1_000))
    found = ratio(wide, narrow, "ns_per_column")
    yield _absent(case, goal, wide) if found is None else _most(case, goal, _text(found), found.value, 1.25)
    case, goal = "shm: cost of a 64 B batch, 1,000,000 in that of 100,000", "linear: ≤ 1.25×"
    many, few = (find(run, ARENA, "get", group="tiny", batches=count) for count in (1_000_000, 100_000))
    found = ratio(few, many, "batches_per_second")
    yield _absent(case, goal, many) if found is None else _most(case, goal, _text(found), found.value, 1.25)

    for peer in DIPC:
        case = f"[{peer.removeprefix('dipc ')}]: cost of a row, 2^31 rows of one column in that of 2^28"
        long, short = (find(run, peer, "get", group="2^31", batch_bytes=size) for size in (256 * MIB, 32 * MIB))
        found = ratio(short, long, RATE)
        absent = _problem(long, short)
        yield _absent(case, goal, absent) if found is None else _most(case, goal, _text(found), found.value, 1.25)


def _reference(run: Run) -> Iterator[Outcome]:
    pairs = [
        (size, find(run, UCX, "get", group="reference peer", batch_bytes=size), theirs)
        for size in REFERENCE_SIZES
        if (theirs := find(run, REFERENCE, "get", batch_bytes=size))
    ]
    # Where nobody has built it, the list of what is left out says so.
    if not any(theirs.rounds for *_, theirs in pairs):
        return
    for size, ours, theirs in pairs:
        case = f"ucx tcp: [{size_text(size)}], in the reference peer's client and server"
        yield _or_limit(case, 5, ours, theirs, _get(run, WALKING, size), "UCX alone, walking")


def _requests(run: Run) -> Iterator[Outcome]:
    for size in REFERENCE_SIZES:
        group = f"put {size_text(size)}"
        for peer in DIPC:
            put, get = (find(run, peer, op, group=group, batch_bytes=size) for op in ("put", "get"))
            name = f"[{peer.removeprefix('dipc ')}]: put, [{size_text(size)}]"
            yield _at_least(f"{name}, in get's", "≥ 0.9×", 0.9, put, get)
            if peer != ARENA:
                theirs = [find(run, flight, "put", group=group, batch_bytes=size) for flight in FLIGHT]
                best = max(theirs, key=lambda row: median(row, RATE) or 0)
                least = 4 if peer == HEAP else 1.5
                yield _at_least(f"{name}, in Flight's DoPut", f"≥ {least}×", least, put, best)
    loop, waits = (find(run, ARENA, "get", group="event loop", take=take) for take in ("try_next", "next"))
    yield _at_least("shm, arena: 64 KiB in an event loop, in a call's that waits", "≥ 0.9×", 0.9, loop, waits)
    for peer in (ARENA, "dipc tcp"):
        described, first = (find(run, peer, op, group="description") for op in ("describe", "connect"))
        case = f"[{peer.removeprefix('dipc ')}]: description of a published ticket, in a first batch's time (p50)"
        found = ratio(described, first, "p50_ns")
        if found is None:
            yield _absent(case, "≤ 1.2×", _problem(described, first))
        else:
            yield _most(case, "≤ 1.2×", _text(found), found.value, 1.2)


def _slow(run: Run) -> Iterator[Outcome]:
    for peer in SLOW:
        case = f"[{peer.removeprefix('dipc ')}]: slow consumer, memory at both ends beyond that of an idle stream"
        goal = "≤ the window + 10 %"
        slow, idle = (find(run, peer, op, group="slow consumer") for op in ("get", "idle"))
        window = slow.case.window_bytes if slow is not None else None
        grown = [
            (end, most - least)
            for end in ("server", "client")
            if (most := median(slow, f"peak_memory_{end}_bytes")) is not None
            and (least := median(idle, f"peak_memory_{end}_bytes")) is not None
        ]
        if not grown or window is None:
            yield _absent(case, goal, _problem(slow, idle))
            continue
        sizes = ", ".join(f"{end} {size / MIB:.1f} MiB" for end, size in grown)
        yield _most(case, goal, f"{sizes}; window {window / MIB:.0f} MiB", max(size for _, size in grown), 1.1 * window)


def outcomes(run: Run) -> list[Outcome]:
    """Every goal, in the order of the page."""
    parts = (_per_batch, _shared_memory, _first_batch, _tcp, _tls, _flight_tls, _tls_connection, _ucx, _reference)
    others = (_headers, _many, _requests, _shed, _open, _slow, _linear)
    found = (outcome for part in (*parts, *others) for outcome in part(run))
    return [replace(outcome, measured=outcome.measured.replace("|", "/")) for outcome in found]
