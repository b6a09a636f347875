"""What the tests of the documents share: the installed libdipc, and how a program is run."""

import contextlib
import os
import re
import shutil
import subprocess
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
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
