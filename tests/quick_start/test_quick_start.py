"""Promise of docs/quick-start.md: its programs run as they are. Each one serves to itself, the Python
server to each, and each puts a table into the command's server.

    DIPC_PREFIX=PREFIX python -m pytest tests/quick_start

PREFIX has an installed libdipc with the command. A language whose tools are missing is skipped.
"""

import os
import re
from pathlib import Path

import pytest
from support import ROOT, TOOLS, needs, run, section_of
from support import compiled as compiled_in
from support import serving as serving_at

PAGE = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")
# Each run has an address of its own.
ADDRESS = f"shm:@quick-start-{os.getpid()}"


def programs(section: str) -> list[str]:
    """The code of a section, with this run's address."""
    return [block.replace("shm:@quick-start", ADDRESS) for _, block in section_of(PAGE, section)]


def serving(command: list[str], **options):
    # The examples in Rust have the page's address.
    return serving_at(command, "shm:@quick-start", **options)


def taker(folder: Path) -> list[str]:
    """The command's server that takes tables, for this folder."""
    prepare, server = programs("The command")[2].splitlines()
    run(prepare.split(), cwd=folder)
    return server.split()


def compiled(section: str, folder: Path) -> list[list[str]]:
    """Commands of the section's programs, in order."""
    if section != "Rust":
        return compiled_in(section, programs(section), folder)
    # Cargo has built them with the tests, with the page's address.
    commands = []
    for name, program in zip(("serve", "get", "put"), programs(section)):
        source = (ROOT / f"examples/{name}.rs").read_text(encoding="utf-8")
        assert source.split("\n\n", 1)[1].replace("shm:@quick-start", ADDRESS) == program
        built = ROOT / f"target/debug/examples/{name}"
        if not built.exists():
            pytest.skip(f"{built} is not built: cargo build --examples")
        commands.append([str(built)])
    return commands


LANGUAGES = ["Python", "Rust", "Go", "Julia", "C++", "C"]


def test_the_page_has_these_languages():
    assert re.findall("^## (.*)$", PAGE, re.MULTILINE) == ["The command", *LANGUAGES]


@pytest.mark.parametrize("section", LANGUAGES)
def test_a_language(section, tmp_path):
    needs(*TOOLS.get(section, []))
    (tmp_path / "own").mkdir()
    (tmp_path / "python").mkdir()
    commands = compiled(section, tmp_path / "own")
    if section == "C":
        [get] = commands
    else:
        serve, get, put = commands
        with serving(serve):
            assert "3 rows" in run(get)
        take = taker(tmp_path)
        if section == "Rust":
            take = [word.replace(ADDRESS, "shm:@quick-start") for word in take]
        with serving(take, cwd=tmp_path):
            assert run(put) == "batches taken: 1\n"
        assert (tmp_path / "incoming/numbers.arrow").exists()
    # The examples in Rust have the page's address.
    if section != "Rust":
        with serving(compiled("Python", tmp_path / "python")[0]):
            assert "3 rows" in run(get)


def test_the_command(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3]}), tmp_path / "numbers.parquet")
    serve, get, _, put = (program.split() for program in programs("The command"))
    with serving(serve, cwd=tmp_path):
        assert re.search(r"\b3 rows", run(get))
    with serving(taker(tmp_path), cwd=tmp_path):
        assert re.search(r"\b3 rows", run(put, cwd=tmp_path))
