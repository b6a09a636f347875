"""The report: a short page of one run in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.cases import KIB, MIB, Case, size_text
from bench.goals import Outcome, outcomes
from bench.lookup import figures
from bench.plots import PICTURES
from bench.results import Row, Run

HEAD = """# Measured beside its peers

`make bench` wrote this page and its pictures from [results.json](results.json), which has every
figure and round. [How to read it](README.md) says what each peer does."""

MAIN = """## Main figures

Medians. GB/s (10^9 bytes of values) of one stream whose batches are untouched, or summed; µs (p50)
until the client has a batch of 64 B while both ends are asleep or spinning, and the first batch of
a stream."""


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column is text, the others are figures."""
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    written = ["| " + " | ".join(cells) + " |" for cells in (head, *lines)]
    return "\n".join([written[0], rule, *written[1:]])


def gigabytes(value: float) -> str:
    """Bytes per second as GB/s, 10^9 bytes, with the digits that say something."""
    value /= 1e9
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def micros(value: float) -> str:
    """Nanoseconds as microseconds."""
    value /= 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _rate(size: int, touch: str = "none") -> Callable[[Row], bool]:
    """One stream of these batches, and what the machine does beside it."""
    beside = ("sum", "arrow_stream") if touch == "sum" else ("memcpy",)
    return lambda row: (
        row.group.startswith(("throughput", "tls"))
        and row.case.batch_bytes == size
        and (row.case.op in beside or (row.case.op == "get" and row.case.touch == touch))
    )


def _delay(*, spin: bool) -> Callable[[Row], bool]:
    return lambda row: row.case.op == "latency" and row.case.spin == spin and row.case.batch_bytes == 64


def _first(row: Row) -> bool:
    return row.group == "first batch of a stream" and row.case.op == "connect" and row.case.source == "published"


RATE, P50 = "bytes_per_second", "p50_ns"
# The columns of the main figures.
FIGURES: tuple[tuple[str, Callable[[Row], bool], str, Callable[[float], str]], ...] = (
    ("64 KiB", _rate(64 * KIB), RATE, gigabytes),
    ("2 MiB", _rate(2 * MIB), RATE, gigabytes),
    ("32 MiB", _rate(32 * MIB), RATE, gigabytes),
    ("2 MiB, summed", _rate(2 * MIB, "sum"), RATE, gigabytes),
    ("asleep", _delay(spin=False), P50, micros),
    ("spinning", _delay(spin=True), P50, micros),
    ("first", _first, P50, micros),
)


def main_figures(run: Run) -> str:
    """A table with a line for each peer. The pictures have what the machine can do."""
    cells: dict[str, dict[str, str]] = {}
    for row in run.rows:
        for name, wanted, figure, text in FIGURES:
            found = figures(row, figure) if wanted(row) else None
            if found is not None:
                # A peer may have been measured twice, for two comparisons; the first is shown.
                cells.setdefault(row.peer, {}).setdefault(name, text(found.median))
    cells = {peer: own for peer, own in cells.items() if len(own) > 1 or peer.startswith(("dipc", "Flight"))}
    if not cells:
        return ""
    head = ["", *(name for name, *_ in FIGURES)]
    lines = [[peer, *(own.get(name, "-") for name in head[1:])] for peer, own in cells.items()]
    return f"{MAIN}\n\n{table(head, lines)}"


def pictures(run: Run) -> str:
    """Those that `plots.draw` makes of this run."""
    shown = [
        f"![{picture.title}]({picture.name})"
        for picture in PICTURES
        if any(picture.shows(row) and row.values(picture.figure) for row in run.rows)
    ]
    return "## Pictures\n\n" + "\n".join(shown) if shown else ""


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
    # Those of programs that this repository builds say nothing.
    versions = dict.fromkeys(version for version in about["versions"].values() if version[-1:].isdigit())
    lines = [
        ["date", about["date"]],
        ["processor", f"{about['processor']}, {about['cores']} cores"],
        ["memory", f"{about['memory_gib']} GiB"],
        ["kernel", f"{about['kernel']}; transparent huge pages {about['huge_pages']}"],
        ["TCP's congestion control", about["congestion_control"]],
        ["commit", about["commit"]],
        ["versions", ", ".join(versions)],
        ["rounds", f"{about['rounds']}, {about['mode']}"],
        ["processors at work when it began", f"{about['load']:.2f}"],
    ]
    rows = "\n".join(f"| {name} | {value} |" for name, value in lines)
    warning = ""
    if about["load"] > about["cores"] * 0.25:
        warning = "\n\n**The machine had other work when this was measured: the figures are worth less.**"
    return f"## Where and when\n\n| | |\n|---|---|\n{rows}{warning}"


def _lines(alike: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str]]:
    """One line each for the goals of a kind that are missed, met, and not measured: the worst of them."""
    for met, word in ((False, "**no**"), (True, "yes"), (None, "-")):
        same = sorted((outcome for outcome in alike if outcome.met is met), key=lambda outcome: outcome.margin)
        if not same:
            continue
        shown, others = same[0], same[1:]
        if len(alike) == 1:
            yield shown.case, shown.goal, shown.measured, word
            continue
        measured = shown.measured if met is None else f"{shown.which}: {shown.measured}"
        if met is False and others:
            measured += f"; also {', '.join(outcome.which for outcome in others)}"
        count = f"{len(same)} of {len(alike)}" if len(same) < len(alike) else len(same)
        yield f"{shown.kind} ({count})", shown.goal, measured, word


def goals(run: Run) -> str:
    """The table of goals: of those that are met the worst of each kind."""
    every = outcomes(run)
    kinds: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in every:
        kinds.setdefault((outcome.kind, outcome.goal), []).append(outcome)
    lines = "\n".join(f"| {' | '.join(line)} |" for alike in kinds.values() for line in _lines(alike))
    met, missed = (sum(outcome.met is value for outcome in every) for value in (True, False))
    return (
        f"## Goals\n\n{met} met, {missed} not met, {len(every) - met - missed} not measured. "
        "Ratios of medians, with the least and the most\nof single rounds. Goals of one kind that "
        "are all met, or all missed, share a line (their number),\nwhich shows the worst.\n\n"
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
    parts = [HEAD, _about(run.about), main_figures(run), pictures(run), goals(run), _problems(run)]
    return "\n\n".join(part for part in parts if part) + "\n"
