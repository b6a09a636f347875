"""What the tests of the documents share: the installed libdipc, and how a program is run."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(os.environ["DIPC_PREFIX"])
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{PREFIX / 'bin'}:{os.environ['PATH']}",
    "LD_LIBRARY_PATH": str(PREFIX / "lib"),
    "PKG_CONFIG_PATH": str(PREFIX / "lib/pkgconfig"),
    "DIPC_PREFIX": str(PREFIX),
    "PYTHONPATH": os.environ.get("DIPC_PYTHON_PACKAGE", ""),
    "JULIA_LOAD_PATH": f"{ROOT / 'bindings/julia'}:@stdlib:{ROOT / 'bindings'}",
}


def needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool, path=ENVIRONMENT["PATH"]) is None:
            pytest.skip(f"{tool} is not installed")


def run(command: list[str], **options) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def serving(command: list[str], address: str, **options):
    """The program runs, and has said where it listens."""
    server = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, **options)
    try:
        line = server.stdout.readline()
        assert address in line, line
        yield
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def snippets(page: Path) -> list[tuple[str, str]]:
    """The language and the code of each fenced block that names a language."""
    return blocks(page.read_text(encoding="utf-8"))


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def section_of(page: str, section: str) -> list[tuple[str, str]]:
    """The blocks under a heading."""
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert body, section
    assert blocks(body[1]), section
    return blocks(body[1])


TOOLS = {"C": ["cc", "pkg-config"], "C++": ["c++", "pkg-config"], "Go": ["go"]}


def compiled(language: str, programs: list[str], folder: Path) -> list[list[str]]:
    """Commands of programs in a language, in order."""
    commands = []
    for number, program in enumerate(programs):
        out = folder / f"program{number}"
        if language in ("C", "C++"):
            compiler, suffix, standard = {"C": ("cc", ".c", "-std=c11"), "C++": ("c++", ".cpp", "-std=c++17")}[language]
            source = out.with_suffix(suffix)
            source.write_text(program, encoding="utf-8")
            flags = run(["pkg-config", "--cflags", "--libs", "dipc"]).split()
            run([compiler, standard, "-Wall", "-Werror", str(source), "-o", str(out), *flags, "-ldl"])
            commands.append([str(out)])
        elif language == "Go":
            # The package is this tree's, with its dependencies.
            source = ROOT / "bindings/go/examples" / f"quickstart{os.getpid()}_{number}"
            source.mkdir()
            try:
                (source / "main.go").write_text(program, encoding="utf-8")
                run(["go", "build", "-o", str(out), "."], cwd=source)
            finally:
                shutil.rmtree(source)
            commands.append([str(out)])
        elif language == "Julia":
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
