"""Programs are bounded in time, and nothing of them is left."""

import os
import subprocess
import sys
import time

import pytest
from bench.machine import busy_processors
from bench.processes import PeerError, end, free_port, run, serving, start, wait_for_listener


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and was not waited for by its parent, init, yet.
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def test_a_program_that_hangs_is_ended_with_its_children() -> None:
    # The child of the shell says who it is before both hang.
    process = start(["sh", "-c", "sleep 60 & echo $!; wait"])
    assert process.stdout is not None
    child = int(process.stdout.readline())
    end(process)
    assert process.returncode is not None
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def test_a_program_that_ignores_the_request_is_killed() -> None:
    process = start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
    assert process.stdout is not None
    process.stdout.readline()
    end(process, patience=0.2)
    assert process.returncode == -9


def test_time_is_up() -> None:
    with pytest.raises(PeerError, match="sleep did not end within 0 s"):
        run(["sleep", "60"], timeout=0.1)


def test_the_last_line_says_what_went_wrong() -> None:
    with pytest.raises(PeerError, match="sh failed: the reason"):
        run(["sh", "-c", "echo first >&2; echo the reason >&2; exit 3"], timeout=10)
    assert run(["sh", "-c", "echo it; exit 3"], timeout=10, accepted=(0, 3)) == "it\n"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(PeerError, match="cannot be started"):
        run(["/nowhere/at-all"], timeout=1)


def test_a_listener_is_seen_without_connecting_to_it() -> None:
    port = free_port()
    # It ends with an error if somebody connects.
    program = (
        "import socket, sys\n"
        f"s = socket.create_server(('127.0.0.1', {port})); s.settimeout(0.3)\n"
        "try: s.accept(); sys.exit(1)\n"
        "except TimeoutError: pass\n"
    )
    with serving([sys.executable, "-c", program]) as server:
        wait_for_listener(server, port)
        assert server.wait(10) == 0


def test_a_server_that_ended_does_not_listen() -> None:
    with serving(["true"]) as server:
        server.wait(10)
        with pytest.raises(PeerError, match="does not listen"):
            wait_for_listener(server, free_port())
    assert isinstance(server, subprocess.Popen)


def test_processors_at_work_are_counted() -> None:
    assert 0.0 <= busy_processors(0.05) <= (os.cpu_count() or 1)
