"""`python -m bench`: measures libdipc beside its peers, or writes a report of what was measured."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench import machine, plots, report
from bench.cases import Group, matrix
from bench.registry import all_peers
from bench.results import Row, Run
from bench.rounds import run_all

ROOT = Path(__file__).resolve().parent.parent


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def chosen(groups: list[Group], pattern: str | None) -> list[Group]:
    """The entries that match `GROUP / PEER`."""
    if pattern is None:
        return groups
    wanted = re.compile(pattern)
    kept = [
        replace(group, entries=tuple(entry for entry in group.entries if wanted.search(f"{group.name} / {entry.peer}")))
        for group in groups
    ]
    return [group for group in kept if group.entries]


def write_report(run: Run, folder: Path) -> None:
    """The page and the pictures."""
    drawn = plots.draw(run, folder)
    (folder / "results.md").write_text(report.markdown(run))
    _say(f"{folder / 'results.md'} and {len(drawn)} pictures are written")


def measure(arguments: argparse.Namespace) -> int:
    groups = chosen(matrix(quick=arguments.quick), arguments.only)
    if not groups:
        _say(f"nothing matches {arguments.only}")
        return 2
    if arguments.list:
        for group in groups:
            for entry in group.entries:
                print(f"{group.name} / {entry.peer}: {report.describe(entry.case)}")
        return 0
    wanted = {entry.peer for group in groups for entry in group.entries}
    peers = {name: peer for name, peer in all_peers(arguments.dipc, arguments.reference_peer).items() if name in wanted}
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    mode = "quick" if arguments.quick else "full"
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(machine.describe(peers, mode=mode, rounds=rounds))
    begun = time.monotonic()

    def done(rows: list[Row]) -> None:
        run.rows += rows
        # Whoever is interrupted keeps what there is.
        run.about["minutes"] = round((time.monotonic() - begun) / 60, 1)
        run.save(folder / "results.json")

    try:
        run_all(groups, peers, rounds, _say, done)
    except KeyboardInterrupt:
        _say("interrupted; `python -m bench report` writes what there is")
        return 130
    write_report(run, folder)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("run", "report"), default="run")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: two or three minutes")
    parser.add_argument("--only", metavar="REGEX", help="only what matches 'GROUP / PEER' (--list shows them)")
    parser.add_argument("--list", action="store_true", help="print what would be measured")
    parser.add_argument("--rounds", type=int, help="rounds of each case (5, quick: 2)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench", help="folder of results and report")
    parser.add_argument(
        "--dipc", type=Path, default=ROOT / "target" / "release" / "dipc", help="the command to measure"
    )
    here = os.environ.get("DIPC_REFERENCE_PEER")
    parser.add_argument(
        "--reference-peer",
        type=Path,
        metavar="DIR",
        default=Path(here) if here else None,
        help="folder with the programs `server` and `client` of the reference peer (DIPC_REFERENCE_PEER)",
    )
    arguments = parser.parse_args()
    if arguments.command == "report":
        write_report(Run.load(arguments.output / "results.json"), arguments.output)
        return 0
    return measure(arguments)


if __name__ == "__main__":
    sys.exit(main())
