"""Pictures: throughput and latency against the size of a batch, one line for each peer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.cases import size_text
from bench.lookup import figures
from bench.report import is_latency, is_one_buffer, is_throughput
from bench.results import Row, Run

# A colour for each family, darker lines for libdipc.
FAMILIES = {
    "dipc shm": ("#0b5fa5", "-"),
    "dipc tcp": ("#1b9e77", "-"),
    "dipc ucx": ("#7a3db8", "-"),
    "Flight": ("#d95f02", "--"),
    "ucx_perftest": ("#b79ad6", "--"),
    "ucx walking": ("#b79ad6", "-."),
    "iperf3": ("#66a61e", "--"),
    "memcpy": ("#777777", ":"),
    "sum": ("#777777", ":"),
    "Arrow C stream": ("#777777", "-."),
}
MARKS = "osD^v"


def _style(peer: str, number: int) -> dict[str, Any]:
    for prefix, (colour, line) in FAMILIES.items():
        if peer.startswith(prefix):
            return {"color": colour, "linestyle": line, "marker": MARKS[number % len(MARKS)]}
    return {"marker": MARKS[number % len(MARKS)]}


def picture(path: Path, rows: list[Row], figure: str, scale: float, title: str, unit: str) -> bool:
    """Draws one picture. Says whether there was something to draw."""
    import matplotlib as mpl

    # The same run gives the same file.
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "libdipc"
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row.values(figure)]
    if not rows:
        return False
    chart, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    seen: dict[str, int] = {}
    for peer in dict.fromkeys(row.peer for row in rows):
        own = sorted({row.case.batch_bytes: row for row in rows if row.peer == peer}.items())
        found = [(size, summary) for size, row in own if (summary := figures(row, figure)) is not None]
        family = peer.rpartition(" ")[0] if peer.count(" ") else peer
        number = seen[family] = seen.get(family, -1) + 1
        sizes = [size for size, _ in found]
        middle = [summary.median * scale for _, summary in found]
        below = [(summary.median - summary.least) * scale for _, summary in found]
        above = [(summary.most - summary.median) * scale for _, summary in found]
        axes.errorbar(sizes, middle, yerr=(below, above), label=peer, capsize=2, markersize=4, **_style(peer, number))
    every = sorted({row.case.batch_bytes for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(every, [size_text(size) for size in every])
    axes.set_xlabel("bytes of a batch")
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    chart.savefig(path, metadata={"Date": None})
    plt.close(chart)
    return True


def draw(run: Run, folder: Path) -> list[Path]:
    """All pictures of a run; those that were drawn."""
    wanted: list[tuple[str, Callable[[Row], bool], str, float, str, str]] = [
        ("throughput-untouched.svg", is_throughput("none"), "bytes_per_second", 1e-9, "Throughput, untouched", "GB/s"),
        ("throughput-summed.svg", is_throughput("sum"), "bytes_per_second", 1e-9, "Throughput, summed", "GB/s"),
        ("one-buffer.svg", is_one_buffer, "bytes_per_second", 1e-9, "One buffer at both ends", "GB/s"),
        ("latency-asleep.svg", is_latency(spin=False), "p50_ns", 1e-3, "Latency, both ends asleep", "µs (p50)"),
        ("latency-spinning.svg", is_latency(spin=True), "p50_ns", 1e-3, "Latency, both ends spinning", "µs (p50)"),
    ]
    drawn = []
    for name, choose, figure, scale, title, unit in wanted:
        rows = [row for row in run.rows if choose(row)]
        if picture(folder / name, rows, figure, scale, title, unit):
            drawn.append(folder / name)
    return drawn
