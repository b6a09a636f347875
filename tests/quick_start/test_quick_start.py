"""Promise of docs/quick-start.md: its programs run as they are. Each one serves to itself, the Python
server to each, and each puts a table into the command's server.

    DIPC_PREFIX=PREFIX python -m pytest tests/quick_start

PREFIX has an installed libdipc with the command. A language whose tools are missing is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, needs, run
from support import serving as serving_at

PAGE = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")
# Each run has an address of its own.
ADDRESS = f"shm:@quick-start-{os.getpid()}"


def programs(section: str) -> list[str]:
    """The code of a section, with this run's address."""
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"^```\w+\n(.*?)^```$", body[1], re.DOTALL | re.MULTILINE)
    assert blocks, section
    return [block.replace("shm:@quick-start", ADDRESS) for block in blocks]


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
    commands = []
    for number, program in enumerate(programs(section)):
        out = folder / f"program{number}"
        if section in ("C", "C++"):
            compiler, suffix, standard = {"C": ("cc", ".c", "-std=c11"), "C++": ("c++", ".cpp", "-std=c++17")}[section]
            source = out.with_suffix(suffix)
            source.write_text(program, encoding="utf-8")
            flags = run(["pkg-config", "--cflags", "--libs", "dipc"]).split()
            run([compiler, standard, "-Wall", "-Werror", str(source), "-o", str(out), *flags, "-ldl"])
            commands.append([str(out)])
        elif section == "Go":
            # The package is this tree's, with its dependencies.
            source = ROOT / "bindings/go/examples" / f"quickstart{os.getpid()}_{number}"
            source.mkdir()
            try:
                (source / "main.go").write_text(program, encoding="utf-8")
                run(["go", "build", "-o", str(out), "."], cwd=source)
            finally:
                shutil.rmtree(source)
            commands.append([str(out)])
        elif section == "Rust":
            # Cargo has built them with the tests, with the page's address.
            name = ("serve", "get", "put")[number]
            source = (ROOT / f"examples/{name}.rs").read_text(encoding="utf-8")
            assert source.split("\n\n", 1)[1].replace("shm:@quick-start", ADDRESS) == program
            built = ROOT / f"target/debug/examples/{name}"
            if not built.exists():
                pytest.skip(f"{built} is not built: cargo build --examples")
            commands.append([str(built)])
        elif section == "Julia":
            source = out.with_suffix(".jl")
            source.write_text(program, encoding="utf-8")
            commands.append([julia(), "--startup-file=no", f"--project={ROOT / 'bindings/julia'}", str(source)])
        else:
            source = out.with_suffix(".py")
            source.write_text(program, encoding="utf-8")
            commands.append([sys.executable, str(source)])
    return commands


def julia() -> str:
    found = subprocess.run([ROOT / "bindings/julia/julia.sh"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"there is no Julia that works: {found.stderr.strip()}")
    return found.stdout.strip()


TOOLS = {"C": ["cc", "pkg-config"], "C++": ["c++", "pkg-config"], "Go": ["go"]}


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
