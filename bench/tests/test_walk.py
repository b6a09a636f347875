"""The program that walks memory over UCX moves what it is asked to, over tcp."""

import subprocess
from pathlib import Path

import pytest
from bench.cases import KIB, MIB, Case
from bench.peers import ucx

BUILD = Path(ucx.__file__).parent / "build.sh"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if subprocess.run(["pkg-config", "--exists", "ucx"], check=False).returncode != 0:
        pytest.skip("UCX's headers are not installed: tools/setup.sh bench")
    out = tmp_path_factory.mktemp("walk") / "ucx_walk"
    subprocess.run([BUILD, out], check=True)
    return out


def test_all_messages_arrive(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucx, "WALK", program)
    monkeypatch.setattr(ucx, "WALKED_BYTES", 8 * MIB)
    peer = ucx.Walk()
    if missing := peer.missing():
        pytest.skip(missing)
    for size in (64 * KIB, 512 * KIB):
        found = peer.run(Case("get", batch_bytes=size, seconds=0.01))
        assert found.raw["bytes"] == size * found.raw["messages"]
        assert found.figures["bytes_per_second"] > 0


def test_a_wrong_command_line_is_refused(program: Path) -> None:
    for wrong in ([], ["1", "2", "3", "4"], ["0", "1", "1"], ["x", "1", "1"]):
        done = subprocess.run([program, *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("ucx_walk: ")


def test_a_program_that_is_not_built_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ucx, "WALK", tmp_path / "nothing")
    assert ucx.Walk().missing() == "its program is not built: make bench-build"
