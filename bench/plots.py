"""Pictures: throughput and latency against the size of a batch, one line for each peer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import size_text
from bench.lookup import figures
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


@dataclass(frozen=True)
class Picture:
    """The rows of one picture, and which figure of them it has."""

    name: str
    title: str
    shows: Callable[[Row], bool]
    figure: str
    scale: float
    unit: str


def _throughput(touch: str) -> Callable[[Row], bool]:
    """Those whose consumer does `touch`, with what the machine can do beside them."""
    beside = ("sum", "arrow_stream") if touch == "sum" else ("memcpy",)
    return lambda row: (
        row.group.startswith("throughput")
        and (row.case.op in beside or (row.case.op == "get" and row.case.touch == touch))
    )


def _one_buffer(row: Row) -> bool:
    return row.group.startswith("one buffer")


def _latency(*, spin: bool) -> Callable[[Row], bool]:
    return lambda row: row.case.op == "latency" and row.case.spin == spin


RATE, P50 = ("bytes_per_second", 1e-9, "GB/s"), ("p50_ns", 1e-3, "µs (p50)")
PICTURES = (
    Picture("throughput-untouched.svg", "Throughput, untouched", _throughput("none"), *RATE),
    Picture("throughput-summed.svg", "Throughput, summed", _throughput("sum"), *RATE),
    Picture("one-buffer.svg", "One buffer at both ends", _one_buffer, *RATE),
    Picture("latency-asleep.svg", "Latency, both ends asleep", _latency(spin=False), *P50),
    Picture("latency-spinning.svg", "Latency, both ends spinning", _latency(spin=True), *P50),
)


def _style(peer: str, number: int) -> dict[str, Any]:
    for prefix, (colour, line) in FAMILIES.items():
        if peer.startswith(prefix):
            return {"color": colour, "linestyle": line, "marker": MARKS[number % len(MARKS)]}
    return {"marker": MARKS[number % len(MARKS)]}


def _draw_one(path: Path, rows: list[Row], picture: Picture) -> bool:
    """Says whether there was something to draw."""
    figure, scale = picture.figure, picture.scale
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
    axes.set_ylabel(picture.unit)
    axes.set_title(picture.title)
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    chart.savefig(path, metadata={"Date": None})
    plt.close(chart)
    return True


def draw(run: Run, folder: Path) -> list[Path]:
    """All pictures of a run; those that were drawn."""
    drawn = []
    for picture in PICTURES:
        path = folder / picture.name
        if _draw_one(path, [row for row in run.rows if picture.shows(row)], picture):
            drawn.append(path)
    return drawn
