"""The report: Markdown tables of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.cases import Case, size_text
from bench.goals import outcomes
from bench.lookup import figures
from bench.results import Row, Run
from bench.summary import Summary

HEAD = """# Measured beside its peers

`make bench` wrote this page and its pictures; `python -m bench report` writes them again from
[results.json](results.json), which has every round. [How to read it](README.md) says what each peer does."""


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column is text, the others are figures."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def _cell(found: Summary | None, text: Callable[[float], str]) -> str:
    if found is None:
        return "-"
    return f"{text(found.median)} ({text(found.least)} to {text(found.most)})"


def gigabytes(value: float) -> str:
    """Bytes per second as GB/s, 10^9 bytes, with the digits that say something."""
    value /= 1e9
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def mebibytes(value: float) -> str:
    """Bytes as MiB."""
    return f"{value / (1 << 20):.1f}"


def micros(value: float) -> str:
    """Nanoseconds as microseconds."""
    value /= 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _peers(rows: Sequence[Row]) -> list[str]:
    """Each once, in the order of the run, if it has figures."""
    return list(dict.fromkeys(row.peer for row in rows if row.rounds))


def by_size(
    run: Run, title: str, wanted: Callable[[Row], bool], figure: str, text: Callable[[float], str], picture: str | None
) -> str:
    """A table with a line for each peer and a column for each batch size."""
    rows = [row for row in run.rows if wanted(row)]
    sizes = sorted({row.case.batch_bytes for row in rows})
    lines = []
    for peer in _peers(rows):
        # A peer may have been measured twice, for two comparisons; the first is shown.
        own = {row.case.batch_bytes: row for row in reversed(rows) if row.peer == peer}
        lines.append([peer, *(_cell(figures(own.get(size), figure), text) for size in sizes)])
    if not lines:
        return ""
    image = f"\n\n![{title}]({picture})" if picture else ""
    return f"## {title}{image}\n\n" + table(["", *map(size_text, sizes)], lines)


def is_throughput(touch: str) -> Callable[[Row], bool]:
    """Rows of the throughput groups whose consumer does `touch`, with what the machine can do beside them."""
    beside = ("sum", "arrow_stream") if touch == "sum" else ("memcpy",)
    return lambda row: (
        row.group.startswith("throughput")
        and (row.case.op in beside or (row.case.op == "get" and row.case.touch == touch))
    )


def is_one_buffer(row: Row) -> bool:
    return row.group.startswith("one buffer")


def is_latency(*, spin: bool) -> Callable[[Row], bool]:
    return lambda row: row.case.op == "latency" and row.case.spin == spin


def _listed(
    run: Run, title: str, prefixes: Sequence[str], columns: Sequence[tuple[str, str, Callable[[float], str]]]
) -> str:
    """A table with a line for each entry of some groups, and a column for each figure."""
    lines = []
    for row in run.rows:
        if row.rounds and row.group.startswith(tuple(prefixes)):
            cells = [_cell(figures(row, figure), text) for _, figure, text in columns]
            lines.append([f"{row.peer}: {describe(row.case)}", *cells])
    return f"## {title}\n\n" + table(["", *(name for name, _, _ in columns)], lines) if lines else ""


def describe(case: Case) -> str:
    """What is particular about a case, in words."""
    words = [case.op.replace("_", " ")]
    if case.op == "connect":
        words.append(case.source)
    if case.columns > 1:
        words.append(f"{case.columns:,} columns")
    elif case.batch_bytes:
        words.append(size_text(case.batch_bytes))
    if case.streams > 1:
        words.append(f"{case.streams:,} streams")
    if case.consumers is not None:
        words.append(f"{case.consumers} thread{'s' if case.consumers != 1 else ''} for them")
    if case.batches:
        words.append(f"{case.batches:,} batches")
    if case.spin:
        words.append("spinning")
    if case.fresh:
        words.append("session resumed" if case.resume else "new client")
    if case.apart:
        words.append("processors apart")
    if case.take != "next":
        words.append("in an event loop")
    if case.values != "int64":
        words.append(f"{case.batch_bytes * 8 // case.columns:,} rows of {case.values}")
    if case.pause:
        words.append(f"{case.pause * 1000:g} ms for each")
    if case.window_bytes:
        words.append(f"window {size_text(case.window_bytes)}")
    elif case.window_batches:
        words.append(f"window of {case.window_batches:,} batches")
    if case.default_window:
        words.append("default window")
    return ", ".join(words)


def _about(about: dict[str, Any]) -> str:
    versions: dict[str, list[str]] = {}
    for peer, version in about["versions"].items():
        versions.setdefault(version, []).append(peer)
    lines = [
        ["date", about["date"]],
        ["processor", f"{about['processor']}, {about['cores']} cores"],
        ["memory", f"{about['memory_gib']} GiB"],
        ["kernel", f"{about['kernel']}; transparent huge pages {about['huge_pages']}"],
        ["commit", about["commit"]],
        ["rounds", f"{about['rounds']}, {about['mode']}"],
        ["TCP's congestion control", about["congestion_control"]],
        ["processors at work when it began", f"{about['load']:.2f}"],
        *([version, ", ".join(peers)] for version, peers in versions.items()),
    ]
    rows = "\n".join(f"| {name} | {value} |" for name, value in lines)
    warning = ""
    if about["load"] > about["cores"] * 0.25:
        warning = "\n\n**The machine had other work when this was measured: the figures are worth less.**"
    return f"## Where and when\n\n| | |\n|---|---|\n{rows}{warning}"


def goals(run: Run) -> str:
    """The table of goals, with the measured ratio of each."""
    words = {True: "yes", False: "**no**", None: "-"}
    rows = outcomes(run)
    lines = "\n".join(f"| {row.case} | {row.goal} | {row.measured} | {words[row.met]} |" for row in rows)
    met, missed = (sum(row.met is value for row in rows) for value in (True, False))
    return (
        f"## Goals\n\n{met} met, {missed} not met, {len(rows) - met - missed} not measured. Ratios of medians; in "
        "parentheses the least and the most of the ratios of single rounds.\n\n"
        f"| Case | Goal | Measured | Met |\n|---|---|---|---|\n{lines}"
    )


def _problems(run: Run) -> str:
    """What could not be measured, and why: each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in run.rows:
        if row.problem:
            reasons.setdefault((row.peer, row.problem), []).append(f"{row.group}: {describe(row.case)}")
    if not reasons:
        return ""
    lines = []
    for (peer, problem), places in reasons.items():
        where = places[0] if len(places) == 1 else f"{len(places)} cases"
        lines.append(f"- {peer} ({where}): {problem}")
    return "## Left out or failed\n\n" + "\n".join(lines)


def markdown(run: Run) -> str:
    """The whole page."""
    bandwidth = "GB/s (10^9 bytes of bodies), medians and range"
    delay = "µs (p50), medians and range"
    latency = [("p50 µs", "p50_ns", micros), ("p99 µs", "p99_ns", micros), ("p99.9 µs", "p99_9_ns", micros)]
    rate = ("batches/s", "batches_per_second", lambda value: f"{value:,.0f}")
    parts = [
        HEAD,
        _about(run.about),
        goals(run),
        by_size(
            run,
            f"Throughput, untouched: {bandwidth}",
            is_throughput("none"),
            "bytes_per_second",
            gigabytes,
            "throughput-untouched.svg",
        ),
        by_size(
            run,
            f"Throughput, summed by the consumer: {bandwidth}",
            is_throughput("sum"),
            "bytes_per_second",
            gigabytes,
            "throughput-summed.svg",
        ),
        by_size(
            run, f"One buffer at both ends: {bandwidth}", is_one_buffer, "bytes_per_second", gigabytes, "one-buffer.svg"
        ),
        by_size(
            run, f"Latency, both ends asleep: {delay}", is_latency(spin=False), "p50_ns", micros, "latency-asleep.svg"
        ),
        by_size(
            run,
            f"Latency, both ends spinning: {delay}",
            is_latency(spin=True),
            "p50_ns",
            micros,
            "latency-spinning.svg",
        ),
        _listed(run, "First batch of a new stream on an open connection", ["first batch"], latency),
        _listed(
            run,
            "Batches of one row: what metadata costs",
            ["metadata", "10,000 columns"],
            [("ns per column", "ns_per_column", lambda value: f"{value:,.0f}"), rate],
        ),
        _listed(
            run,
            "Headers alone",
            ["header"],
            [
                ("µs per batch", "batch_ns", micros),
                ("ns per column", "ns_per_column", lambda value: f"{value:,.1f}"),
            ],
        ),
        _listed(
            run,
            "Many batches, many streams",
            ["ten columns", "256 streams", "tiny"],
            [("GB/s", "bytes_per_second", gigabytes), rate],
        ),
        _listed(
            run,
            "Idle streams",
            ["1,000 idle"],
            [
                ("server CPU s", "cpu_server_seconds", lambda value: f"{value:.4f}"),
                ("client CPU s", "cpu_client_seconds", lambda value: f"{value:.4f}"),
                ("KiB of the server per stream", "stream_memory_server_bytes", lambda value: f"{value / 1024:.1f}"),
            ],
        ),
        _listed(run, "2^31 rows in one column", ["2^31"], [("GB/s", "bytes_per_second", gigabytes), rate]),
        _listed(
            run,
            "A slow consumer: peak memory",
            ["slow consumer"],
            [
                ("MiB of the server", "peak_memory_server_bytes", mebibytes),
                ("MiB of the client", "peak_memory_client_bytes", mebibytes),
            ],
        ),
        _listed(
            run,
            "Beside the reference peer",
            ["reference peer"],
            [("GB/s", "bytes_per_second", gigabytes), rate],
        ),
        _problems(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
