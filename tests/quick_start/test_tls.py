"""Promise of docs/guide/tls.md: its commands make certificates, and its programs serve and get with them as
they are.

    DIPC_PREFIX=PREFIX DIPC_PYTHON_PACKAGE=FOLDER python -m pytest tests/quick_start
"""

import re
import shlex
import socket
import subprocess

import pytest
from support import ENVIRONMENT, ROOT, TOOLS, compiled, needs, run, section_of, serving

PAGE = (ROOT / "docs/guide/tls.md").read_text(encoding="utf-8")
LANGUAGES = ["Python", "Rust", "Go", "Julia", "C++", "C"]


@pytest.fixture
def port():
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def folder(tmp_path):
    """A folder with the page's certificates."""
    needs("openssl")
    for _, commands in section_of(PAGE, "Certificates"):
        run(["sh", "-e", "-c", commands], cwd=tmp_path)
    run(["openssl", "verify", "-CAfile", "ca.pem", "server.pem", "alice.pem"], cwd=tmp_path)
    return tmp_path


def programs(section: str, port: str) -> list[str]:
    return [code.replace(":4000", f":{port}") for _, code in section_of(PAGE, section)]


def commands(port: str) -> list[list[str]]:
    return [shlex.split(command) for command in programs("The command", port)]


def test_the_page_has_these_languages():
    found = re.findall("^## (.*)$", PAGE, re.MULTILINE)
    assert [language for language in found if language in LANGUAGES] == LANGUAGES


def test_the_command(folder, port):
    serve, get = commands(port)
    with serving(serve, port, cwd=folder):
        assert re.search(r"\b25 rows", run(get, cwd=folder))
        stranger = get[: get.index("--tls-cert")]
        refused = subprocess.run(stranger, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, check=False)
        assert "asks for this side's certificate" in refused.stderr


# A test of the library compiles those in Rust.
@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "Rust"])
def test_a_language(language, folder, port):
    needs(*TOOLS.get(language, []))
    serve, get = compiled(language, programs(language, port), folder)
    # The server in C has no table.
    if language == "C":
        serve, rows = commands(port)[0], "25 rows"
        with serving(compiled(language, programs(language, port), folder)[0], port, cwd=folder, stdin=subprocess.PIPE):
            pass
    else:
        rows = "3 rows"
    with serving(serve, port, cwd=folder):
        assert rows in run(get, cwd=folder)


def test_a_certificate_that_signs_itself(tmp_path, port):
    """The page has the library's text, and the line that mends it."""
    needs("openssl")
    (_, makes), (_, text), (_, mends) = section_of(PAGE, "A certificate that signs itself")
    serve, get = ["dipc", "serve", "--tpch", "nation"], ["dipc", "get", f"tls://localhost:{port}", "nation"]
    serve += ["--listen", f"tls://127.0.0.1:{port}", "--tls-cert", "self.pem", "--tls-key", "self.key"]
    get += ["--tls-ca", "self.pem"]
    run(["sh", "-c", makes], cwd=tmp_path)
    with serving(serve, port, cwd=tmp_path):
        refused = subprocess.run(get, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert " ".join(text.split()).replace(":4000", f":{port}") in refused.stderr
    run(["sh", "-c", mends], cwd=tmp_path)
    with serving(serve, port, cwd=tmp_path):
        assert re.search(r"\b25 rows", run(get, cwd=tmp_path))
